// Memory pools, and virtual memory.
#include "tests/differential/cases.hpp"

namespace differential {
namespace {

constexpr size_t block = size_t{2} << 20;  // what every GPU maps in

CUmemPoolProps pool_on(int device) {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    return properties;
}
CUmemoryPool pool() {
    auto properties = pool_on(0);
    CUmemoryPool made = nullptr;
    NEED(cuMemPoolCreate, &made, &properties);
    return made;
}
CUmemAllocationProp memory_on(int device) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    return properties;
}
CUmemGenericAllocationHandle physical() {
    auto properties = memory_on(0);
    CUmemGenericAllocationHandle handle = 0;
    NEED(cuMemCreate, &handle, block, &properties, 0);
    return handle;
}
CUdeviceptr range(size_t bytes = 2 * block) {
    CUdeviceptr address = 0;
    NEED(cuMemAddressReserve, &address, bytes, 0, 0, 0);
    return address;
}
CUdeviceptr mapped() {
    auto address = range();
    NEED(cuMemMap, address, block, 0, physical(), 0);
    return address;
}
CUmemAccessDesc access_of(int device) {
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return access;
}

}  // namespace

#define POOL_CASE(name, ...)                 \
    {                                        \
        name, [](Outcome& o) { __VA_ARGS__ } \
    }
#define UNSAFE_POOL_CASE(name, ...)                                  \
    {                                                                \
        name, [](Outcome& o) { __VA_ARGS__ }, Setting::context, true \
    }

