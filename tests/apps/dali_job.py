"""NVIDIA's DALI, which loads and prepares batches for training: its operators on the GPU beside the same ones on the CPU."""
import numpy as np
from nvidia.dali import fn, pipeline_def, types

BATCH = 4
random = np.random.default_rng(1)
images = [random.integers(0, 256, (40, 50, 3)).astype(np.uint8) for _ in range(BATCH)]


def both(operator):
    """What the operator makes of the images on the GPU and on the CPU."""
    @pipeline_def(batch_size=BATCH, num_threads=2, device_id=0)
    def pipeline():
        loaded = fn.external_source(source=lambda: images, layout="HWC")
        return operator(loaded.gpu()), operator(loaded)

    made = pipeline()
    made.build()
    gpu, cpu = made.run()
    gpu = gpu.as_cpu()
    return [(np.asarray(gpu[k]).astype(np.float64), np.asarray(cpu[k]).astype(np.float64)) for k in range(BATCH)]


def check(operator, tolerance=0.0):
    for gpu, cpu in both(operator):
        assert gpu.shape == cpu.shape and cpu.std() > 0
        np.testing.assert_allclose(gpu, cpu, rtol=0, atol=tolerance)


def sound(image):
    return fn.reshape(fn.cast(image, dtype=types.FLOAT), shape=[6000])


def normalized(image):
    return fn.crop_mirror_normalize(image, crop=(32, 32), mean=[120.0] * 3, std=[60.0] * 3, mirror=1, dtype=types.FLOAT16,
                                    output_layout="CHW")


ONE_STEP = 1.0  # of a byte: rounding
check(lambda image: fn.resize(image, size=(30, 33)), ONE_STEP)
check(lambda image: fn.resize(image, size=(60, 77), interp_type=types.INTERP_CUBIC), ONE_STEP)
check(lambda image: fn.warp_affine(image, matrix=[0.9, 0.1, 2.0, -0.1, 0.9, 3.0], fill_value=0), ONE_STEP)
check(lambda image: fn.rotate(image, angle=27.0, fill_value=7), ONE_STEP)
check(lambda image: fn.color_space_conversion(image, image_type=types.RGB, output_type=types.GRAY), ONE_STEP)
check(lambda image: fn.color_twist(image, hue=30.0, saturation=1.3, brightness=1.1, contrast=0.9), ONE_STEP)
check(lambda image: fn.gaussian_blur(image, sigma=1.5), ONE_STEP)
check(normalized, 2e-3)
check(lambda image: fn.flip(image, horizontal=1))
check(lambda image: fn.slice(image, (3, 4), (20, 21), axis_names="HW"))
check(lambda image: fn.erase(image, anchor=[3, 4], shape=[10, 9], axis_names="HW", fill_value=9))
check(lambda image: fn.transpose(image, perm=[2, 0, 1]))
check(lambda image: fn.cat(image, image, axis=1))
check(lambda image: (image * 2 + 1) / 3, 1e-4)
check(lambda image: fn.laplacian(image, window_size=5), 1e-3)
check(lambda image: fn.normalize(image, axes=[0, 1]), 1e-5)
check(lambda image: fn.reductions.mean(image, axes=[0]), 1e-4)
for gpu, cpu in both(lambda image: fn.spectrogram(sound(image), nfft=64, window_length=64, window_step=32)):
    np.testing.assert_allclose(gpu, cpu, rtol=1e-4, atol=1e-4 * cpu.max())
print("DALI: operators agree")
