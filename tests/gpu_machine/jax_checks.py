#!/usr/bin/env python3
"""What JAX does on a GPU, in some twenty short checks. For test-gpu, which runs them by themselves and remoted: the bits must
be the same.

    jax_checks.py                     prints a line of JSON for each: {"check": NAME, "result": a digest of the bits}
    jax_checks.py --device cpu        tries this script where there is no GPU

One that fails has "error" in place of "result". Exit status 77: JAX is not there, or finds no GPU.
"""
import argparse
import os

from checks import Checks

check = Checks("jax_checks")


def bytes_of(value):
    return numpy.asarray(value).tobytes() if hasattr(value, "dtype") else None


def numbers(*shape, dtype="float32", seed=1):
    return jnp.asarray(numpy.random.default_rng(seed).normal(size=shape).astype(dtype))


@check
def elementwise():
    return jax.jit(lambda x: jnp.tanh(x) * 2 + jnp.exp(-x * x) - jnp.where(x > 0, x, jnp.log1p(jnp.abs(x))))(numbers(100_000))


@check
def reductions():
    x = numbers(1000, 129)
    return [x.sum(), x.mean(0), x.var(1), x.max(0), x.argmin(1), jax.nn.logsumexp(x, 1)]


@check
def scans_and_sorts():
    x = numbers(40, 999)
    return [jnp.cumsum(x, 1), jnp.sort(x, 1), jnp.argsort(x, 1), *jax.lax.top_k(x, 9), jnp.median(x)]


@check
def picks_and_places():
    x = numbers(200, 30)
    return [x[::3, 1], jnp.take_along_axis(x, jnp.argsort(x, 1), 1), jnp.zeros(400).at[jnp.arange(200) * 2].set(x[:, 0])]


@check
def products_of_every_type():
    found = []
    for dtype in ("float32", "float16", "bfloat16"):
        found.append(jnp.matmul(numbers(130, 70).astype(dtype), numbers(70, 90, seed=2).astype(dtype)))
    return [*found, jnp.einsum("bij,bkj->bik", numbers(5, 6, 7), numbers(5, 8, 7, seed=2)),
            jnp.matmul(numbers(64, 64), numbers(64, 64), precision="highest")]


@check
def convolutions():
    x, weight = numbers(4, 8, 32, 32), numbers(16, 8, 3, 3, seed=2)
    return [jax.lax.conv(x, weight, (1, 1), "SAME"), jax.lax.conv(x, weight, (2, 2), "VALID"),
            jax.grad(lambda w: jnp.square(jax.lax.conv(x, w, (1, 1), "SAME")).sum())(weight)]


@check
def fourier_transforms():
    return [jnp.fft.rfft(numbers(16, 1000)), jnp.fft.fft2(numbers(30, 42)), jnp.fft.irfft(jnp.fft.rfft(numbers(256)))]


@check
def linear_systems():
    x = numbers(40, 40)
    positive = x @ x.T + 40 * jnp.eye(40)
    return [jnp.linalg.cholesky(positive), jnp.linalg.solve(positive, x), jnp.linalg.inv(positive), jnp.linalg.slogdet(x)[1]]


@check
def decompositions():
    x = numbers(30, 30)
    return [jnp.linalg.svd(x, compute_uv=False), jnp.linalg.eigvalsh(x + x.T), jnp.abs(jnp.linalg.qr(x)[1])]


@check
def derivatives():
    f = lambda x: jnp.sum(jnp.sin(x) * x**2)  # noqa: E731
    x = numbers(50)
    return [jax.grad(f)(x), jax.hessian(f)(x[:8]), jax.jacfwd(jnp.cumsum)(x[:8]), jax.jvp(f, (x,), (x,))[1]]


@check
def loops_and_branches():
    x = numbers(64)
    return [jax.lax.fori_loop(0, 10, lambda k, s: s * 1.1 + k, x), jax.lax.while_loop(lambda s: s.sum() < 1e3, lambda s: s * s + 1, x),
            jax.lax.scan(lambda s, v: (s + v, s * v), 0.0, x)[1], jax.lax.cond(x[0] > 0, lambda: x, lambda: -x),
            jax.lax.switch(2, [lambda: x, lambda: x * 2, lambda: x * 3])]


@check
def many_at_once():
    return [jax.vmap(jnp.dot)(numbers(20, 9), numbers(20, 9, seed=2)), jax.vmap(jax.vmap(jnp.sin))(numbers(7, 8)),
            jax.lax.map(lambda x: x * 2, numbers(11, 3))]


@check
def random_numbers():
    key = jax.random.PRNGKey(3)
    return [jax.random.normal(key, (1000,)), jax.random.permutation(key, 500), jax.random.bernoulli(key, 0.3, (500,)),
            jax.random.categorical(key, numbers(20, 5))]


@check
def what_the_host_is_asked_on_the_way():
    """A function of the program in the middle of the GPU's work."""
    asked = jax.jit(lambda x: jax.pure_callback(lambda v: numpy.asarray(v) * 2, jax.ShapeDtypeStruct((50,), "float32"), x) + 1)
    return [asked(numbers(50, seed=seed)) for seed in range(5)]


@check
def memory_given_away():
    add = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.zeros(1 << 20)
    for _ in range(20):
        x = add(x)
    return x


@check
def training():
    def loss(weights, x, y):
        hidden = jax.nn.gelu(x @ weights[0])
        return jnp.square(hidden @ weights[1] - y).mean()
    step = jax.jit(lambda weights, x, y: [w - 0.01 * g for w, g in zip(weights, jax.grad(loss)(weights, x, y))])
    weights = [numbers(20, 64), numbers(64, 3, seed=2)]
    for seed in range(10):
        weights = step(weights, numbers(32, 20, seed=seed), numbers(32, 3, seed=seed + 100))
    return weights


@check
def attention():
    parts = [numbers(2, 128, 4, 64, seed=seed) for seed in (1, 2, 3)]
    return [jax.nn.dot_product_attention(*parts), jax.nn.dot_product_attention(*parts, is_causal=True)]


@check
def too_much_memory():
    try:
        jnp.zeros((1 << 48,), "uint8").block_until_ready()
    except Exception:  # jaxlib's own kind, whose name has changed
        return jnp.ones(3) + 1
    raise AssertionError("256 TiB were to be had")


def main():
    global jax, jnp, numpy
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = options.device
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    # The fastest of several kernels is chosen by the clock: another one may round differently.
    os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0 " + os.environ.get("XLA_FLAGS", "")
    try:
        import jax
        import jax.numpy as jnp
        import numpy
    except ImportError:
        check.lacks("JAX is not installed")
    try:
        jax.devices()
    except RuntimeError as error:
        check.lacks(f"JAX finds no GPU: {error}"[:300].replace("\n", " "))
    check.run(bytes_of)


if __name__ == "__main__":
    main()
