"""JAX: XLA writes PTX and has ptxas compile it; the one beside this file leaves it what it is. Matrix sums, a gradient, a loop;
kernels of Pallas, which Triton compiles; arrays on two GPUs, whose parts NCCL adds up."""
import os
import pathlib
import tempfile

os.environ["PATH"] = f"{pathlib.Path(__file__).resolve().parent}:/usr/bin:/bin"
os.environ["XLA_FLAGS"] = ("--xla_gpu_enable_triton_gemm=false --xla_gpu_force_compilation_parallelism=1"
                           " --xla_gpu_enable_libnvptxcompiler=false --xla_gpu_enable_libnvjitlink=false"
                           " --xla_gpu_cuda_data_dir=" + tempfile.mkdtemp())
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["NCCL_P2P_LEVEL"] = "SYS"
import jax
import jax.numpy as jnp
import numpy as np
from jax._src import hardware_utils
from jax.experimental import pallas
from jax.experimental.pallas import triton

# It wants one of NVIDIA's device files to be there. `tnr start` makes it on its machines; where tests run there is none.
hardware_utils.has_visible_nvidia_gpu = lambda: True

assert jax.default_backend() == "gpu", jax.devices()
x = np.linspace(-2, 2, 1000, dtype=np.float32)
np.testing.assert_allclose(jax.jit(lambda v: jnp.tanh(v) * 2 + v)(x), np.tanh(x) * 2 + x, rtol=1e-5, atol=1e-6)
gradient = jax.jit(jax.grad(lambda v: jnp.sum(jnp.sin(v) * v)))
np.testing.assert_allclose(gradient(x), np.cos(x) * x + np.sin(x), rtol=1e-4, atol=1e-5)
total = jax.jit(lambda v: jax.lax.fori_loop(0, 10, lambda k, s: s + k * v.sum(), 0.0))(np.ones(64, np.float32))
assert float(total) == 45 * 64


def scale_and_add(x, y, out):
    out[...] = x[...] * 2 + y[...]


def softmax(x, out):
    powers = jnp.exp(x[...] - jnp.max(x[...]))
    out[...] = powers / jnp.sum(powers)


def product(a, b, out):
    out[...] = jnp.dot(a[...], b[...])


def call(kernel, shape, grid, specs, out_spec):
    return jax.jit(pallas.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(shape, jnp.float32), grid=grid, in_specs=specs,
                                      out_specs=out_spec, compiler_params=triton.CompilerParams()))


block = pallas.BlockSpec((128,), lambda i: (i,))
values = np.arange(512, dtype=np.float32)
np.testing.assert_array_equal(call(scale_and_add, (512,), (4,), [block, block], block)(values, values), values * 3)
row = pallas.BlockSpec((None, 256), lambda i: (i, 0))
rows = np.random.default_rng(1).normal(size=(5, 256)).astype(np.float32)
powers = np.exp(rows - rows.max(axis=1, keepdims=True))
np.testing.assert_allclose(call(softmax, rows.shape, (5,), [row], row)(rows), powers / powers.sum(axis=1, keepdims=True),
                           rtol=1e-5, atol=1e-7)
left, right = (np.random.default_rng(seed).normal(size=(64, 64)).astype(np.float32) for seed in (2, 3))
specs = [pallas.BlockSpec((32, 64), lambda i, j: (i, 0)), pallas.BlockSpec((64, 32), lambda i, j: (0, j))]
tile = pallas.BlockSpec((32, 32), lambda i, j: (i, j))
np.testing.assert_allclose(call(product, (64, 64), (2, 2), specs, tile)(left, right),
                           left.astype(np.float64) @ right.astype(np.float64), rtol=2e-2, atol=0.2)  # products of tf32
parts = np.arange(16, dtype=np.float32).reshape(2, 8)
everywhere = jax.pmap(lambda v: jax.lax.psum(v, "gpu"), axis_name="gpu")(parts)
np.testing.assert_array_equal(everywhere, np.tile(parts.sum(axis=0), (2, 1)))
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("gpu",))
halves = jax.device_put(np.arange(64, dtype=np.float32).reshape(8, 8),
                        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("gpu", None)))
assert len(halves.sharding.device_set) == 2
np.testing.assert_array_equal(jax.jit(lambda v: (v * 2).sum(axis=0))(halves), np.arange(64).reshape(8, 8).sum(axis=0) * 2)
print("JAX:", jax.devices()[0].device_kind)
