// Arrays, mipmapped arrays, and copies to and from them.
#include <algorithm>
#include <numeric>

#include "arrays.hpp"

using namespace driver_api;

namespace {

std::vector<float> numbers(size_t count, float first = 0) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
}

}  // namespace

TEST_CASE("an array is what its description says", "[array]") {
    Gpu gpu;
    Array flat(described(17, 5));
    CUDA_ARRAY_DESCRIPTOR shown{};
    CU_OK(cu.cuArrayGetDescriptor(&shown, flat));
    CHECK(shown.Width == 17);
    CHECK(shown.Height == 5);
    CHECK(shown.Format == CU_AD_FORMAT_FLOAT);
    CHECK(shown.NumChannels == 1);
    Array layered(described(8, 4, 3, CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST));
    CUDA_ARRAY3D_DESCRIPTOR whole{};
    CU_OK(cu.cuArray3DGetDescriptor(&whole, layered));
    CHECK(whole.Depth == 3);
    CHECK(whole.Flags == (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST));
    CU_CHECK(cu.cuArrayGetDescriptor(nullptr, flat), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an array that cannot be is refused", "[array]") {
    Gpu gpu;
    CUarray array = nullptr;
    auto create = [&](const CUDA_ARRAY3D_DESCRIPTOR& description) { return cu.cuArray3DCreate(&array, &description); };
    CU_CHECK(create(described(0, 0)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(create(described(8, 0, 8)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(create(described(8, 8, 6, CUDA_ARRAY3D_CUBEMAP, 3)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(create(described(8, 4, 6, CUDA_ARRAY3D_CUBEMAP)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(create(described(8, 8, 5, CUDA_ARRAY3D_CUBEMAP)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(create(described(8, 8, 0, CUDA_ARRAY3D_LAYERED)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(create(described(8, 8, 0, 1u << 30)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(create(described(size_t(gpu.attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH)) + 1, 0)),
             CUDA_ERROR_INVALID_VALUE);
    auto most = [&](CUdevice_attribute limit) { return static_cast<size_t>(gpu.attribute(limit)); };
    const size_t wide = most(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH),
                 high = most(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT),
                 deep = most(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH);
    CU_CHECK(create(described(wide + 1, high + 1)), CUDA_ERROR_INVALID_VALUE);  // whether the memory is there or not
    CU_CHECK(create(described(size_t{1} << 40, size_t{1} << 20)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(create(described(deep + 1, deep + 1, deep + 1)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(create(described(8, 8, 6, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER)), CUDA_ERROR_INVALID_VALUE);
    for (unsigned format : {0u, 0x52u, 0xdeadbeefu}) {
        auto unknown = described(8, 8);
        unknown.Format = static_cast<CUarray_format>(format);
        CU_CHECK(create(unknown), CUDA_ERROR_INVALID_VALUE);
    }
    CU_CHECK(cu.cuArray3DCreate(&array, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuArrayDestroy(nullptr), CUDA_ERROR_INVALID_HANDLE);
    CUarray plane = nullptr;
    Array flat(described(8, 8));
    CU_CHECK(cu.cuArrayGetPlane(&plane, flat, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an array takes memory until it is destroyed", "[array][full]") {
    Gpu gpu;
    size_t before = 0, between = 0, after = 0, total = 0;
    CU_OK(cu.cuMemGetInfo(&before, &total));
    {
        Array large(described(4096, 4096));
        CU_OK(cu.cuMemGetInfo(&between, &total));
    }
    CU_OK(cu.cuMemGetInfo(&after, &total));
    CHECK(between + (size_t{64} << 20) <= before);
    CHECK(after >= between + (size_t{64} << 20));
    CUarray array = nullptr;
    auto all = described(16384, 16384, 16384, 0, 4);
    CU_CHECK(cu.cuArray3DCreate(&array, &all), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("what is copied into an array comes back, line by line", "[array][copy]") {
    Gpu gpu;
    Array line(described(100, 0)), other(described(100, 0));
    auto values = numbers(100);
    std::vector<float> back(100);
    CU_OK(cu.cuMemcpyHtoA(line, 0, values.data(), 400));
    CU_OK(cu.cuMemcpyAtoA(other, 40, line, 0, 360));
    CU_OK(cu.cuMemcpyAtoH(back.data(), other, 40, 360));
    for (size_t i = 0; i < 90; ++i) REQUIRE(back[i] == values[i]);
    Memory memory(400);
    CU_OK(cu.cuMemcpyAtoD(memory.address, line, 0, 400));
    CHECK(memory.read<float>(100) == values);
    CU_OK(cu.cuMemcpyDtoA(other, 4, memory.address, 396));
    CU_OK(cu.cuMemcpyAtoH(back.data(), other, 4, 396));
    CHECK(back[98] == 98);
    CU_CHECK(cu.cuMemcpyHtoA(line, 4, values.data(), 400), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMemcpyHtoA(line, 2, values.data(), 4));  // from the middle of a texel on
}

TEST_CASE("boxes go to, from and between arrays", "[array][copy]") {
    Gpu gpu;
    Array volume(described(6, 5, 4)), other(described(6, 5, 4));
    auto values = numbers(120);
    CUDA_MEMCPY3D copy{};
    copy.WidthInBytes = 24, copy.Height = 5, copy.Depth = 4;
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = values.data(), copy.srcPitch = 24, copy.srcHeight = 5;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY, copy.dstArray = volume;
    CU_OK(cu.cuMemcpy3D(&copy));
    CUDA_MEMCPY3D part{};
    part.WidthInBytes = 8, part.Height = 3, part.Depth = 2;
    part.srcMemoryType = CU_MEMORYTYPE_ARRAY, part.srcArray = volume, part.srcXInBytes = 4, part.srcY = 1,
    part.srcZ = 2;
    part.dstMemoryType = CU_MEMORYTYPE_ARRAY, part.dstArray = other, part.dstXInBytes = 16, part.dstY = 2,
    part.dstZ = 1;
    CU_OK(cu.cuMemcpy3D(&part));
    Memory memory(48);
    CUDA_MEMCPY3D out{};
    out.WidthInBytes = 8, out.Height = 3, out.Depth = 2;
    out.srcMemoryType = CU_MEMORYTYPE_ARRAY, out.srcArray = other, out.srcXInBytes = 16, out.srcY = 2, out.srcZ = 1;
    out.dstMemoryType = CU_MEMORYTYPE_DEVICE, out.dstDevice = memory.address, out.dstPitch = 8, out.dstHeight = 3;
    CU_OK(cu.cuMemcpy3DAsync(&out, nullptr));
    auto got = memory.read<float>(12);
    for (size_t z = 0; z < 2; ++z)
        for (size_t y = 0; y < 3; ++y)
            for (size_t x = 0; x < 2; ++x) CHECK(got[(z * 3 + y) * 2 + x] == values[((z + 2) * 5 + y + 1) * 6 + x + 1]);
    part.dstZ = 3;
    CU_CHECK(cu.cuMemcpy3D(&part), CUDA_ERROR_INVALID_VALUE);
    part.dstZ = 1, part.dstArray = nullptr;
    CU_CHECK(cu.cuMemcpy3D(&part), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("boxes go between the arrays of two devices", "[array][copy][devices]") {
    int count = 0;
    CU_OK(cu.cuInit(0));
    CU_OK(cu.cuDeviceGetCount(&count));
    if (count < 2) {
        WARN("only one device: nothing tested");
        return;
    }
    const size_t width = 8, height = 4;
    std::vector<float> values(width * height), back(width * height);
    std::iota(values.begin(), values.end(), 1.f);
    Gpu first(0);
    Array there(described(width, height));
    Gpu second(1);
    Array here(described(width, height));
    for (bool async : {false, true}) {
        std::fill(back.begin(), back.end(), 0.f);
        const auto copy = [&](CUDA_MEMCPY3D_PEER box) {
            box.WidthInBytes = width * sizeof(float), box.Height = height, box.Depth = 1;
            box.srcPitch = box.dstPitch = width * sizeof(float);
            CU_OK(async ? cu.cuMemcpy3DPeerAsync(&box, nullptr) : cu.cuMemcpy3DPeer(&box));
        };
        CUDA_MEMCPY3D_PEER in{}, over{}, out{};
        in.srcMemoryType = CU_MEMORYTYPE_HOST, in.srcHost = values.data(), in.srcContext = second.context;
        in.dstMemoryType = CU_MEMORYTYPE_ARRAY, in.dstArray = there, in.dstContext = first.context;
        copy(in);
        over.srcMemoryType = over.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        over.srcArray = there, over.srcContext = first.context;
        over.dstArray = here, over.dstContext = second.context;
        copy(over);
        out.srcMemoryType = CU_MEMORYTYPE_ARRAY, out.srcArray = here, out.srcContext = second.context;
        out.dstMemoryType = CU_MEMORYTYPE_HOST, out.dstHost = back.data(), out.dstContext = second.context;
        copy(out);
        CU_OK(cu.cuCtxSynchronize());
        CHECK(back == values);
        for (auto& value : values) value += 100;
    }
}

TEST_CASE("a large array arrives whole, in its stream's order", "[array][copy]") {
    Gpu gpu;
    Stream stream;
    constexpr size_t width = 1500, height = 1001;
    Array array(described(width, height));
    auto values = numbers(width * height);
    std::vector<float> back(width * height);
    CUDA_MEMCPY2D to{};
    to.WidthInBytes = width * 4, to.Height = height;
    to.srcMemoryType = CU_MEMORYTYPE_HOST, to.srcHost = values.data(), to.srcPitch = width * 4;
    to.dstMemoryType = CU_MEMORYTYPE_ARRAY, to.dstArray = array;
    CUDA_MEMCPY2D from{};
    from.WidthInBytes = width * 4, from.Height = height;
    from.srcMemoryType = CU_MEMORYTYPE_ARRAY, from.srcArray = array;
    from.dstMemoryType = CU_MEMORYTYPE_HOST, from.dstHost = back.data(), from.dstPitch = width * 4;
    CU_OK(cu.cuMemcpy2DAsync(&to, stream));
    CU_OK(cu.cuMemcpy2DAsync(&from, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(back == values);
}

TEST_CASE("a mipmap's levels shrink to one texel", "[array]") {
    Gpu gpu;
    CUmipmappedArray mipmap = nullptr;
    auto description = described(20, 6);
    CU_OK(cu.cuMipmappedArrayCreate(&mipmap, &description, 9));  // no more than there can be: 20, 10, 5, 2, 1
    CUarray level = nullptr, again = nullptr;
    CUDA_ARRAY_DESCRIPTOR shown{};
    CU_OK(cu.cuMipmappedArrayGetLevel(&level, mipmap, 2));
    CU_OK(cu.cuMipmappedArrayGetLevel(&again, mipmap, 2));
    CHECK(level == again);
    CU_OK(cu.cuArrayGetDescriptor(&shown, level));
    CHECK(shown.Width == 5);
    CHECK(shown.Height == 1);
    auto values = numbers(5);
    std::vector<float> back(5);
    CU_OK(cu.cuMemcpyHtoA(level, 0, values.data(), 20));
    CU_OK(cu.cuMemcpyAtoH(back.data(), level, 0, 20));
    CHECK(back == values);
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = level;
    CUsurfObject surface = 0;
    CU_OK(cu.cuSurfObjectCreate(&surface, &resource));  // though the mipmap was not made for it
    CU_OK(cu.cuSurfObjectDestroy(surface));
    CU_CHECK(cu.cuMipmappedArrayGetLevel(&level, mipmap, 5), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuArrayDestroy(again));  // of no effect
    CU_OK(cu.cuMemcpyAtoH(back.data(), again, 0, 20));
    CHECK(back == values);
    CU_OK(cu.cuMipmappedArrayDestroy(mipmap));
    CU_CHECK(cu.cuArrayGetDescriptor(&shown, again), CUDA_ERROR_INVALID_HANDLE);
    CU_CHECK(cu.cuMipmappedArrayDestroy(mipmap), CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a captured copy into an array happens at each launch", "[array][graph]") {
    Gpu gpu;
    Stream stream;
    Array array(described(16, 2));
    auto values = numbers(32);
    Memory memory(values), result(128);
    auto in_array = [&](bool to) {
        CUDA_MEMCPY2D copy{};
        copy.WidthInBytes = 64, copy.Height = 2;
        copy.srcMemoryType = to ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_ARRAY;
        copy.dstMemoryType = to ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = memory.address, copy.dstDevice = result.address;
        copy.srcArray = copy.dstArray = array;
        copy.srcPitch = copy.dstPitch = 64;
        return copy;
    };
    auto to = in_array(true), from = in_array(false);
    CU_OK(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU_OK(cu.cuMemcpy2DAsync(&to, stream));
    CU_OK(cu.cuMemcpy2DAsync(&from, stream));
    CUgraph graph = nullptr;
    CU_OK(cu.cuStreamEndCapture(stream, &graph));
    CUgraphExec exec = nullptr;
    CU_OK(cu.cuGraphInstantiate(&exec, graph, 0));
    for (float first : {0.0f, 500.0f}) {
        auto fresh = numbers(32, first);
        CU_OK(cu.cuMemcpyHtoD(memory.address, fresh.data(), 128));
        CU_OK(cu.cuGraphLaunch(exec, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(result.read<float>(32) == fresh);
    }
    CU_OK(cu.cuGraphExecDestroy(exec));
    CU_OK(cu.cuGraphDestroy(graph));
}

TEST_CASE("a graph's node copies a box of an array", "[array][graph]") {
    Gpu gpu;
    Array array(described(6, 5, 4));
    auto values = numbers(120);
    Memory memory(values), result(480);
    CUgraph graph = nullptr;
    CU_OK(cu.cuGraphCreate(&graph, 0));
    CUDA_MEMCPY3D to{};
    to.WidthInBytes = 24, to.Height = 5, to.Depth = 4;
    to.srcMemoryType = CU_MEMORYTYPE_DEVICE, to.srcDevice = memory.address, to.srcPitch = 24, to.srcHeight = 5;
    to.dstMemoryType = CU_MEMORYTYPE_ARRAY, to.dstArray = array;
    CUDA_MEMCPY3D from{};
    from.WidthInBytes = 16, from.Height = 4, from.Depth = 3;
    from.srcMemoryType = CU_MEMORYTYPE_ARRAY, from.srcArray = array, from.srcXInBytes = 8, from.srcY = from.srcZ = 1;
    from.dstMemoryType = CU_MEMORYTYPE_DEVICE, from.dstDevice = result.address, from.dstPitch = 16, from.dstHeight = 4;
    CUgraphNode first = nullptr, second = nullptr;
    CU_OK(cu.cuGraphAddMemcpyNode(&first, graph, nullptr, 0, &to, gpu.context));
    CU_OK(cu.cuGraphAddMemcpyNode(&second, graph, &first, 1, &from, gpu.context));
    CUDA_MEMCPY3D shown{};
    CU_OK(cu.cuGraphMemcpyNodeGetParams(second, &shown));
    CHECK(shown.srcMemoryType == CU_MEMORYTYPE_ARRAY);
    CHECK(shown.srcArray == from.srcArray);
    CUgraphExec exec = nullptr;
    CU_OK(cu.cuGraphInstantiate(&exec, graph, 0));
    CU_OK(cu.cuGraphLaunch(exec, nullptr));
    CU_OK(cu.cuCtxSynchronize());
    auto got = result.read<float>(48);
    for (size_t z = 0; z < 3; ++z)
        for (size_t y = 0; y < 4; ++y)
            for (size_t x = 0; x < 4; ++x)
                REQUIRE(got[(z * 4 + y) * 4 + x] == values[((z + 1) * 5 + y + 1) * 6 + x + 2]);
    from.srcZ = 2;
    CU_CHECK(cu.cuGraphAddMemcpyNode(&second, graph, &first, 1, &from, gpu.context), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuGraphExecDestroy(exec));
    CU_OK(cu.cuGraphDestroy(graph));
}

TEST_CASE("an array is copied from and to memory that the program and the GPU share", "[array][managed][pinned]") {
    Gpu gpu;
    Stream stream(CU_STREAM_NON_BLOCKING);
    constexpr size_t width = 60, height = 40, bytes = width * height * sizeof(float);
    const bool managed = GENERATE(true, false);
    CUdeviceptr address = 0;
    void* mapped = nullptr;
    if (managed)
        CU_OK(cu.cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL));
    else
        CU_OK(cu.cuMemHostAlloc(&mapped, bytes, CU_MEMHOSTALLOC_DEVICEMAP));
    if (mapped) address = reinterpret_cast<CUdeviceptr>(mapped);
    auto* shared = reinterpret_cast<float*>(address);
    Array array(described(width, height));
    CUDA_MEMCPY2D in{}, out{};
    in.srcMemoryType = out.dstMemoryType = CU_MEMORYTYPE_UNIFIED, in.srcDevice = out.dstDevice = address;
    in.dstMemoryType = out.srcMemoryType = CU_MEMORYTYPE_ARRAY, in.dstArray = out.srcArray = array;
    in.WidthInBytes = out.WidthInBytes = width * sizeof(float), in.Height = out.Height = height;
    for (float first : {1.0f, 2.0f}) {
        const auto values = numbers(width * height, first);
        std::copy(values.begin(), values.end(), shared);
        CU_OK(cu.cuMemcpy2DAsync(&in, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        std::fill_n(shared, width * height, 0.0f);
        CU_OK(cu.cuMemcpy2DAsync(&out, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(std::vector<float>(shared, shared + width * height) == values);
    }
    CU_OK(managed ? cu.cuMemFree(address) : cu.cuMemFreeHost(mapped));
}
