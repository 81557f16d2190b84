// Pinned and registered host memory, and what pointers are.
#include <sys/mman.h>

#include "tests/differential/cases.hpp"

namespace differential {
namespace {

constexpr size_t page = 4096;

void* pages(size_t count) {
    return ::mmap(nullptr, count * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
char* registered(size_t count) {
    auto* address = static_cast<char*>(pages(count));
    NEED(cuMemHostRegister, address, count * page, 0);
    return address;
}
CUdeviceptr as_device(const void* address) {
    return reinterpret_cast<CUdeviceptr>(address);
}
// The attribute of three kinds of pointers.
void tell_pointer(Outcome& o, CUpointer_attribute attribute, CUdeviceptr pointer) {
    unsigned long long value[4] = {};
    o.add(DO(cuPointerGetAttribute, value, attribute, pointer));
}

}  // namespace

#define HOST_CASE(name, ...)                 \
    {                                        \
        name, [](Outcome& o) { __VA_ARGS__ } \
    }

void add_host_cases(std::vector<Case>& cases) {
    std::vector<Case> added =
    { HOST_CASE("cuMemAllocHost/zero bytes", void* p = nullptr; TELL(cuMemAllocHost, &p, 0);),
      HOST_CASE("cuMemHostAlloc/zero bytes", void* p = nullptr; TELL(cuMemHostAlloc, &p, 0, 0);),
      HOST_CASE("cuMemHostAlloc/unknown flags", void* p = nullptr; TELL(cuMemHostAlloc, &p, 64, 0x80);),
      HOST_CASE("cuMemHostAlloc/portable", void* p = nullptr; TELL(cuMemHostAlloc, &p, 64, CU_MEMHOSTALLOC_PORTABLE);),
      HOST_CASE("cuMemHostAlloc/write combined", void* p = nullptr;
                TELL(cuMemHostAlloc, &p, 64, CU_MEMHOSTALLOC_WRITECOMBINED);),
      HOST_CASE("cuMemHostAlloc/more than there is", void* p = nullptr; TELL(cuMemHostAlloc, &p, size_t{1} << 46, 0);),
      HOST_CASE("cuMemFreeHost/null", TELL(cuMemFreeHost, nullptr);),
      HOST_CASE("cuMemFreeHost/twice", auto* p = pinned(64); TELL(cuMemFreeHost, p); TELL(cuMemFreeHost, p);),
      HOST_CASE("cuMemFreeHost/inside", TELL(cuMemFreeHost, static_cast<char*>(pinned(2 * page)) + page);),
      HOST_CASE("cuMemFreeHost/pageable", std::vector<char> p(page); TELL(cuMemFreeHost, p.data());),
      HOST_CASE("cuMemFreeHost/registered", TELL(cuMemFreeHost, registered(1));),
      HOST_CASE("cuMemFreeHost/device memory", TELL(cuMemFreeHost, reinterpret_cast<void*>(memory(64)));),
      HOST_CASE("cuMemHostGetFlags/default", unsigned f = 99; TELL(cuMemHostGetFlags, &f, pinned(64));
                o.add(std::to_string(f));),
      HOST_CASE("cuMemHostGetFlags/pageable", unsigned f = 0; TELL(cuMemHostGetFlags, &f, pages(1));),
      HOST_CASE("cuMemHostGetFlags/null", unsigned f = 0; TELL(cuMemHostGetFlags, &f, nullptr);),
      HOST_CASE("cuMemHostGetDevicePointer/null", CUdeviceptr p = 0; TELL(cuMemHostGetDevicePointer, &p, nullptr, 0);),
      HOST_CASE("cuMemHostGetDevicePointer/pageable", CUdeviceptr p = 0;
                TELL(cuMemHostGetDevicePointer, &p, pages(1), 0);),
      HOST_CASE("cuMemHostGetDevicePointer/flags", CUdeviceptr p = 0;
                TELL(cuMemHostGetDevicePointer, &p, pinned(64), 1);),
      HOST_CASE("cuMemHostRegister/null", TELL(cuMemHostRegister, nullptr, page, 0);),
      HOST_CASE("cuMemHostRegister/zero bytes", TELL(cuMemHostRegister, pages(1), 0, 0);),
      HOST_CASE("cuMemHostRegister/unknown flags", TELL(cuMemHostRegister, pages(1), page, 0x80);),
      HOST_CASE("cuMemHostRegister/twice", auto* p = registered(2); TELL(cuMemHostRegister, p, 2 * page, 0);),
      HOST_CASE("cuMemHostRegister/overlapping the end", auto* p = static_cast<char*>(pages(4));
                NEED(cuMemHostRegister, p, 2 * page, 0); TELL(cuMemHostRegister, p + page, 2 * page, 0);),
      HOST_CASE("cuMemHostRegister/inside", auto* p = registered(4); TELL(cuMemHostRegister, p + page, page, 0);),
      HOST_CASE("cuMemHostRegister/around", auto* p = static_cast<char*>(pages(4));
                NEED(cuMemHostRegister, p + page, page, 0); TELL(cuMemHostRegister, p, 4 * page, 0);),
      HOST_CASE("cuMemHostRegister/pinned memory", TELL(cuMemHostRegister, pinned(page), page, 0);),
      HOST_CASE("cuMemHostRegister/misaligned", TELL(cuMemHostRegister, static_cast<char*>(pages(2)) + 100, 1000, 0);),
      HOST_CASE("cuMemHostRegister/not mapped", auto* p = pages(1); ::munmap(p, page);
                TELL(cuMemHostRegister, p, page, 0);),
      HOST_CASE("cuMemHostRegister/device memory",
                TELL(cuMemHostRegister, reinterpret_cast<void*>(memory(page)), page, 0);),
      HOST_CASE("cuMemHostUnregister/null", TELL(cuMemHostUnregister, nullptr);),
      HOST_CASE("cuMemHostUnregister/pageable", TELL(cuMemHostUnregister, pages(1));),
      HOST_CASE("cuMemHostUnregister/twice", auto* p = registered(1); TELL(cuMemHostUnregister, p);
                TELL(cuMemHostUnregister, p);),
      HOST_CASE("cuMemHostUnregister/inside", TELL(cuMemHostUnregister, registered(2) + page);),
      HOST_CASE("cuMemHostUnregister/pinned memory", TELL(cuMemHostUnregister, pinned(page));),

      HOST_CASE("cuPointerGetAttribute/null pointer",
                for (auto a
                     : {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE}) tell_pointer(o, a, 0);),
      HOST_CASE("cuPointerGetAttribute/pageable", auto p = as_device(pages(1));
                for (int a = CU_POINTER_ATTRIBUTE_CONTEXT; a <= CU_POINTER_ATTRIBUTE_IS_MANAGED; ++a)
                    tell_pointer(o, static_cast<CUpointer_attribute>(a), p);),
      HOST_CASE(
          "cuPointerGetAttribute/pinned", auto p = as_device(pinned(64));
          for (auto a
               : {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                  CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                  CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_MAPPED}) tell_pointer(o, a, p);),
      HOST_CASE(
          "cuPointerGetAttribute/device", auto p = memory(64);
          for (auto a
               : {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                  CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                  CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_MAPPED}) tell_pointer(o, a, p);),
      HOST_CASE("cuPointerGetAttribute/boolean fills four bytes", unsigned v = 0xffffffffu;
                TELL(cuPointerGetAttribute, &v, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory(64));
                o.add(std::to_string(v));),
      HOST_CASE("cuPointerGetAttribute/freed", auto p = memory(8 << 20); NEED(cuMemFree, p);
                tell_pointer(o, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);),
      HOST_CASE("cuPointerGetAttribute/unknown attribute",
                tell_pointer(o, static_cast<CUpointer_attribute>(999), memory(64));),
      HOST_CASE("cuPointerGetAttribute/attribute zero",
                tell_pointer(o, static_cast<CUpointer_attribute>(0), memory(64));),
      HOST_CASE("cuPointerGetAttribute/memory type of device", unsigned t = 99;
                TELL(cuPointerGetAttribute, &t, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory(64));
                o.add(std::to_string(t));),
      HOST_CASE("cuPointerGetAttribute/memory type of pinned", unsigned t = 99;
                TELL(cuPointerGetAttribute, &t, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, as_device(pinned(64)));
                o.add(std::to_string(t));),
      HOST_CASE("cuPointerGetAttributes/zero of them", TELL(cuPointerGetAttributes, 0, nullptr, nullptr, memory(64));),
      HOST_CASE("cuPointerGetAttributes/null lists", TELL(cuPointerGetAttributes, 1, nullptr, nullptr, memory(64));),
      HOST_CASE("cuPointerGetAttributes/pageable", CUpointer_attribute a[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
                unsigned t = 99; void* d[] = {&t}; TELL(cuPointerGetAttributes, 1, a, d, as_device(pages(1)));
                o.add(std::to_string(t));),
      HOST_CASE("cuPointerGetAttributes/null pointer", CUpointer_attribute a[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
                unsigned t = 99; void* d[] = {&t}; TELL(cuPointerGetAttributes, 1, a, d, 0); o.add(std::to_string(t));),
      HOST_CASE("cuStreamWriteValue64/pinned memory", auto* p = static_cast<uint64_t*>(pinned(64)); p[1] = 7;
                TELL(cuStreamWriteValue64, nullptr, as_device(p), 5, 0);
                TELL(cuStreamWaitValue64, nullptr, as_device(p), 5, CU_STREAM_WAIT_VALUE_EQ);
                TELL(cuStreamSynchronize, nullptr); o.add(std::to_string(p[0]) + " " + std::to_string(p[1]));),
      HOST_CASE("cuStreamWriteValue64/beyond pinned memory",
                TELL(cuStreamWriteValue64, nullptr, as_device(pinned(4)), 5, 0);),
      HOST_CASE("cuPointerSetAttribute/sync memops", unsigned on = 1;
                TELL(cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory(64));),
      HOST_CASE("cuPointerSetAttribute/read-only attribute", unsigned on = 1;
                TELL(cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory(64));),
    };
    cases.insert(cases.end(), added.begin(), added.end());
}

}  // namespace differential
