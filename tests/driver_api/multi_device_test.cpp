// More than one device, where there are: otherwise these have nothing to say and pass with a note.
#include <algorithm>

#include "gpu.hpp"

using namespace driver_api;

namespace {
bool has_two_devices() {
    int count = 0;
    CU_OK(cu.cuInit(0));
    CU_OK(cu.cuDeviceGetCount(&count));
    if (count < 2) WARN("only one device: nothing tested");
    return count >= 2;
}
}  // namespace

TEST_CASE("devices have contexts, memory and code of their own", "[devices]") {
    if (!has_two_devices()) return;
    Gpu second(1);
    Module second_module;
    Memory there(std::vector<int>{0});
    CUdevice device = -1;
    CU_OK(cu.cuCtxGetDevice(&device));
    CHECK(device == 1);
    {
        Gpu first(0);
        Module module;
        Memory here(std::vector<int>{0});
        CHECK(first.context != second.context);
        CU_OK(launch(module.function("store"), nullptr, here.address, 10));
        CHECK(here.first<int>() == 10);
        int ordinal = -1;
        CU_OK(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, there.address));
        CHECK(ordinal == 1);
    }
    CU_OK(cu.cuCtxSetCurrent(second.context));
    CU_OK(launch(second_module.function("store"), nullptr, there.address, 11));
    CHECK(there.first<int>() == 11);
}

TEST_CASE("memory is copied from one device to another", "[devices]") {
    if (!has_two_devices()) return;
    Gpu second(1);
    Memory there(std::vector<int>(1000, 0));
    {
        Gpu first(0);
        Memory here(std::vector<int>(1000, 77));
        CU_OK(cu.cuMemcpyPeer(there.address, second.context, here.address, first.context, 4000));
        CU_OK(cu.cuCtxSynchronize());
        int access = 99;
        CU_OK(cu.cuDeviceCanAccessPeer(&access, 0, 1));
        CHECK((access == 0 || access == 1));
    }
    CU_OK(cu.cuCtxSetCurrent(second.context));
    CHECK(there.read<int>(1000) == std::vector<int>(1000, 77));
}

TEST_CASE("a copy between two devices waits for what either does, and what they get later waits for it", "[devices]") {
    if (!has_two_devices()) return;
    constexpr size_t ints = 1000, bytes = ints * sizeof(int);
    Gpu second(1);
    Memory there(std::vector<int>(ints, 0));
    Gpu first(0);
    Memory here(std::vector<int>(ints, 1));
    Stream busy, later;
    for (bool names_contexts : {true, false}) {
        CAPTURE(names_contexts);
        CU_OK(cu.cuCtxSetCurrent(first.context));
        {
            Gate gate(busy);
            CU_OK(cu.cuMemsetD32Async(here.address, 5 + names_contexts, ints, busy));
            CU_OK(cu.cuCtxSetCurrent(second.context));
            CU_OK(names_contexts ? cu.cuMemcpyPeer(there.address, second.context, here.address, first.context, bytes)
                                 : cu.cuMemcpyDtoD(there.address, here.address, bytes));
            CU_OK(cu.cuCtxSetCurrent(first.context));
            CU_OK(cu.cuMemsetD32Async(here.address, 7, ints, later));
        }
        CU_OK(cu.cuStreamSynchronize(later));
        CHECK(here.read<int>(ints) == std::vector<int>(ints, 7));
        CU_OK(cu.cuCtxSetCurrent(second.context));
        CHECK(there.read<int>(ints) == std::vector<int>(ints, 5 + names_contexts));
    }
    CU_OK(cu.cuCtxSetCurrent(first.context));
}

TEST_CASE("no time passes between the events of two devices", "[devices]") {
    if (!has_two_devices()) return;
    Gpu first(0);
    Event start;
    CU_OK(cu.cuEventRecord(start, nullptr));
    CU_OK(cu.cuEventSynchronize(start));
    float milliseconds = -1;
    {
        Gpu second(1);
        Event end;
        CU_OK(cu.cuEventRecord(end, nullptr));
        CU_OK(cu.cuEventSynchronize(end));
        CU_CHECK(cu.cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_INVALID_HANDLE);
    }
    CU_OK(cu.cuCtxSetCurrent(first.context));
    CU_OK(cu.cuEventElapsedTime(&milliseconds, start, start));
    CHECK(milliseconds == 0);
}

