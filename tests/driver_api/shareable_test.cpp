// Memory that other processes can be given, within one process: tests/cuda_programs/ipc.cu has two.
#include <fcntl.h>
#include <unistd.h>

#include "gpu.hpp"

using namespace driver_api;

namespace {

constexpr size_t shared_bytes = 4 << 20;
constexpr auto as_descriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUmemAllocationProp shareable(const Gpu& gpu) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
    properties.requestedHandleTypes = as_descriptor;
    return properties;
}

void* of_descriptor(int fd) {
    return reinterpret_cast<void*>(static_cast<intptr_t>(fd));
}

class Mapped {
public:
    Mapped(const Gpu& gpu, CUmemGenericAllocationHandle memory) {
        CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, gpu.device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CU_OK(cu.cuMemAddressReserve(&address, shared_bytes, 0, 0, 0));
        CU_OK(cu.cuMemMap(address, shared_bytes, 0, memory, 0));
        CU_OK(cu.cuMemSetAccess(address, shared_bytes, &access, 1));
    }
    ~Mapped() {
        cu.cuMemUnmap(address, shared_bytes);
        cu.cuMemAddressFree(address, shared_bytes);
    }
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;

    CUdeviceptr address = 0;
};

}  // namespace

TEST_CASE("a descriptor stands for memory and outlives its handle", "[virtual_memory]") {
    Gpu gpu;
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) return;
    CUmemGenericAllocationHandle memory = 0, again = 0;
    auto properties = shareable(gpu);
    int fd = -1;
    CU_OK(cu.cuMemCreate(&memory, shared_bytes, &properties, 0));
    CU_OK(cu.cuMemExportToShareableHandle(&fd, memory, as_descriptor, 0));
    CHECK(fcntl(fd, F_GETFD) >= 0);
    CU_OK(cu.cuMemImportFromShareableHandle(&again, of_descriptor(fd), as_descriptor));
    close(fd);
    CUmemAllocationProp shown{};
    CU_OK(cu.cuMemGetAllocationPropertiesFromHandle(&shown, again));
    CHECK(shown.location.id == gpu.device);
    {
        Mapped one(gpu, memory), other(gpu, again);
        CU_OK(cu.cuMemsetD32(one.address, 77, shared_bytes / 4));
        int last = 0;
        CU_OK(cu.cuMemcpyDtoH(&last, other.address + shared_bytes - 4, sizeof last));
        CHECK(last == 77);
    }
    CU_OK(cu.cuMemRelease(memory));
    {
        Mapped other(gpu, again);
        int first = 0;
        CU_OK(cu.cuMemcpyDtoH(&first, other.address, sizeof first));
        CHECK(first == 77);
    }
    CU_OK(cu.cuMemRelease(again));
}

TEST_CASE("descriptors of other things and wrong handles are refused", "[virtual_memory]") {
    Gpu gpu;
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) return;
    CUmemGenericAllocationHandle memory = 0, made = 0;
    auto properties = shareable(gpu);
    int fd = -1;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    CU_OK(cu.cuMemCreate(&memory, shared_bytes, &properties, 0));
    CU_CHECK(cu.cuMemExportToShareableHandle(&fd, memory, as_descriptor, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemExportToShareableHandle(&fd, memory + 16, as_descriptor, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemExportToShareableHandle(nullptr, memory, as_descriptor, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_NONE, 0), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMemRelease(memory));
    int other = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    CU_CHECK(cu.cuMemImportFromShareableHandle(&made, of_descriptor(other), as_descriptor), CUDA_ERROR_INVALID_VALUE);
    close(other);
    CU_CHECK(cu.cuMemImportFromShareableHandle(&made, of_descriptor(-1), as_descriptor), CUDA_ERROR_INVALID_VALUE);
    int ends[2] = {};
    REQUIRE(pipe(ends) == 0);
    CU_CHECK(cu.cuMemImportFromShareableHandle(&made, of_descriptor(ends[0]), as_descriptor), CUDA_ERROR_INVALID_VALUE);
    close(ends[0]);
    close(ends[1]);
}
