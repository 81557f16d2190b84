"""STUMPY's matrix profile on the GPU (numba.cuda's kernels) beside its own on the CPU."""
import numpy as np
import stumpy

random = np.random.default_rng(1)
series, window = random.normal(size=160), 10
series[20:30] = series[100:110]  # a motif
wanted = stumpy.stump(series, m=window)
profile = stumpy.gpu_stump(series, m=window)
np.testing.assert_allclose(profile[:, 0].astype(float), wanted[:, 0].astype(float), atol=1e-6)
np.testing.assert_array_equal(profile[:, 1], wanted[:, 1])
assert wanted[20, 1] == 100
print("STUMPY: the motif at 20 is found at", wanted[20, 1])
