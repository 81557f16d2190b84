"""RAPIDS' memory manager: each of its kinds of device memory, filled, read back and used up, and under CuPy."""
import cupy
import numpy as np
import rmm
from rmm import mr
from rmm.allocators.cupy import rmm_cupy_allocator
from rmm.pylibrmm.stream import Stream

MIB = 1 << 20
random = np.random.default_rng(1)


def check(resource):
    mr.set_current_device_resource(resource)
    stream, kept = Stream(), []
    for size in (1, 1000, MIB, 5 * MIB, 33):
        data = random.integers(0, 255, size).astype(np.uint8).tobytes()
        buffer = rmm.DeviceBuffer.to_device(data, stream=stream)
        copy = buffer.copy()
        buffer.resize(2 * size)
        buffer.reserve(4 * size)
        kept.append(copy)
        assert buffer.tobytes()[:size] == data and copy.tobytes() == data, (resource, size)


cuda, managed = mr.CudaMemoryResource, mr.ManagedMemoryResource
pools = [lambda: mr.PoolMemoryResource(cuda(), initial_pool_size=64 * MIB, maximum_pool_size=256 * MIB),
         lambda: mr.PoolMemoryResource(managed(), initial_pool_size=64 * MIB),
         lambda: mr.ArenaMemoryResource(cuda(), arena_size=256 * MIB), lambda: mr.BinningMemoryResource(cuda(), 18, 20),
         lambda: mr.CudaAsyncMemoryResource(initial_pool_size=16 * MIB, release_threshold=64 * MIB)]
others = [cuda, managed, mr.CudaAsyncMemoryResource, lambda: mr.StatisticsResourceAdaptor(cuda()),
          lambda: mr.TrackingResourceAdaptor(cuda(), True), lambda: mr.LimitingResourceAdaptor(cuda(), 128 * MIB),
          lambda: mr.PrefetchResourceAdaptor(managed()), mr.PinnedHostMemoryResource]
for make in pools + others:
    check(make())

for make in (cuda, mr.CudaAsyncMemoryResource, pools[0]):
    mr.set_current_device_resource(make())
    try:
        rmm.DeviceBuffer(size=1 << 40)
        raise AssertionError("a terabyte fits")
    except MemoryError as error:
        assert "out of memory" in str(error) or "out_of_memory" in str(error), error

rmm.reinitialize(pool_allocator=True, initial_pool_size=64 * MIB, devices=[0, 1])
cupy.cuda.set_allocator(rmm_cupy_allocator)
np.testing.assert_array_equal(cupy.asnumpy(cupy.arange(100_000) * 2), np.arange(100_000) * 2)
print("rmm:", len(pools + others), "kinds of memory")
