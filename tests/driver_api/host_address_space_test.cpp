// Memory that cuMemCreate makes in the host's memory: the program and the GPU have it at the same address.
#include "gpu.hpp"

using namespace driver_api;

namespace {

CUmemAllocationProp of_host(CUmemLocation where = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = where;
    return properties;
}

size_t granularity() {
    const auto properties = of_host();
    size_t bytes = 0;
    CU_OK(cu.cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    return bytes;
}

void open(const Gpu& gpu, CUdeviceptr address, size_t bytes) {
    CUmemAccessDesc access[2] = {};
    access[0].location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
    access[1].location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    access[0].flags = access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CU_OK(cu.cuMemSetAccess(address, bytes, access, 2));
}

// Addresses for two pieces, and one piece that is mapped at the first of them.
struct HostPiece {
    explicit HostPiece(const Gpu& gpu, CUmemLocation where = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0})
        : bytes(granularity()) {
        const auto properties = of_host(where);
        CU_OK(cu.cuMemAddressReserve(&address, 2 * bytes, 0, 0, 0));
        CU_OK(cu.cuMemCreate(&handle, bytes, &properties, 0));
        CU_OK(cu.cuMemMap(address, bytes, 0, handle, 0));
        open(gpu, address, bytes);
    }
    ~HostPiece() {
        for (auto at : {address, address + bytes}) CU_OK(cu.cuMemUnmap(at, bytes));
        CU_OK(cu.cuMemRelease(handle));
        CU_OK(cu.cuMemAddressFree(address, 2 * bytes));
    }
    HostPiece(const HostPiece&) = delete;
    HostPiece& operator=(const HostPiece&) = delete;

    volatile int* words(size_t piece = 0) const { return reinterpret_cast<volatile int*>(address + piece * bytes); }

    const size_t bytes;
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
};

}  // namespace

TEST_CASE("the program and kernels use memory that cuMemCreate makes in the host's memory",
          "[address space][host memory]") {
    Gpu gpu;
    Module module;
    CHECK(gpu.attribute(CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 1);
    CHECK(gpu.attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 1);
    const CUmemLocation places[] = {{CU_MEM_LOCATION_TYPE_HOST, 0},
                                    {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
                                    {CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0}};
    for (const auto& place : places) {
        HostPiece piece(gpu, place);
        auto* words = piece.words();
        for (int round = 0; round < 3; ++round) {
            for (int i = 0; i < 4000; ++i) words[i] = i + round;
            CU_OK(launch_shaped(module.function("add"), 63, 64, 0, nullptr, piece.address, 4000, 5));
            CU_OK(cu.cuCtxSynchronize());
            int wrong = 0;
            for (int i = 0; i < 4000; ++i) wrong += words[i] != i + round + 5;
            CHECK(wrong == 0);
        }
    }
}

TEST_CASE("copies take the host's memory of cuMemCreate on either side", "[address space][host memory]") {
    Gpu gpu;
    HostPiece piece(gpu);
    auto* words = piece.words();
    CUdeviceptr device = 0;
    CU_OK(cu.cuMemAlloc(&device, 4096));
    for (int i = 0; i < 1024; ++i) words[i] = 3 * i;
    CU_OK(cu.cuMemcpyHtoD(device, reinterpret_cast<void*>(piece.address), 4096));
    CU_OK(cu.cuMemcpy(piece.address + 8192, device, 4096));
    CU_OK(cu.cuMemcpyDtoH(reinterpret_cast<void*>(piece.address + 16384), device, 4096));
    CU_OK(cu.cuMemsetD32(piece.address + 4096, 7, 1024));
    int wrong = 0;
    for (int i = 0; i < 1024; ++i)
        wrong += words[2048 + i] != 3 * i || words[4096 + i] != 3 * i || words[1024 + i] != 7;
    CHECK(wrong == 0);
    CU_OK(cu.cuMemFree(device));
}

TEST_CASE("the host's memory of cuMemCreate keeps its content where it is mapped next",
          "[address space][host memory]") {
    Gpu gpu;
    Module module;
    HostPiece piece(gpu);
    piece.words()[0] = 11;
    CU_OK(launch(module.function("store"), nullptr, piece.address + piece.bytes - 4, 21));
    piece.words()[1] = 31;
    CU_OK(cu.cuMemUnmap(piece.address, piece.bytes));
    CU_OK(cu.cuMemMap(piece.address + piece.bytes, piece.bytes, 0, piece.handle, 0));
    open(gpu, piece.address + piece.bytes, piece.bytes);
    auto* words = piece.words(1);
    CHECK(words[0] == 11);
    CHECK(words[1] == 31);
    CHECK(words[piece.bytes / 4 - 1] == 21);
}

TEST_CASE("the host's memory of cuMemCreate says what it is", "[address space][host memory]") {
    Gpu gpu;
    HostPiece piece(gpu);
    unsigned type = 0;
    CU_OK(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, piece.address));
    CHECK(type == CU_MEMORYTYPE_HOST);
    void* host = nullptr;
    CU_OK(cu.cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, piece.address + 8));
    CHECK(reinterpret_cast<CUdeviceptr>(host) == piece.address + 8);
    CUmemAllocationProp properties{};
    CU_OK(cu.cuMemGetAllocationPropertiesFromHandle(&properties, piece.handle));
    CHECK(properties.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA);
    for (const CUmemLocation& place :
         {CUmemLocation{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}, CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, gpu.device}}) {
        unsigned long long flags = 0;
        CU_OK(cu.cuMemGetAccess(&flags, &place, piece.address));
        CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
}

TEST_CASE("memory of the host that cannot be is refused", "[address space][host memory]") {
    Gpu gpu;
    const size_t bytes = granularity();
    CUmemGenericAllocationHandle handle = 0;
    const auto nowhere = of_host({CU_MEM_LOCATION_TYPE_HOST_NUMA, 4711});
    CHECK(cu.cuMemCreate(&handle, bytes, &nowhere, 0) == CUDA_ERROR_INVALID_VALUE);
    const auto somewhere = of_host();
    CHECK(cu.cuMemCreate(&handle, bytes + 4096, &somewhere, 0) == CUDA_ERROR_INVALID_VALUE);
    // A device's memory is not the program's.
    auto of_device = of_host({CU_MEM_LOCATION_TYPE_DEVICE, gpu.device});
    CUdeviceptr address = 0;
    CU_OK(cu.cuMemAddressReserve(&address, bytes, 0, 0, 0));
    CU_OK(cu.cuMemCreate(&handle, bytes, &of_device, 0));
    CU_OK(cu.cuMemMap(address, bytes, 0, handle, 0));
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cu.cuMemSetAccess(address, bytes, &access, 1) == CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMemUnmap(address, bytes));
    CU_OK(cu.cuMemRelease(handle));
    CU_OK(cu.cuMemAddressFree(address, bytes));
}
