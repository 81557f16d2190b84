// Pinned memory where calls expect device memory: every address means the same to program and GPU.
#include <cstring>

#include "gpu.hpp"

using namespace driver_api;
using Bytes = std::vector<unsigned char>;

// Compared in two pairs of parentheses: Catch2 takes minutes to print a megabyte that differs.
namespace {

class Pinned {
public:
    explicit Pinned(size_t count) : bytes(count) {
        CU_OK(cu.cuMemHostAlloc(reinterpret_cast<void**>(&data), bytes, 0));
        std::memset(data, 9, bytes);
    }
    ~Pinned() { cu.cuMemFreeHost(data); }
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;
    CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(data); }
    Bytes contents() const { return {data, data + bytes}; }

    unsigned char* data = nullptr;
    size_t bytes;
};

}  // namespace

TEST_CASE("pinned memory is filled like device memory", "[pinned]") {
    Gpu gpu;
    Pinned pinned(64);
    Bytes expected(64, 9);
    CU_OK(cu.cuMemsetD8(pinned.address() + 1, 1, 3));
    std::memset(&expected[1], 1, 3);
    CU_OK(cu.cuMemsetD16(pinned.address() + 8, 0x0302, 2));
    expected[8] = expected[10] = 2, expected[9] = expected[11] = 3;
    CU_OK(cu.cuMemsetD32(pinned.address() + 16, 0x07060504, 1));
    for (unsigned char i = 0; i < 4; ++i) expected[16 + i] = 4 + i;
    CU_OK(cu.cuMemsetD2D8(pinned.address() + 32, 8, 5, 3, 2));
    std::memset(&expected[32], 5, 3), std::memset(&expected[40], 5, 3);
    CU_OK(cu.cuMemsetD2D32(pinned.address() + 48, 8, 0x06060606, 1, 2));
    std::memset(&expected[48], 6, 4), std::memset(&expected[56], 6, 4);
    CU_OK(cu.cuCtxSynchronize());
    CHECK((pinned.contents() == expected));
}

// "Fully synchronous", says NVIDIA's page on synchronization behavior; on device memory they are not.
TEST_CASE("a fill of pinned memory has happened when the call returns", "[pinned]") {
    Gpu gpu;
    Stream stream;
    Pinned pinned(1 << 20);
    for (unsigned char value : {1, 2, 3}) {
        CU_OK(cu.cuMemsetD8Async(pinned.address(), 7, pinned.bytes, stream));
        CU_OK(cu.cuMemsetD8(pinned.address(), value, pinned.bytes));
        CHECK((pinned.contents() == Bytes(pinned.bytes, value)));
    }
}

