// Copies in every direction, size and shape.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "graph.hpp"

using namespace driver_api;

namespace {
// Comes again after a prime number of bytes, so no block of a power of two is like another one.
std::vector<unsigned char> pattern(size_t bytes, unsigned seed = 1) {
    std::vector<unsigned char> data(bytes);
    const size_t made = std::min<size_t>(bytes, 65'521);
    for (size_t i = 0; i < made; ++i) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (unsigned char)(seed >> 24);
    }
    for (size_t at = made; at < bytes; at += made) std::memcpy(&data[at], data.data(), std::min(made, bytes - at));
    return data;
}
using Bytes = std::vector<unsigned char>;
}  // namespace

TEST_CASE("what is copied to the device comes back", "[copy]") {
    Gpu gpu;
    for (size_t bytes : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 255, 256, 4095, 4096, 4097, 65'537, (1 << 20) + 3}) {
        Bytes data = pattern(bytes), back(bytes + 1, 0xEE);
        Memory memory(bytes);
        CU_OK(cu.cuMemcpyHtoD(memory.address, data.data(), bytes));
        CU_OK(cu.cuMemcpyDtoH(back.data(), memory.address, bytes));
        CHECK(std::memcmp(back.data(), data.data(), bytes) == 0);
        CHECK(back[bytes] == 0xEE);
    }
}

TEST_CASE("copies start and end at any byte", "[copy]") {
    Gpu gpu;
    const size_t total = 1024;
    for (size_t offset : {1, 2, 3, 5, 129})
        for (size_t bytes : {1, 3, 6, 127, 500}) {
            Memory memory(Bytes(total, 0));
            Bytes data = pattern(bytes + 1), expected(total, 0);
            CU_OK(cu.cuMemcpyHtoD(memory.address + offset, data.data() + 1, bytes));
            std::memcpy(&expected[offset], data.data() + 1, bytes);
            CHECK(memory.read<unsigned char>(total) == expected);
            CHECK(memory.read<unsigned char>(bytes, offset) == Bytes(data.begin() + 1, data.end()));
        }
}

TEST_CASE("a large copy arrives complete", "[copy]") {
    Gpu gpu;
    const size_t bytes = (size_t{80} << 20) + 7;  // more than one message of ours holds
    Bytes data = pattern(bytes);
    Memory memory(bytes);
    CU_OK(cu.cuMemcpyHtoD(memory.address, data.data(), bytes));
    CHECK(memory.read<unsigned char>(bytes) == data);
}

TEST_CASE("a copy of nothing succeeds", "[copy]") {
    Gpu gpu;
    Memory memory(16);
    int value = 0;
    CU_CHECK(cu.cuMemcpyHtoD(memory.address, &value, 0), CUDA_SUCCESS);
    CU_CHECK(cu.cuMemcpyDtoH(&value, memory.address, 0), CUDA_SUCCESS);
}

TEST_CASE("copies beyond an allocation or without one are refused", "[copy]") {
    Gpu gpu;
    CUdeviceptr address = 0;
    CU_OK(cu.cuMemAlloc(&address, size_t{4} << 20));
    Bytes host(size_t{256} << 20);
    CU_CHECK(cu.cuMemcpyHtoD(address, host.data(), host.size()), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemcpyDtoH(host.data(), address, host.size()), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemcpyHtoD(0, host.data(), 16), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemcpyDtoH(host.data(), 0x10, 16), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemcpyHtoD(address, nullptr, 16), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemcpyDtoH(nullptr, address, 16), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMemFree(address));
}

