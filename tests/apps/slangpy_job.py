"""Slang through SlangPy, which makes CUDA of it and compiles that with NVRTC: a function on arrays, and its derivative."""
import pathlib
import tempfile

import numpy as np
import slangpy as spy

PROGRAM = """
[Differentiable] float wave(float a, float b) { return a * b + sin(a); }
float slope(float a, float b) {
    var pair = diffPair(a, 1.0f);
    return fwd_diff(wave)(pair, diffPair(b, 0.0f)).d;
}
int3 bits(int a) { return int3(countbits(a), firstbithigh(a), reversebits(a)); }
"""

with tempfile.TemporaryDirectory() as folder:
    (pathlib.Path(folder) / "wave.slang").write_text(PROGRAM)
    device = spy.create_device(spy.DeviceType.cuda, include_paths=[pathlib.Path(folder)])
    module = spy.Module.load_from_file(device, "wave.slang")
    random = np.random.default_rng(1)
    a, b = random.random(1000).astype(np.float32), random.random(1000).astype(np.float32)
    np.testing.assert_allclose(module.wave(a, b, _result="numpy"), a * b + np.sin(a), rtol=1e-6)
    np.testing.assert_allclose(module.slope(a, b, _result="numpy"), b + np.cos(a), rtol=1e-6)
    numbers = random.integers(1, 2**31, 500, dtype=np.int32)
    ones, highest, turned = np.array(module.bits(numbers, _result="numpy")).reshape(-1, 3).T
    np.testing.assert_array_equal(ones, [int(n).bit_count() for n in numbers])
    np.testing.assert_array_equal(highest, [int(n).bit_length() - 1 for n in numbers])
    np.testing.assert_array_equal(turned.astype(np.uint32), [int(f"{n:032b}"[::-1], 2) for n in numbers])
    print("SlangPy:", device.info.adapter_name)
