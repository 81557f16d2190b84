"""A plugin for pytest: CuPy's random numbers are NumPy's. CuPy has them from cuRAND, which is machine code only."""
import cupy
import numpy


def from_host(name):
    def made(*arguments, dtype=None, **options):
        return cupy.asarray(getattr(numpy.random, name)(*arguments, **options), dtype=dtype)
    return made


for each in ("random", "rand", "randn", "randint", "random_sample", "uniform", "normal", "permutation"):
    setattr(cupy.random, each, from_host(each))