TEST_CASE("fills beyond pinned memory are refused", "[pinned]") {
    Gpu gpu;
    Pinned pinned(4096);
    std::vector<int> ordinary(100);
    CU_CHECK(cu.cuMemsetD8(pinned.address() + 4000, 0, 5000), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemsetD16(pinned.address() + 1, 0, 4), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemsetD8(reinterpret_cast<CUdeviceptr>(ordinary.data()), 0, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK((pinned.contents() == Bytes(4096, 9)));
}

TEST_CASE("pinned memory is filled when its stream gets there", "[pinned]") {
    Gpu gpu;
    Stream stream;
    Pinned pinned(4096);
    Gate gate(stream);
    CU_OK(cu.cuMemsetD8Async(pinned.address(), 1, 4096, stream));
    CU_OK(cu.cuMemsetD16Async(pinned.address(), 0x0202, 100, stream));
    CU_OK(cu.cuMemsetD32Async(pinned.address(), 0x03030303, 10, stream));
    CU_OK(cu.cuMemsetD2D8Async(pinned.address() + 1000, 100, 4, 50, 2, stream));
    CHECK((pinned.contents() == Bytes(4096, 9)));
    gate.open();
    CU_OK(cu.cuStreamSynchronize(stream));
    Bytes expected(4096, 1);
    std::memset(expected.data(), 2, 200), std::memset(expected.data(), 3, 40);
    std::memset(&expected[1000], 4, 50), std::memset(&expected[1100], 4, 50);
    CHECK((pinned.contents() == expected));
}

TEST_CASE("copies between devices take pinned memory on either side", "[pinned]") {
    Gpu gpu;
    Stream stream;
    Pinned one(100'000), other(100'000);
    Memory memory(Bytes(100'000, 1));
    CU_OK(cu.cuMemcpyDtoD(one.address(), memory.address, 50'000));
    CHECK(one.data[49'999] == 1);
    CHECK(one.data[50'000] == 9);
    std::memset(one.data, 2, one.bytes);
    CU_OK(cu.cuMemcpyDtoD(memory.address, one.address(), 100'000));
    CHECK((memory.read<unsigned char>(100'000) == Bytes(100'000, 2)));
    CU_OK(cu.cuMemcpyDtoD(other.address(), one.address(), 100'000));
    CHECK((other.contents() == one.contents()));
    CU_OK(cu.cuMemcpyHtoD(one.address(), Bytes(100, 7).data(), 100));
    CHECK(one.data[99] == 7);
    Bytes back(100);
    CU_OK(cu.cuMemcpyDtoH(back.data(), one.address(), 100));
    CHECK(back == Bytes(100, 7));
    Bytes ordinary(100);
    CU_CHECK(cu.cuMemcpyDtoD(one.address(), reinterpret_cast<CUdeviceptr>(ordinary.data()), 100),
             CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = one.address(), rows.dstDevice = memory.address;
    rows.srcPitch = rows.dstPitch = 100, rows.WidthInBytes = 10, rows.Height = 5;
    std::memset(one.data, 3, one.bytes);
    CU_OK(cu.cuMemcpy2D(&rows));
    CHECK((memory.read<unsigned char>(11, 400) == Bytes{3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2}));
}

TEST_CASE("copies of memory that is pinned in part are refused", "[pinned]") {
    Gpu gpu;
    constexpr size_t page = 4096;
    Pinned pinned(2 * page);
    Memory memory(4 * page);
    Bytes whole(4 * page, 5), ordinary(4 * page, 6);
    for (unsigned char* beyond : {pinned.data + page, whole.data() + page}) {
        if (beyond != pinned.data + page) CU_OK(cu.cuMemHostRegister(beyond, page, 0));
        CU_CHECK(cu.cuMemcpyHtoD(memory.address, beyond, 2 * page), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuMemcpyDtoH(beyond, memory.address, 2 * page), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuMemcpyHtoDAsync(memory.address, beyond, 2 * page, nullptr), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuMemcpy(address_of(beyond), address_of(ordinary.data()), 2 * page), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuMemcpy(address_of(ordinary.data()), address_of(beyond), 2 * page), CUDA_ERROR_INVALID_VALUE);
    }
    CU_CHECK(cu.cuMemcpyHtoD(memory.address, whole.data(), 2 * page), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMemcpyHtoD(memory.address, whole.data(), page));
    CU_OK(cu.cuMemHostRegister(whole.data() + 2 * page, page, 0));  // behind the other: both are as one
    CU_OK(cu.cuMemcpyHtoD(memory.address, whole.data() + page, 2 * page));
    CU_OK(cu.cuMemcpy(address_of(ordinary.data()), address_of(whole.data() + page), 2 * page));
    CHECK((Bytes(ordinary.begin(), ordinary.begin() + 2 * page) == Bytes(2 * page, 5)));
    CU_OK(cu.cuMemHostUnregister(whole.data() + page));
    CU_OK(cu.cuMemHostUnregister(whole.data() + 2 * page));
    CU_OK(cu.cuMemcpyHtoD(memory.address, whole.data(), whole.size()));
}

TEST_CASE("pieces registered side by side are one to copies, also where kernels have them", "[pinned]") {
    Gpu gpu;
    Module module;
    Stream stream;
    constexpr size_t piece = 3000;  // ints; not whole pages
    std::vector<int> host(4 * piece), back(2 * piece);
    CUdeviceptr there[4] = {};
    for (size_t i = 0; i < 4; ++i) {
        CU_OK(cu.cuMemHostRegister(&host[i * piece], piece * sizeof(int), CU_MEMHOSTREGISTER_DEVICEMAP));
        CU_OK(cu.cuMemHostGetDevicePointer(&there[i], &host[i * piece], 0));
        CU_OK(launch(module.function("store"), stream, there[i] + (piece - 1) * sizeof(int), int(i) + 1));
    }
    CU_OK(cu.cuStreamSynchronize(stream));
    // From the middle of the first to the middle of the third.
    Memory memory(2 * piece * sizeof(int));
    int* from = &host[piece / 2];
    from[3] = 33;
    const auto expected = std::vector<int>(from, from + 2 * piece);
    CHECK(expected[piece / 2 - 1] == 1);
    CHECK(expected[piece + piece / 2 - 1] == 2);
    CU_OK(cu.cuMemcpyHtoD(memory.address, from, 2 * piece * sizeof(int)));
    CU_OK(cu.cuMemcpyDtoH(back.data(), memory.address, 2 * piece * sizeof(int)));
    CHECK(back == expected);
    std::fill(host.begin(), host.end(), 0);
    CU_OK(cu.cuMemcpyDtoHAsync(from, memory.address, 2 * piece * sizeof(int), stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(std::equal(expected.begin(), expected.end(), from));
    CHECK(from[-1] == 0);
    CHECK(from[2 * piece] == 0);
    CU_OK(cu.cuMemcpy(address_of(&host[2 * piece]), address_of(&host[piece / 2]), 3 * piece / 2 * sizeof(int)));
    CHECK(std::equal(expected.begin(), expected.begin() + 3 * piece / 2, &host[2 * piece]));
    CU_CHECK(cu.cuMemcpyHtoD(memory.address, &host[4 * piece - 1], 2 * sizeof(int)), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < 4; ++i) CU_OK(cu.cuMemHostUnregister(&host[i * piece]));
}

TEST_CASE("asynchronous copies from pinned to pinned memory happen in their stream", "[pinned]") {
    Gpu gpu;
    Stream stream;
    Pinned one(4096), other(4096);
    Gate gate(stream);
    CU_OK(cu.cuMemsetD8Async(one.address(), 1, 4096, stream));
    CU_OK(cu.cuMemcpyDtoDAsync(other.address(), one.address(), 4096, stream));
    CU_OK(cu.cuMemsetD8Async(one.address(), 2, 4096, stream));
    CU_CHECK(cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    CHECK(other.data[0] == 9);
    gate.open();
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK((one.contents() == Bytes(4096, 2)));
    CHECK((other.contents() == Bytes(4096, 1)));
}

// "For transfers from any host memory to any host memory, the function is fully synchronous with respect to the host."
TEST_CASE("copies from host to host are done when they return, called asynchronous or not", "[pinned]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory value(sizeof(int));
    Bytes ordinary(4096, 3);
    for (unsigned flags : {0u, unsigned{CU_MEMHOSTALLOC_DEVICEMAP}}) {
        unsigned char *one = nullptr, *other = nullptr;
        CU_OK(cu.cuMemHostAlloc(reinterpret_cast<void**>(&one), 4096, flags));
        CU_OK(cu.cuMemHostAlloc(reinterpret_cast<void**>(&other), 4096, flags));
        std::memset(one, 7, 4096);
        for (auto* from : {one, ordinary.data()}) {
            std::memset(other, 0, 4096);
            CU_OK(launch(module.function("spin"), stream, value.address, 20'000));
            CU_OK(cu.cuMemcpyAsync(address_of(other), address_of(from), 4096, stream));
            CHECK(std::memcmp(other, from, 4096) == 0);
            std::memset(other, 0, 4096);
            CUDA_MEMCPY2D box{};
            box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_HOST;
            box.srcHost = from;
            box.dstHost = other;
            box.srcPitch = box.dstPitch = box.WidthInBytes = 64;
            box.Height = 64;
            CU_OK(launch(module.function("spin"), stream, value.address, 20'000));
            CU_OK(cu.cuMemcpy2DAsync(&box, stream));
            CHECK(std::memcmp(other, from, 4096) == 0);
        }
        CU_OK(cu.cuMemFreeHost(one));
        CU_OK(cu.cuMemFreeHost(other));
    }
}

TEST_CASE("what a stream wrote into pinned memory is what its next copy takes from there", "[pinned]") {
    Gpu gpu;
    Stream stream;
    for (size_t bytes : {size_t{100}, size_t{40'000}, size_t{5} << 20}) {
        Pinned pinned(bytes);
        Memory from(Bytes(bytes, 4)), to(Bytes(bytes, 0));
        CU_OK(cu.cuMemcpyDtoHAsync(pinned.data, from.address, bytes, stream));
        CU_OK(cu.cuMemcpyHtoDAsync(to.address, pinned.data, bytes, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK((to.read<unsigned char>(bytes) == Bytes(bytes, 4)));
        CU_OK(cu.cuMemsetD8Async(pinned.address(), 5, bytes, stream));
        CU_OK(cu.cuMemcpyHtoDAsync(to.address, pinned.data, bytes, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK((to.read<unsigned char>(bytes) == Bytes(bytes, 5)));
    }
}

TEST_CASE("pinned memory is freed after the work that uses it", "[pinned]") {
    Gpu gpu;
    Stream stream;
    for (int i = 0; i < 50; ++i) {
        void* data = nullptr;
        CU_OK(cu.cuMemHostAlloc(&data, 1 << 20, 0));
        CU_OK(cu.cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(data), 1, 1 << 20, stream));
        CU_OK(cu.cuMemFreeHost(data));
    }
    CU_OK(cu.cuStreamSynchronize(stream));
}

TEST_CASE("copies beyond pinned memory that is named as the device's are refused", "[pinned]") {
    Gpu gpu;
    Pinned pinned(4096), other(8192);
    Memory memory(8192);
    Bytes here(8192, 1);
    Stream stream;
    const CUdeviceptr inside = pinned.address() + 96;
    for (size_t bytes : {size_t{4001}, size_t{8000}, size_t{1} << 34, SIZE_MAX}) {
        CU_CHECK(cu.cuMemcpyHtoD(inside, here.data(), bytes), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuMemcpyDtoH(here.data(), inside, bytes), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuMemcpyDtoD(inside, other.address(), bytes), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuMemcpyDtoD(other.address(), inside, bytes), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuMemcpyHtoDAsync(inside, here.data(), bytes, stream), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuMemcpyDtoHAsync(here.data(), inside, bytes, stream), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuMemcpyDtoDAsync(inside, inside, bytes, stream), CUDA_ERROR_INVALID_VALUE);
    }
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = memory.address;
    copy.dstDevice = pinned.address();
    copy.srcPitch = copy.dstPitch = 1024;
    copy.WidthInBytes = 1000;
    copy.Height = 5;
    CU_CHECK(cu.cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.Height = 4;
    copy.dstY = 1;
    CU_CHECK(cu.cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuCtxSynchronize());
    CHECK((pinned.contents() == Bytes(4096, 9)));
    CU_CHECK(cu.cuMemcpyDtoD(pinned.address() + 4096, pinned.address(), 0), CUDA_SUCCESS);
    CU_OK(cu.cuMemcpyHtoD(inside, here.data(), 4000));
}

TEST_CASE("streams write and wait for words of pinned memory", "[pinned]") {
    Gpu gpu;
    Pinned pinned(4096);
    Stream stream;
    CU_OK(cu.cuStreamWriteValue32(stream, pinned.address(), 0x01020304, 0));
    CU_OK(cu.cuStreamWaitValue32(stream, pinned.address(), 0x01020304, CU_STREAM_WAIT_VALUE_EQ));
    CU_OK(cu.cuStreamSynchronize(stream));
    const Bytes written = pinned.contents();
    CHECK((Bytes(written.begin(), written.begin() + 5) == Bytes{4, 3, 2, 1, 9}));
}