TEST_CASE("peer copies take pinned and registered memory", "[devices]") {
    if (!has_two_devices()) return;
    const size_t ints = 1000, bytes = ints * sizeof(int);
    Gpu first(0);
    Memory there(std::vector<int>(ints, 1));
    Gpu second(1);
    std::vector<int> registered(ints, 3);
    int* pinned = nullptr;
    CU_OK(cu.cuMemHostAlloc(reinterpret_cast<void**>(&pinned), bytes, 0));
    std::fill_n(pinned, ints, 4);
    CU_OK(cu.cuMemHostRegister(registered.data(), bytes, 0));
    for (int* data : {registered.data(), pinned}) {
        const auto host = reinterpret_cast<CUdeviceptr>(data);
        const int value = *data;
        Stream stream;
        CU_OK(cu.cuMemcpyPeerAsync(there.address, first.context, host, second.context, bytes, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(there.read<int>(ints) == std::vector<int>(ints, value));
        CU_OK(cu.cuMemsetD32(there.address, 2, ints));
        CU_OK(cu.cuMemcpyPeer(host, second.context, there.address, first.context, bytes));
        CU_OK(cu.cuCtxSynchronize());
        CHECK(std::vector<int>(data, data + ints) == std::vector<int>(ints, 2));
    }
    CU_OK(cu.cuMemHostUnregister(registered.data()));
    CU_CHECK(cu.cuMemcpyPeer(there.address, first.context, reinterpret_cast<CUdeviceptr>(registered.data()),
                             second.context, bytes),
             CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMemFreeHost(pinned));
    CU_OK(cu.cuCtxSetCurrent(first.context));  // for what frees behind it
}

TEST_CASE("an array is copied from and to another device's memory", "[devices][arrays]") {
    if (!has_two_devices()) return;
    Gpu first(0);
    Memory from(std::vector<int>(40, 1)), to(40 * sizeof(int));
    Gpu second(1);
    CUarray array = nullptr;
    CUDA_ARRAY_DESCRIPTOR described{10, 4, CU_AD_FORMAT_SIGNED_INT32, 1};
    CU_OK(cu.cuArrayCreate(&array, &described));
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from.address;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = copy.srcArray = array;
    copy.srcPitch = copy.dstPitch = copy.WidthInBytes = 40;
    copy.Height = 4;
    Stream stream;
    CU_OK(cu.cuMemcpy2DAsync(&copy, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    std::swap(copy.srcMemoryType, copy.dstMemoryType);
    copy.dstDevice = to.address;
    CU_OK(cu.cuMemcpy2D(&copy));
    CHECK(to.read<int>(40) == std::vector<int>(40, 1));
    CU_OK(cu.cuArrayDestroy(array));
    CU_OK(cu.cuCtxSetCurrent(first.context));  // for what frees behind it
}

TEST_CASE("nodes of graphs copy and fill other devices' memory", "[devices][graphs]") {
    if (!has_two_devices()) return;
    Gpu first(0);
    Memory there(std::vector<int>(100, 1));
    Gpu second(1);
    Memory here(std::vector<int>(100, 2));
    CUgraph graph = nullptr;
    CUgraphNode fill = nullptr, copy = nullptr;
    CU_OK(cu.cuGraphCreate(&graph, 0));
    CUDA_MEMSET_NODE_PARAMS filled{};
    filled.dst = there.address;
    filled.value = 9;
    filled.elementSize = 4;
    filled.width = 50;
    filled.height = 1;
    CU_OK(cu.cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &filled, second.context));
    CUDA_MEMCPY3D copied{};
    copied.srcMemoryType = copied.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copied.srcDevice = there.address;
    copied.dstDevice = here.address;
    copied.WidthInBytes = 100 * sizeof(int);
    copied.Height = copied.Depth = 1;
    CU_OK(cu.cuGraphAddMemcpyNode(&copy, graph, &fill, 1, &copied, second.context));
    CUgraphExec exec = nullptr;
    CU_OK(cu.cuGraphInstantiate(&exec, graph, 0));
    Stream stream;
    CU_OK(cu.cuGraphLaunch(exec, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    std::vector<int> expected(100, 1);
    std::fill_n(expected.begin(), 50, 9);
    CHECK(here.read<int>(100) == expected);
    CU_OK(cu.cuGraphExecDestroy(exec));
    CU_OK(cu.cuGraphDestroy(graph));
    CU_OK(cu.cuCtxSetCurrent(first.context));  // for what frees behind it
}
