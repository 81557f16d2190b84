"""TensorFlow: its kernels' PTX, kernels that it compiles when it needs them, XLA, cuFFT and cuDNN. cuBLAS has machine code only
for larger products, and says so."""
import os
import pathlib
import sys
import sysconfig

# It does not find all of the libraries that it was installed with.
libraries = sorted(str(path) for path in pathlib.Path(sysconfig.get_path("purelib")).glob("nvidia/*/lib"))
if libraries[0] not in os.environ["LD_LIBRARY_PATH"]:
    os.environ["LD_LIBRARY_PATH"] = ":".join([os.environ["LD_LIBRARY_PATH"], *libraries])
    os.environ["XLA_FLAGS"] = "--xla_gpu_unsafe_fallback_to_driver_on_ptxas_not_found"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    os.execv(sys.executable, [sys.executable, *sys.argv])

import numpy as np
import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
assert len(gpus) == 1, "TensorFlow does without CUDA"
tf.config.experimental.set_memory_growth(gpus[0], True)
assert tf.config.experimental.get_device_details(gpus[0])["compute_capability"] == (12, 0)
random = np.random.default_rng(1)
values, factors = random.random((64, 48), dtype=np.float32), random.random((48, 1), dtype=np.float32)


def on_gpu(tensor):
    assert tensor.device.endswith("GPU:0"), tensor.device
    return tensor.numpy()


with tf.device("/GPU:0"):
    given = tf.constant(values)
    compiled = tf.function(lambda x: tf.reduce_sum(tf.sin(x) * 2 + x, axis=0), jit_compile=True)
    for found, expected in (
            (tf.exp(given), np.exp(values)), (tf.cumsum(given), values.cumsum(0)), (tf.transpose(given), values.T),
            (tf.math.top_k(given, 3)[0], -np.sort(-values)[:, :3]), (tf.argmax(given, 1), values.argmax(1)),
            (tf.math.unsorted_segment_sum(given, np.arange(64) % 4, 4), values.reshape(16, 4, 48).sum(0)),
            (compiled(given), (np.sin(values) * 2 + values).sum(0)),
            (tf.signal.fft(tf.cast(given, tf.complex64)), np.fft.fft(values)),
            (tf.linalg.inv(given[:8, :8] + 8 * tf.eye(8)), np.linalg.inv(values[:8, :8] + 8 * np.eye(8))),
            (tf.nn.conv2d(tf.ones((1, 8, 8, 1)), tf.ones((3, 3, 1, 1)), 1, "VALID"), np.full((1, 6, 6, 1), 9))):
        np.testing.assert_allclose(on_gpu(found), expected, rtol=1e-4, atol=1e-4)

    weights, wanted = tf.Variable(tf.zeros((48, 1))), tf.constant(values @ factors)
    losses = []
    for _ in range(5):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.reduce_sum(given[:, :, None] * weights, axis=1) - wanted) ** 2)
        weights.assign_sub(0.05 * tape.gradient(loss, weights))
        losses.append(float(loss))
    assert losses[-1] < losses[0] / 100, losses

    try:
        product = on_gpu(tf.matmul(given, given, transpose_b=True))
        np.testing.assert_allclose(product, values @ values.T, rtol=1e-4)
    except tf.errors.InternalError as error:
        print("a product:", error.message)
print("tensorflow: losses", losses)
