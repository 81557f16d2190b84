// Device memory: sizes, ranges, what was freed, copies and sets that do not fit.
#include "tests/differential/cases.hpp"

namespace differential {

#define CASE(name, ...)                      \
    {                                        \
        name, [](Outcome& o) { __VA_ARGS__ } \
    }
#define UNSAFE_CASE(name, ...)                                       \
    {                                                                \
        name, [](Outcome& o) { __VA_ARGS__ }, Setting::context, true \
    }

static CUDA_MEMCPY2D rows(CUdeviceptr from, CUdeviceptr to) {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from, copy.dstDevice = to;
    copy.srcPitch = copy.dstPitch = 128;
    copy.WidthInBytes = 64, copy.Height = 4;
    return copy;
}

static CUdeviceptr freed(size_t bytes) {
    auto address = memory(bytes);
    NEED(cuMemFree, address);
    return address;
}

constexpr size_t large = size_t{1} << 46;  // bytes that no GPU has
constexpr size_t mib = size_t{1} << 20;

void add_memory_cases(std::vector<Case>& cases) {
    std::vector<Case> added =
    { CASE("cuMemAlloc/zero bytes", CUdeviceptr p = 0; TELL(cuMemAlloc, &p, 0);),
      CASE("cuMemAlloc/more than there is", CUdeviceptr p = 0; TELL(cuMemAlloc, &p, large);),
      CASE("cuMemAlloc/all bytes there are", CUdeviceptr p = 0; TELL(cuMemAlloc, &p, SIZE_MAX);),
      CASE("cuMemAllocPitch/zero width", CUdeviceptr p = 0; size_t pitch = 0;
           TELL(cuMemAllocPitch, &p, &pitch, 0, 4, 4);),
      CASE("cuMemAllocPitch/zero height", CUdeviceptr p = 0; size_t pitch = 0;
           TELL(cuMemAllocPitch, &p, &pitch, 64, 0, 4);),
      CASE("cuMemAllocPitch/element of 3 bytes", CUdeviceptr p = 0; size_t pitch = 0;
           TELL(cuMemAllocPitch, &p, &pitch, 64, 4, 3);),
      CASE("cuMemAllocPitch/more than there is", CUdeviceptr p = 0; size_t pitch = 0;
           TELL(cuMemAllocPitch, &p, &pitch, large, 4, 4);),
      CASE("cuMemFree/null", TELL(cuMemFree, 0);),
      CASE("cuMemFree/twice", TELL(cuMemFree, freed(mib));),
      CASE("cuMemFree/inside", TELL(cuMemFree, memory(mib) + 256);),
      CASE("cuMemFree/host memory", TELL(cuMemFree, reinterpret_cast<CUdeviceptr>(pinned(64)));),
      CASE("cuMemFree/a stack address", int here = 0; TELL(cuMemFree, reinterpret_cast<CUdeviceptr>(&here));),
      CASE("cuMemFree/invented", TELL(cuMemFree, 0x5ec2e7000);),
      CASE("cuMemFree/a module's global", CUdeviceptr p = 0; size_t size = 0;
           NEED(cuModuleGetGlobal, &p, &size, module(), "word"); TELL(cuMemFree, p);),
      CASE("cuMemFree/from cuMemAllocAsync", CUdeviceptr p = 0; NEED(cuMemAllocAsync, &p, 64, nullptr);
           NEED(cuStreamSynchronize, nullptr); TELL(cuMemFree, p);),
      CASE("cuMemFreeAsync/null", TELL(cuMemFreeAsync, 0, nullptr);),
      CASE("cuMemFreeAsync/twice", auto p = memory(mib); TELL(cuMemFreeAsync, p, nullptr);
           TELL(cuMemFreeAsync, p, nullptr);),
      CASE("cuMemFreeAsync/inside", TELL(cuMemFreeAsync, memory(mib) + 256, nullptr);),
      CASE("cuMemFreeAsync/host memory", TELL(cuMemFreeAsync, reinterpret_cast<CUdeviceptr>(pinned(64)), nullptr);),
      CASE("cuMemAllocAsync/zero bytes", CUdeviceptr p = 0; TELL(cuMemAllocAsync, &p, 0, nullptr);),
      CASE("cuMemAllocAsync/more than there is", CUdeviceptr p = 0; TELL(cuMemAllocAsync, &p, large, nullptr);),
      CASE("cuMemGetAddressRange/null", CUdeviceptr p = 0; size_t size = 0; TELL(cuMemGetAddressRange, &p, &size, 0);),
      CASE("cuMemGetAddressRange/freed", CUdeviceptr p = 0; size_t size = 0;
           TELL(cuMemGetAddressRange, &p, &size, freed(mib));),
      CASE("cuMemGetAddressRange/inside", CUdeviceptr p = 0; size_t size = 0; auto m = memory(1000);
           TELL(cuMemGetAddressRange, &p, &size, m + 10); o.add(p == m ? "begin" : "other");
           o.add(std::to_string(size));),
      CASE("cuMemGetAddressRange/behind the end", CUdeviceptr p = 0; size_t size = 0;
           TELL(cuMemGetAddressRange, &p, &size, memory(1000) + 1000);),
      CASE("cuMemGetAddressRange/pinned host memory", CUdeviceptr p = 0; size_t size = 0;
           TELL(cuMemGetAddressRange, &p, &size, reinterpret_cast<CUdeviceptr>(pinned(64)));),
      CASE("cuMemGetAddressRange/pageable host memory", CUdeviceptr p = 0; size_t size = 0; std::vector<char> here(mib);
           TELL(cuMemGetAddressRange, &p, &size, reinterpret_cast<CUdeviceptr>(here.data()));),

      CASE("cuMemcpyHtoD/zero bytes", char here = 0; TELL(cuMemcpyHtoD, memory(64), &here, 0);),
      CASE("cuMemcpyHtoD/zero bytes to null", char here = 0; TELL(cuMemcpyHtoD, 0, &here, 0);),
      CASE("cuMemcpyHtoD/to null", char here[64] = {}; TELL(cuMemcpyHtoD, 0, here, 64);),
      CASE("cuMemcpyHtoD/from null", TELL(cuMemcpyHtoD, memory(64), nullptr, 64);),
      CASE("cuMemcpyHtoD/beyond the end", std::vector<char> here(4 * mib);
           TELL(cuMemcpyHtoD, memory(mib), here.data(), 4 * mib);),
      CASE("cuMemcpyHtoD/to freed", std::vector<char> here(mib); TELL(cuMemcpyHtoD, freed(8 * mib), here.data(), mib);),
      CASE("cuMemcpyHtoD/to host memory", char here[64] = {};
           TELL(cuMemcpyHtoD, reinterpret_cast<CUdeviceptr>(pinned(64)), here, 64);),
      CASE("cuMemcpyHtoD/to pageable host memory", char here[64] = {}, there[64] = {};
           TELL(cuMemcpyHtoD, reinterpret_cast<CUdeviceptr>(there), here, 64);),
      CASE("cuMemcpyHtoD/from device memory", auto m = memory(64);
           TELL(cuMemcpyHtoD, memory(64), reinterpret_cast<void*>(m), 64);),
      CASE("cuMemcpyDtoH/zero bytes", char here = 0; TELL(cuMemcpyDtoH, &here, memory(64), 0);),
      CASE("cuMemcpyDtoH/to null", TELL(cuMemcpyDtoH, nullptr, memory(64), 64);),
      CASE("cuMemcpyDtoH/from null", char here[64]; TELL(cuMemcpyDtoH, here, 0, 64);),
      CASE("cuMemcpyDtoH/beyond the end", std::vector<char> here(4 * mib);
           TELL(cuMemcpyDtoH, here.data(), memory(mib), 4 * mib);),
      CASE("cuMemcpyDtoH/from freed", std::vector<char> here(mib);
           TELL(cuMemcpyDtoH, here.data(), freed(8 * mib), mib);),
      CASE("cuMemcpyDtoH/from host memory", char here[64];
           TELL(cuMemcpyDtoH, here, reinterpret_cast<CUdeviceptr>(pinned(64)), 64);),
      CASE("cuMemcpyHtoD/beyond pinned memory", char here[64] = {};
           TELL(cuMemcpyHtoD, reinterpret_cast<CUdeviceptr>(pinned(64)) + 1, here, 64);),
      CASE("cuMemcpyHtoD/far beyond pinned memory", char here[64] = {};
           TELL(cuMemcpyHtoD, reinterpret_cast<CUdeviceptr>(pinned(64)), here, SIZE_MAX);),
      CASE("cuMemcpyDtoH/beyond pinned memory", char here[64];
           TELL(cuMemcpyDtoH, here, reinterpret_cast<CUdeviceptr>(pinned(64)) + 1, 64);),
      CASE("cuMemcpyDtoD/beyond pinned memory",
           TELL(cuMemcpyDtoD, reinterpret_cast<CUdeviceptr>(pinned(64)), memory(4096), 65);),
      CASE("cuMemcpyDtoD/zero bytes behind pinned memory", auto p = reinterpret_cast<CUdeviceptr>(pinned(64));
           TELL(cuMemcpyDtoD, p + 64, p, 0);),
      CASE("cuMemcpyHtoDAsync/zero bytes in a destroyed stream", char here[64] = {};
           TELL(cuMemcpyHtoDAsync, memory(64), here, 0, destroyed_stream());),
      CASE("cuMemcpyDtoHAsync/zero bytes in a destroyed stream", char here[64];
           TELL(cuMemcpyDtoHAsync, here, memory(64), 0, destroyed_stream());),
      CASE("cuMemcpyDtoDAsync/zero bytes in a destroyed stream",
           TELL(cuMemcpyDtoDAsync, memory(64), memory(64), 0, destroyed_stream());),
      CASE("cuMemcpyDtoD/zero bytes", TELL(cuMemcpyDtoD, memory(64), memory(64), 0);),
      CASE("cuMemcpyDtoD/to null", TELL(cuMemcpyDtoD, 0, memory(64), 64);),
      CASE("cuMemcpyDtoD/from null", TELL(cuMemcpyDtoD, memory(64), 0, 64);),
      CASE("cuMemcpyDtoD/overlapping", auto m = memory(4096); TELL(cuMemcpyDtoD, m + 1024, m, 2048);),
      CASE("cuMemcpyDtoD/from pinned host memory",
           TELL(cuMemcpyDtoD, memory(64), reinterpret_cast<CUdeviceptr>(pinned(64)), 64);),
      CASE("cuMemcpyDtoD/to pinned host memory",
           TELL(cuMemcpyDtoD, reinterpret_cast<CUdeviceptr>(pinned(64)), memory(64), 64);),
      CASE("cuMemcpyDtoD/beyond the end", TELL(cuMemcpyDtoD, memory(mib), memory(4 * mib), 4 * mib);),
      CASE("cuMemcpy/host to host", char a[64] = {}, b[64];
           TELL(cuMemcpy, reinterpret_cast<CUdeviceptr>(b), reinterpret_cast<CUdeviceptr>(a), 64);),
      CASE("cuMemcpy/from null", TELL(cuMemcpy, memory(64), 0, 64);),
      CASE("cuMemcpy/pageable to device", char a[64] = {};
           TELL(cuMemcpy, memory(64), reinterpret_cast<CUdeviceptr>(a), 64);),
      CASE("cuMemcpyPeer/one context", TELL(cuMemcpyPeer, memory(64), primary(), memory(64), primary(), 64);),
      CASE("cuMemcpyPeer/null context", TELL(cuMemcpyPeer, memory(64), nullptr, memory(64), primary(), 64);),

      CASE("cuMemcpy2D/null", TELL(cuMemcpy2D, nullptr);),
      CASE("cuMemcpy2D/valid", auto c = rows(memory(4096), memory(4096)); TELL(cuMemcpy2D, &c);),
      CASE("cuMemcpy2D/zero width", auto c = rows(memory(4096), memory(4096)); c.WidthInBytes = 0;
           TELL(cuMemcpy2D, &c);),
      CASE("cuMemcpy2D/zero height", auto c = rows(memory(4096), memory(4096)); c.Height = 0; TELL(cuMemcpy2D, &c);),
      CASE("cuMemcpy2D/pitch below width", auto c = rows(memory(4096), memory(4096)); c.srcPitch = 32;
           TELL(cuMemcpy2D, &c);),
      CASE("cuMemcpy2D/target pitch below width", auto c = rows(memory(4096), memory(4096)); c.dstPitch = 32;
           TELL(cuMemcpy2D, &c);),
      CASE("cuMemcpy2D/zero pitch", auto c = rows(memory(4096), memory(4096)); c.srcPitch = c.dstPitch = 0;
           TELL(cuMemcpy2D, &c);),
      CASE("cuMemcpy2D/offset and width above pitch", auto c = rows(memory(4096), memory(4096)); c.srcXInBytes = 100;
           TELL(cuMemcpy2D, &c);),
      CASE("cuMemcpy2D/unknown memory type", auto c = rows(memory(4096), memory(4096));
           c.srcMemoryType = static_cast<CUmemorytype>(9); TELL(cuMemcpy2D, &c);),
      CASE("cuMemcpy2D/pitch above the largest", auto c = rows(memory(4096), memory(4096)); c.Height = 1;
           c.srcPitch = size_t{1} << 32; TELL(cuMemcpy2D, &c);),
      CASE("cuMemcpy2D/beyond the end", auto c = rows(memory(256), memory(8 * mib)); c.Height = 32768;
           TELL(cuMemcpy2D, &c);),
      CASE("cuMemcpy2DUnaligned/pitch below width", auto c = rows(memory(4096), memory(4096)); c.srcPitch = 32;
           TELL(cuMemcpy2DUnaligned, &c);),
      CASE("cuMemcpy2DAsync/null", TELL(cuMemcpy2DAsync, nullptr, nullptr);),
      CASE("cuMemcpy3D/null", TELL(cuMemcpy3D, nullptr);),
      CASE("cuMemcpy3D/zero depth", CUDA_MEMCPY3D c{}; c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
           c.srcDevice = memory(4096); c.dstDevice = memory(4096); c.srcPitch = c.dstPitch = 64; c.WidthInBytes = 64;
           c.Height = 1; TELL(cuMemcpy3D, &c);),
      CASE("cuMemcpy3D/overlapping slices", CUDA_MEMCPY3D c{}; c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
           c.srcDevice = memory(4096); c.dstDevice = memory(4096); c.srcPitch = c.dstPitch = 64; c.WidthInBytes = 64;
           c.Height = 4; c.Depth = 2; c.dstHeight = 2; TELL(cuMemcpy3D, &c);),

      CASE("cuMemsetD8/zero count", TELL(cuMemsetD8, memory(64), 1, 0);),
      CASE("cuMemsetD8/null", TELL(cuMemsetD8, 0, 1, 64);),
      CASE("cuMemsetD8/zero count at null", TELL(cuMemsetD8, 0, 1, 0);),
      CASE("cuMemsetD8/beyond the end", TELL(cuMemsetD8, memory(mib), 1, 8 * mib);),
      CASE("cuMemsetD8/pinned host memory", TELL(cuMemsetD8, reinterpret_cast<CUdeviceptr>(pinned(64)), 1, 64);),
      CASE("cuMemsetD8/pageable host memory", char here[64];
           TELL(cuMemsetD8, reinterpret_cast<CUdeviceptr>(here), 1, 64);),
      CASE("cuMemsetD8/freed", TELL(cuMemsetD8, freed(8 * mib), 1, mib);),
      CASE("cuMemsetD16/misaligned", TELL(cuMemsetD16, memory(64) + 1, 1, 4);),
      CASE("cuMemsetD32/misaligned", TELL(cuMemsetD32, memory(64) + 2, 1, 4);),
      CASE("cuMemsetD32/count overflows", TELL(cuMemsetD32, memory(64), 1, SIZE_MAX / 2);),
      CASE("cuMemsetD2D8/pitch below width", TELL(cuMemsetD2D8, memory(4096), 16, 1, 64, 4);),
      CASE("cuMemsetD2D8/zero width", TELL(cuMemsetD2D8, memory(4096), 64, 1, 0, 4);),
      CASE("cuMemsetD2D8/zero width of many rows", TELL(cuMemsetD2D8, memory(4096), 64, 1, 0, 100000);),
      CASE("cuMemsetD2D8/zero height", TELL(cuMemsetD2D8, memory(4096), 64, 1, 64, 0);),
      CASE("cuMemsetD2D32/misaligned pitch", TELL(cuMemsetD2D32, memory(4096), 66, 1, 4, 4);),
      CASE("cuMemsetD2D32/misaligned", TELL(cuMemsetD2D32, memory(4096) + 2, 64, 1, 4, 4);),
      CASE("cuMemsetD32Async/null", TELL(cuMemsetD32Async, 0, 1, 4, nullptr);),
      UNSAFE_CASE("cuMemcpyHtoD/from an invented address",
                  TELL(cuMemcpyHtoD, memory(64), reinterpret_cast<void*>(0x1000), 64);),
    };
    cases.insert(cases.end(), added.begin(), added.end());
}

}  // namespace differential
