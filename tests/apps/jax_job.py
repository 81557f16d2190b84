"""JAX: XLA writes PTX and has ptxas compile it; the one beside this file leaves it what it is. Matrix sums, a gradient, a loop."""
import os
import pathlib
import tempfile

os.environ["PATH"] = f"{pathlib.Path(__file__).resolve().parent}:/usr/bin:/bin"
os.environ["XLA_FLAGS"] = ("--xla_gpu_enable_triton_gemm=false --xla_gpu_force_compilation_parallelism=1"
                           " --xla_gpu_cuda_data_dir=" + tempfile.mkdtemp())
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax
import jax.numpy as jnp
import numpy as np

assert jax.default_backend() == "gpu", jax.devices()
x = np.linspace(-2, 2, 1000, dtype=np.float32)
np.testing.assert_allclose(jax.jit(lambda v: jnp.tanh(v) * 2 + v)(x), np.tanh(x) * 2 + x, rtol=1e-5, atol=1e-6)
gradient = jax.jit(jax.grad(lambda v: jnp.sum(jnp.sin(v) * v)))
np.testing.assert_allclose(gradient(x), np.cos(x) * x + np.sin(x), rtol=1e-4, atol=1e-5)
total = jax.jit(lambda v: jax.lax.fori_loop(0, 10, lambda k, s: s + k * v.sum(), 0.0))(np.ones(64, np.float32))
assert float(total) == 45 * 64
print("JAX:", jax.devices()[0].device_kind)