// Named as the host's, too.
TEST_CASE("a box ends where the pinned memory does, and a slice holds the rows that are copied of it",
          "[copy][pinned]") {
    Gpu gpu;
    constexpr size_t width = 64, rows = 8, slices = 4;
    Memory memory(width * rows * slices);
    void* pinned = nullptr;
    CU_OK(cu.cuMemHostAlloc(&pinned, width * rows * slices, 0));
    const bool to_device = GENERATE(false, true);
    CUDA_MEMCPY3D box{};
    box.srcMemoryType = to_device ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    box.dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    box.srcHost = box.dstHost = pinned;
    box.srcDevice = box.dstDevice = memory.address;
    box.srcPitch = box.dstPitch = box.WidthInBytes = width;
    box.srcHeight = box.dstHeight = box.Height = rows;
    box.Depth = slices;
    CU_OK(cu.cuMemcpy3D(&box));
    auto refused = [&](size_t CUDA_MEMCPY3D::*member, size_t value) {
        auto bad = box;
        bad.*member = value;
        CU_CHECK(cu.cuMemcpy3D(&bad), CUDA_ERROR_INVALID_VALUE);
        Graph graph;
        CUgraphNode node = nullptr;
        CU_CHECK(cu.cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &bad, gpu.context), CUDA_ERROR_INVALID_VALUE);
    };
    refused(to_device ? &CUDA_MEMCPY3D::srcY : &CUDA_MEMCPY3D::dstY, 1);
    refused(to_device ? &CUDA_MEMCPY3D::srcZ : &CUDA_MEMCPY3D::dstZ, 1);
    refused(to_device ? &CUDA_MEMCPY3D::srcPitch : &CUDA_MEMCPY3D::dstPitch, 0x7fff'ffff);
    CU_OK(cu.cuMemFreeHost(pinned));
}