void add_pool_cases(std::vector<Case>& cases) {
    std::vector<Case> added =
    { POOL_CASE("cuMemPoolCreate/no properties", CUmemoryPool p; TELL(cuMemPoolCreate, &p, nullptr);),
      POOL_CASE("cuMemPoolCreate/all zero", CUmemoryPool p; CUmemPoolProps q{}; TELL(cuMemPoolCreate, &p, &q);),
      POOL_CASE("cuMemPoolCreate/no such device", CUmemoryPool p; auto q = pool_on(99); TELL(cuMemPoolCreate, &p, &q);),
      POOL_CASE("cuMemPoolCreate/device -1", CUmemoryPool p; auto q = pool_on(-1); TELL(cuMemPoolCreate, &p, &q);),
      POOL_CASE("cuMemPoolCreate/managed", CUmemoryPool p; auto q = pool_on(0);
                q.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED; TELL(cuMemPoolCreate, &p, &q);),
      POOL_CASE("cuMemPoolCreate/host", CUmemoryPool p; auto q = pool_on(0);
                q.location.type = CU_MEM_LOCATION_TYPE_HOST; TELL(cuMemPoolCreate, &p, &q);),
      POOL_CASE("cuMemPoolCreate/unknown handle type", CUmemoryPool p; auto q = pool_on(0);
                q.handleTypes = static_cast<CUmemAllocationHandleType>(0x80); TELL(cuMemPoolCreate, &p, &q);),
      POOL_CASE("cuMemPoolDestroy/null", TELL(cuMemPoolDestroy, nullptr);),
      POOL_CASE("cuMemPoolDestroy/the default", CUmemoryPool p; NEED(cuDeviceGetDefaultMemPool, &p, 0);
                TELL(cuMemPoolDestroy, p);),
      UNSAFE_POOL_CASE("cuMemPoolDestroy/twice", auto p = pool(); TELL(cuMemPoolDestroy, p);
                       TELL(cuMemPoolDestroy, p);),
      POOL_CASE("cuMemPoolTrimTo/null", TELL(cuMemPoolTrimTo, nullptr, 0);),
      POOL_CASE("cuMemPoolTrimTo/valid", TELL(cuMemPoolTrimTo, pool(), 0);),
      POOL_CASE("cuMemPoolGetAttribute/null pool", uint64_t v = 0;
                TELL(cuMemPoolGetAttribute, nullptr, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v);),
      POOL_CASE("cuMemPoolGetAttribute/null value",
                TELL(cuMemPoolGetAttribute, pool(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, nullptr);),
      POOL_CASE("cuMemPoolGetAttribute/unknown", uint64_t v = 0;
                TELL(cuMemPoolGetAttribute, pool(), static_cast<CUmemPool_attribute>(99), &v);),
      POOL_CASE("cuMemPoolGetAttribute/threshold", uint64_t v = 1;
                TELL(cuMemPoolGetAttribute, pool(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v); o.add(std::to_string(v));),
      POOL_CASE("cuMemPoolSetAttribute/threshold", uint64_t v = 1;
                TELL(cuMemPoolSetAttribute, pool(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v);),
      POOL_CASE("cuMemPoolSetAttribute/used now", uint64_t v = 1;
                TELL(cuMemPoolSetAttribute, pool(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &v);),
      POOL_CASE("cuMemPoolSetAttribute/high mark to one", uint64_t v = 1;
                TELL(cuMemPoolSetAttribute, pool(), CU_MEMPOOL_ATTR_USED_MEM_HIGH, &v);),
      POOL_CASE("cuMemPoolSetAttribute/high mark to zero", uint64_t v = 0;
                TELL(cuMemPoolSetAttribute, pool(), CU_MEMPOOL_ATTR_USED_MEM_HIGH, &v);),
      POOL_CASE("cuMemPoolSetAccess/null", TELL(cuMemPoolSetAccess, pool(), nullptr, 1);),
      POOL_CASE("cuMemPoolSetAccess/none from its own", auto a = access_of(0); a.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
                TELL(cuMemPoolSetAccess, pool(), &a, 1);),
      POOL_CASE("cuMemPoolSetAccess/no such device", auto a = access_of(99); TELL(cuMemPoolSetAccess, pool(), &a, 1);),
      POOL_CASE("cuMemPoolGetAccess/own device", CUmemAccess_flags f{}; CUmemLocation l{CU_MEM_LOCATION_TYPE_DEVICE, 0};
                TELL(cuMemPoolGetAccess, &f, pool(), &l); o.add(std::to_string(f));),
      POOL_CASE("cuMemAllocFromPoolAsync/zero bytes", CUdeviceptr p;
                TELL(cuMemAllocFromPoolAsync, &p, 0, pool(), nullptr);),
      POOL_CASE("cuMemAllocFromPoolAsync/null pool", CUdeviceptr p;
                TELL(cuMemAllocFromPoolAsync, &p, 64, nullptr, nullptr);),
      POOL_CASE("cuMemAllocFromPoolAsync/more than there is", CUdeviceptr p;
                TELL(cuMemAllocFromPoolAsync, &p, size_t{1} << 46, pool(), nullptr);),
      POOL_CASE("cuDeviceSetMemPool/null", TELL(cuDeviceSetMemPool, 0, nullptr);),
      POOL_CASE("cuDeviceSetMemPool/no such device", TELL(cuDeviceSetMemPool, 99, pool());),

      POOL_CASE("cuMemAddressReserve/zero bytes", CUdeviceptr p; TELL(cuMemAddressReserve, &p, 0, 0, 0, 0);),
      POOL_CASE("cuMemAddressReserve/no multiple", CUdeviceptr p; TELL(cuMemAddressReserve, &p, 1000, 0, 0, 0);),
      POOL_CASE("cuMemAddressReserve/alignment of three", CUdeviceptr p;
                TELL(cuMemAddressReserve, &p, block, 3, 0, 0);),
      POOL_CASE("cuMemAddressReserve/flags", CUdeviceptr p; TELL(cuMemAddressReserve, &p, block, 0, 0, 1);),
      POOL_CASE("cuMemAddressReserve/more than there is", CUdeviceptr p;
                TELL(cuMemAddressReserve, &p, size_t{1} << 60, 0, 0, 0);),
      POOL_CASE("cuMemAddressFree/null", TELL(cuMemAddressFree, 0, block);),
      POOL_CASE("cuMemAddressFree/twice", auto p = range(); TELL(cuMemAddressFree, p, 2 * block);
                TELL(cuMemAddressFree, p, 2 * block);),
      POOL_CASE("cuMemAddressFree/half", TELL(cuMemAddressFree, range(), block);),
      POOL_CASE("cuMemAddressFree/still mapped", TELL(cuMemAddressFree, mapped(), 2 * block);),
      POOL_CASE("cuMemAddressFree/an allocation", TELL(cuMemAddressFree, memory(block), block);),
      POOL_CASE("cuMemCreate/zero bytes", auto q = memory_on(0); CUmemGenericAllocationHandle h;
                TELL(cuMemCreate, &h, 0, &q, 0);),
      POOL_CASE("cuMemCreate/no multiple", auto q = memory_on(0); CUmemGenericAllocationHandle h;
                TELL(cuMemCreate, &h, 1000, &q, 0);),
      POOL_CASE("cuMemCreate/flags", auto q = memory_on(0); CUmemGenericAllocationHandle h;
                TELL(cuMemCreate, &h, block, &q, 1);),
      POOL_CASE("cuMemCreate/no properties", CUmemGenericAllocationHandle h; TELL(cuMemCreate, &h, block, nullptr, 0);),
      POOL_CASE("cuMemCreate/no such device", auto q = memory_on(99); CUmemGenericAllocationHandle h;
                TELL(cuMemCreate, &h, block, &q, 0);),
      POOL_CASE("cuMemCreate/unknown type", auto q = memory_on(0); q.type = CU_MEM_ALLOCATION_TYPE_INVALID;
                CUmemGenericAllocationHandle h; TELL(cuMemCreate, &h, block, &q, 0);),
      POOL_CASE("cuMemCreate/more than there is", auto q = memory_on(0); CUmemGenericAllocationHandle h;
                TELL(cuMemCreate, &h, size_t{1} << 46, &q, 0);),
      POOL_CASE("cuMemRelease/zero", TELL(cuMemRelease, 0);),
      UNSAFE_POOL_CASE("cuMemRelease/twice", auto h = physical(); TELL(cuMemRelease, h); TELL(cuMemRelease, h);),
      POOL_CASE("cuMemMap/nothing reserved", TELL(cuMemMap, memory(block), block, 0, physical(), 0);),
      POOL_CASE("cuMemMap/twice", auto p = mapped(); TELL(cuMemMap, p, block, 0, physical(), 0);),
      POOL_CASE("cuMemMap/offset", TELL(cuMemMap, range(), block, block, physical(), 0);),
      POOL_CASE("cuMemMap/larger than the memory", TELL(cuMemMap, range(), 2 * block, 0, physical(), 0);),
      POOL_CASE("cuMemMap/beyond the range", TELL(cuMemMap, range(block) + block, block, 0, physical(), 0);),
      POOL_CASE("cuMemMap/zero bytes", TELL(cuMemMap, range(), 0, 0, physical(), 0);),
      POOL_CASE("cuMemMap/flags", TELL(cuMemMap, range(), block, 0, physical(), 1);),
      POOL_CASE("cuMemMap/handle zero", TELL(cuMemMap, range(), block, 0, 0, 0);),
      POOL_CASE("cuMemUnmap/not mapped", TELL(cuMemUnmap, range(), block);),
      POOL_CASE("cuMemUnmap/twice", auto p = mapped(); TELL(cuMemUnmap, p, block); TELL(cuMemUnmap, p, block);),
      POOL_CASE("cuMemUnmap/an allocation", TELL(cuMemUnmap, memory(block), block);),
      POOL_CASE("cuMemSetAccess/not mapped", auto a = access_of(0); TELL(cuMemSetAccess, range(), block, &a, 1);),
      POOL_CASE("cuMemSetAccess/null", TELL(cuMemSetAccess, mapped(), block, nullptr, 1);),
      POOL_CASE("cuMemSetAccess/none", auto a = access_of(0); TELL(cuMemSetAccess, mapped(), block, &a, 0);),
      POOL_CASE("cuMemSetAccess/no such device", auto a = access_of(99); TELL(cuMemSetAccess, mapped(), block, &a, 1);),
      POOL_CASE("cuMemSetAccess/beyond the mapping", auto a = access_of(0);
                TELL(cuMemSetAccess, mapped(), 2 * block, &a, 1);),
      POOL_CASE("cuMemGetAccess/before it is set", unsigned long long f = 9;
                CUmemLocation l{CU_MEM_LOCATION_TYPE_DEVICE, 0}; TELL(cuMemGetAccess, &f, &l, mapped());
                o.add(std::to_string(f));),
      POOL_CASE("cuMemGetAccess/an allocation", unsigned long long f = 9;
                CUmemLocation l{CU_MEM_LOCATION_TYPE_DEVICE, 0}; TELL(cuMemGetAccess, &f, &l, memory(block));
                o.add(std::to_string(f));),
      POOL_CASE("cuMemGetAllocationPropertiesFromHandle/zero", CUmemAllocationProp q;
                TELL(cuMemGetAllocationPropertiesFromHandle, &q, 0);),
      POOL_CASE("cuMemRetainAllocationHandle/an allocation", CUmemGenericAllocationHandle h;
                TELL(cuMemRetainAllocationHandle, &h, reinterpret_cast<void*>(memory(block)));),
      POOL_CASE("cuMemcpyHtoD/mapped without access", char here[64] = {}; TELL(cuMemcpyHtoD, mapped(), here, 64);),
      POOL_CASE("cuMemGetAllocationGranularity/no such device", size_t g; auto q = memory_on(99);
                TELL(cuMemGetAllocationGranularity, &g, &q, CU_MEM_ALLOC_GRANULARITY_MINIMUM);),
      POOL_CASE("cuMemGetAllocationGranularity/unknown option", size_t g; auto q = memory_on(0);
                TELL(cuMemGetAllocationGranularity, &g, &q, CUmemAllocationGranularity_flags(2));),
      POOL_CASE("cuMemExportToShareableHandle/not asked for", int fd = -1;
                TELL(cuMemExportToShareableHandle, &fd, physical(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);),
    };
    cases.insert(cases.end(), added.begin(), added.end());
}

}  // namespace differential
