"""tinygrad: learns to tell points inside a circle from those outside, once with CUDA C through nvrtc and once with PTX of its
own (the argument says which); every step's loss is compared with NumPy's."""
import os
import pathlib
import sys

import numpy as np
import nvidia.cu13

os.environ["DEV"] = sys.argv[1]
os.environ["NVRTC_PATH"] = str(next(pathlib.Path(nvidia.cu13.__path__[0]).glob("lib/libnvrtc.so.*")))
from tinygrad import Device, Tensor  # noqa: E402

assert Device.DEFAULT == "CUDA"
random = np.random.default_rng(1)
points = random.uniform(-1, 1, (64, 2)).astype(np.float32)
inside = (np.square(points).sum(axis=1) < 0.5).astype(np.float32)[:, None]
first, last = (random.normal(0, 1, shape).astype(np.float32) for shape in ((2, 16), (16, 1)))
RATE = 0.05


def steps_here(first, last):
    for _ in range(3):
        hidden = np.maximum(points @ first, 0)
        off = hidden @ last - inside
        yield np.square(off).mean()
        slope = 2 * off / off.size
        first, last = first - RATE * points.T @ (slope @ last.T * (hidden > 0)), last - RATE * hidden.T @ slope


def steps_there(first, last):
    first, last, x, y = (Tensor(array) for array in (first, last, points, inside))
    for _ in range(3):
        loss = ((x @ first).relu() @ last - y).square().mean()
        yield loss.item()
        by_first, by_last = loss.gradient(first, last)
        first, last = (first - RATE * by_first).realize(), (last - RATE * by_last).realize()


np.testing.assert_allclose(list(steps_there(first, last)), list(steps_here(first, last)), rtol=1e-4)
print("tinygrad:", os.environ["DEV"])