TEST_CASE("memory is copied within the device", "[copy]") {
    Gpu gpu;
    Bytes data = pattern(100'003);
    Memory from(data), to(Bytes(data.size(), 0));
    CU_OK(cu.cuMemcpyDtoD(to.address, from.address, data.size()));
    CHECK(to.read<unsigned char>(data.size()) == data);
    CU_OK(cu.cuMemcpyDtoDAsync(to.address + 11, from.address, 77, nullptr));
    CHECK(to.read<unsigned char>(77, 11) == Bytes(data.begin(), data.begin() + 77));
    CU_OK(cu.cuMemcpyPeer(to.address + 1000, gpu.context, from.address + 3, gpu.context, 50));
    CHECK(to.read<unsigned char>(50, 1000) == Bytes(data.begin() + 3, data.begin() + 53));
}

TEST_CASE("a unified copy finds out where its ends are", "[copy]") {
    Gpu gpu;
    Bytes data = pattern(5000), back(5000), moved(5000);
    auto host = [](Bytes& bytes) { return reinterpret_cast<CUdeviceptr>(bytes.data()); };
    Memory first(5000), second(5000);
    CU_OK(cu.cuMemcpy(first.address, host(data), 5000));
    CU_OK(cu.cuMemcpy(second.address, first.address, 5000));
    CU_OK(cu.cuMemcpy(host(back), second.address, 5000));
    CHECK(back == data);
    CU_OK(cu.cuMemcpy(host(moved), host(data), 5000));
    CHECK(moved == data);
    Stream stream;
    CU_OK(cu.cuMemcpyAsync(host(moved), first.address + 1, 4999, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(Bytes(moved.begin(), moved.end() - 1) == Bytes(data.begin() + 1, data.end()));
}

TEST_CASE("asynchronous copies are done once their stream is", "[copy]") {
    Gpu gpu;
    Stream stream;
    Bytes data = pattern(300'000), back(data.size(), 0);
    Memory memory(data.size());
    CU_OK(cu.cuMemcpyHtoDAsync(memory.address, data.data(), data.size(), stream));
    CU_OK(cu.cuMemcpyDtoHAsync(back.data(), memory.address, data.size(), stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(back == data);
}

TEST_CASE("pageable memory may be reused as soon as an asynchronous copy from it returns", "[copy]") {
    Gpu gpu;
    Stream stream;
    Bytes data = pattern(100'000), copy = data;
    Memory memory(data.size());
    CU_OK(cu.cuMemcpyHtoDAsync(memory.address, copy.data(), copy.size(), stream));
    std::fill(copy.begin(), copy.end(), 0);
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(memory.read<unsigned char>(data.size()) == data);
}

TEST_CASE("a two-dimensional copy moves a window and nothing around it", "[copy]") {
    Gpu gpu;
    const size_t host_pitch = 37, device_pitch = 64, width = 20, height = 9;
    Bytes data = pattern(host_pitch * 30), around(device_pitch * 30, 0x11);
    Memory memory(around);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = data.data();
    copy.srcPitch = host_pitch;
    copy.srcXInBytes = 5;
    copy.srcY = 3;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = memory.address;
    copy.dstPitch = device_pitch;
    copy.dstXInBytes = 7;
    copy.dstY = 2;
    copy.WidthInBytes = width;
    copy.Height = height;
    Bytes expected = around;
    for (size_t row = 0; row < height; ++row)
        std::memcpy(&expected[(row + 2) * device_pitch + 7], &data[(row + 3) * host_pitch + 5], width);

    SECTION("at once") {
        CU_OK(cu.cuMemcpy2D(&copy));
    }
    SECTION("without alignment") {
        CU_OK(cu.cuMemcpy2DUnaligned(&copy));
    }
    SECTION("in a stream") {
        Stream stream;
        CU_OK(cu.cuMemcpy2DAsync(&copy, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
    }
    SECTION("with unified addresses") {
        copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
        copy.srcDevice = reinterpret_cast<CUdeviceptr>(data.data());
        CU_OK(cu.cuMemcpy2D(&copy));
    }
    CHECK(memory.read<unsigned char>(around.size()) == expected);
}

TEST_CASE("two-dimensional copies go from the device, and within it", "[copy]") {
    Gpu gpu;
    const size_t pitch = 48, width = 33, height = 17;
    Bytes data = pattern(pitch * height), packed(width * height, 0), expected(width * height);
    Memory memory(data), window(width * height);
    for (size_t row = 0; row < height; ++row) std::memcpy(&expected[row * width], &data[row * pitch], width);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = memory.address;
    copy.srcPitch = pitch;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = packed.data();
    copy.dstPitch = width;
    copy.WidthInBytes = width;
    copy.Height = height;
    CU_OK(cu.cuMemcpy2D(&copy));
    CHECK(packed == expected);
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = window.address;
    CU_OK(cu.cuMemcpy2DUnaligned(&copy));
    CHECK(window.read<unsigned char>(packed.size()) == expected);
}

TEST_CASE("a two-dimensional copy wider than its pitch is refused", "[copy]") {
    Gpu gpu;
    Bytes data = pattern(1000);
    Memory memory(1000);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = data.data();
    copy.srcPitch = 10;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = memory.address;
    copy.dstPitch = 32;
    copy.WidthInBytes = 20;
    copy.Height = 4;
    CU_CHECK(cu.cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemcpy2D(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a three-dimensional copy moves slices with their own pitch and height", "[copy]") {
    Gpu gpu;
    const size_t pitch = 20, rows = 7, slices = 5, width = 11, height = 4, depth = 3;
    Bytes data = pattern(pitch * rows * slices), back(data.size(), 0x22), expected(data.size(), 0x22);
    Memory memory(data.size());
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = data.data();
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = memory.address;
    copy.srcPitch = copy.dstPitch = pitch;
    copy.srcHeight = copy.dstHeight = rows;
    copy.WidthInBytes = pitch;
    copy.Height = rows;
    copy.Depth = slices;
    CU_OK(cu.cuMemcpy3D(&copy));
    CHECK(memory.read<unsigned char>(data.size()) == data);
    std::swap(copy.srcMemoryType, copy.dstMemoryType);
    copy.srcDevice = memory.address;
    copy.dstHost = back.data();
    copy.srcXInBytes = 2, copy.srcY = 1, copy.srcZ = 2;
    copy.dstXInBytes = 3, copy.dstY = 3, copy.dstZ = 1;
    copy.WidthInBytes = width, copy.Height = height, copy.Depth = depth;
    CU_OK(cu.cuMemcpy3D(&copy));
    for (size_t z = 0; z < depth; ++z)
        for (size_t y = 0; y < height; ++y)
            std::memcpy(&expected[((z + 1) * rows + y + 3) * pitch + 3], &data[((z + 2) * rows + y + 1) * pitch + 2],
                        width);
    CHECK(back == expected);
}
