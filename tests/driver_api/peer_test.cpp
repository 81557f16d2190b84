// Memory of one device in the hands of another: copies in whatever context, and kernels with peer access. Needs two
// devices; otherwise these have nothing to say and pass with a note.
#include <algorithm>

#include "gpu.hpp"

using namespace driver_api;

namespace {

bool two_devices_are_there() {
    int count = 0;
    CU_OK(cu.cuInit(0));
    CU_OK(cu.cuDeviceGetCount(&count));
    if (count < 2) WARN("only one device: nothing tested");
    return count >= 2;
}

bool are_peers() {
    int can = 0;
    if (!two_devices_are_there()) return false;
    CU_OK(cu.cuDeviceCanAccessPeer(&can, 1, 0));
    if (can == 0) WARN("the devices cannot reach each other: nothing tested");
    return can != 0;
}

// Memory on both devices; the second device's context is current.
struct TwoDevices {
    TwoDevices() { CU_OK(cu.cuCtxSetCurrent(second.context)); }
    ~TwoDevices() { CU_OK(cu.cuCtxSetCurrent(first.context)); }  // for what frees behind it

    Gpu first{0};
    Memory there{std::vector<int>(ints, 1)};
    Gpu second{1};
    Memory here{std::vector<int>(ints, 2)};
    static constexpr size_t ints = 1000, bytes = ints * sizeof(int);
};

struct PinnedInts {
    PinnedInts() { CU_OK(cu.cuMemHostAlloc(reinterpret_cast<void**>(&data), TwoDevices::bytes, 0)); }
    ~PinnedInts() { cu.cuMemFreeHost(data); }
    PinnedInts(const PinnedInts&) = delete;
    PinnedInts& operator=(const PinnedInts&) = delete;
    bool all(int value) const {
        return std::all_of(data, data + TwoDevices::ints, [&](int one) { return one == value; });
    }
    int* data = nullptr;
};

std::vector<int> ints_of(int value) {
    return std::vector<int>(TwoDevices::ints, value);
}

}  // namespace

TEST_CASE("sets take any device's memory whatever context is current", "[devices]") {
    if (!two_devices_are_there()) return;
    TwoDevices both;
    Stream stream;
    const auto there = both.there.address;
    auto expected = ints_of(1);
    SECTION("at once") {
        CU_OK(cu.cuMemsetD8(there, 0x11, 4));
        CU_OK(cu.cuMemsetD16(there + 4, 0x2222, 2));
        CU_OK(cu.cuMemsetD32(there + 8, 0x33333333, 1));
        CU_OK(cu.cuMemsetD2D8(there + 12, 8, 0x44, 4, 2));
        expected[0] = 0x11111111, expected[1] = 0x22222222, expected[2] = 0x33333333;
        expected[3] = expected[5] = 0x44444444;
        CU_OK(cu.cuCtxSynchronize());
    }
    SECTION("in the order of a stream") {
        CU_OK(cu.cuMemsetD32Async(there, 5, 2, stream));
        CU_OK(cu.cuMemcpyDtoDAsync(both.here.address, there, 8, stream));
        CU_OK(cu.cuMemsetD32Async(there, 6, 1, stream));
        CU_OK(cu.cuMemsetD2D32Async(there + 8, 8, 7, 1, 2, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(both.here.read<int>(2) == std::vector<int>{5, 5});
        expected[0] = 6, expected[1] = 5, expected[2] = 7, expected[4] = 7;
    }
    CHECK((both.there.read<int>(TwoDevices::ints) == expected));
}

TEST_CASE("copies take any device's memory whatever context is current", "[devices]") {
    if (!two_devices_are_there()) return;
    TwoDevices both;
    const auto there = both.there.address, here = both.here.address;
    const auto bytes = TwoDevices::bytes;
    std::vector<int> host(TwoDevices::ints);
    SECTION("to the host") {
        CU_OK(cu.cuMemcpyDtoH(host.data(), there, bytes));
        CHECK(host == ints_of(1));
    }
    SECTION("from the host") {
        auto three = ints_of(3);
        CU_OK(cu.cuMemcpyHtoD(there, three.data(), bytes));
        CHECK(both.there.read<int>(TwoDevices::ints) == three);
    }
    SECTION("as the addresses tell") {
        auto four = ints_of(4);
        CU_OK(cu.cuMemcpy(there, reinterpret_cast<CUdeviceptr>(four.data()), bytes));
        CU_OK(cu.cuMemcpy(reinterpret_cast<CUdeviceptr>(host.data()), there, bytes));
        CHECK(host == four);
        CU_OK(cu.cuMemcpy(here, there, bytes));
        CHECK(both.here.read<int>(TwoDevices::ints) == four);
    }
    SECTION("from the other device") {
        CU_OK(cu.cuMemcpyDtoD(here, there, bytes));
        CHECK(both.here.read<int>(TwoDevices::ints) == ints_of(1));
    }
    SECTION("to the other device") {
        CU_OK(cu.cuMemcpyDtoD(there, here, bytes));
        CHECK(both.there.read<int>(TwoDevices::ints) == ints_of(2));
    }
    SECTION("within the other device") {
        CU_OK(cu.cuMemcpyHtoD(there, ints_of(5).data(), bytes / 2));
        CU_OK(cu.cuMemcpyDtoD(there + bytes / 2, there, bytes / 2));
        CHECK(both.there.read<int>(TwoDevices::ints) == ints_of(5));
    }
    SECTION("large") {
        CU_OK(cu.cuCtxSetCurrent(both.first.context));
        std::vector<int> much(size_t{3} << 20), back(much.size());
        for (size_t i = 0; i < much.size(); ++i) much[i] = int(i);
        Memory large(much.size() * sizeof(int));
        CU_OK(cu.cuCtxSynchronize());  // it is being filled
        CU_OK(cu.cuCtxSetCurrent(both.second.context));
        CU_OK(cu.cuMemcpyHtoD(large.address, much.data(), much.size() * sizeof(int)));
        CU_OK(cu.cuMemcpyDtoH(back.data(), large.address, back.size() * sizeof(int)));
        CHECK((back == much));  // too much to print
        CU_OK(cu.cuCtxSetCurrent(both.first.context));
    }
    // No earlier call has failed behind our back.
    CU_OK(cu.cuCtxSynchronize());
}

TEST_CASE("rectangles are copied from and to any device", "[devices]") {
    if (!two_devices_are_there()) return;
    TwoDevices both;
    std::vector<int> host(30, 9);
    auto rectangle = [&](CUdeviceptr from, CUdeviceptr to) {
        CUDA_MEMCPY2D copy{};
        copy.srcMemoryType = from ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        copy.dstMemoryType = to ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        copy.srcDevice = from;
        copy.dstDevice = to;
        copy.srcHost = copy.dstHost = host.data();
        copy.srcPitch = from ? 100 : 40;
        copy.dstPitch = to ? 100 : 40;
        copy.WidthInBytes = 20;
        copy.Height = 3;
        return copy;
    };
    auto expected = [](int inside, int outside) {
        std::vector<int> rows(75, outside);
        for (size_t row = 0; row < 3; ++row) std::fill_n(rows.begin() + long(row) * 25, 5, inside);
        return rows;
    };
    auto up = rectangle(0, both.there.address), across = rectangle(both.there.address, both.here.address),
         down = rectangle(both.there.address, 0);
    CU_OK(cu.cuMemcpy2D(&up));
    CHECK(both.there.read<int>(75) == expected(9, 1));
    CU_OK(cu.cuMemcpy2D(&across));
    CHECK(both.here.read<int>(75) == expected(9, 2));
    CU_OK(cu.cuCtxSetCurrent(both.first.context));
    CU_OK(cu.cuMemsetD32(both.there.address, 8, TwoDevices::ints));
    CU_OK(cu.cuCtxSynchronize());
    CU_OK(cu.cuCtxSetCurrent(both.second.context));
    Stream stream;
    CU_OK(cu.cuMemcpy2DAsync(&down, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(std::count(host.begin(), host.end(), 8) == 15);
}

TEST_CASE("an asynchronous copy of another device's memory keeps its stream's order", "[devices]") {
    if (!two_devices_are_there()) return;
    TwoDevices both;
    for (unsigned flags : {CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING}) {
        Stream stream(flags);
        PinnedInts source, result;
        std::fill_n(source.data, TwoDevices::ints, 7);
        std::fill_n(result.data, TwoDevices::ints, -1);
        Gate gate(stream);
        CU_OK(cu.cuMemcpyHtoDAsync(both.here.address, source.data, TwoDevices::bytes, stream));
        CU_OK(cu.cuMemcpyDtoDAsync(both.there.address, both.here.address, TwoDevices::bytes, stream));
        CU_OK(cu.cuMemcpyDtoHAsync(result.data, both.there.address, TwoDevices::bytes, stream));
        CU_CHECK(cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
        CHECK(result.all(-1));
        gate.open();
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(result.all(7));
        // And what comes behind sees what it wrote.
        std::fill_n(source.data, TwoDevices::ints, 8);
        CU_OK(cu.cuMemcpyHtoDAsync(both.there.address, source.data, TwoDevices::bytes, stream));
        CU_OK(cu.cuMemcpyDtoDAsync(both.here.address, both.there.address, TwoDevices::bytes, stream));
        CU_OK(cu.cuMemcpyDtoHAsync(result.data, both.here.address, TwoDevices::bytes, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(result.all(8));
    }
}

TEST_CASE("peer copies name both contexts and take a stream of either", "[devices]") {
    if (!two_devices_are_there()) return;
    TwoDevices both;
    CU_OK(cu.cuMemcpyPeer(both.there.address, both.first.context, both.here.address, both.second.context, 40));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(both.there.read<int>(11)[9] == 2);
    CHECK(both.there.read<int>(11)[10] == 1);
    for (auto* gpu : {&both.first, &both.second}) {
        CU_OK(cu.cuCtxSetCurrent(gpu->context));
        Stream stream;
        CU_OK(cu.cuMemcpyPeerAsync(both.here.address, both.second.context, both.there.address, both.first.context,
                                   TwoDevices::bytes, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(both.here.read<int>(11)[10] == 1);
        CU_OK(cu.cuMemcpyHtoD(both.here.address, ints_of(2).data(), TwoDevices::bytes));
    }
    CU_OK(cu.cuCtxSetCurrent(both.second.context));
}

// Each launch uses the memory as the captured call could.
TEST_CASE("a graph copies other devices' memory in the stream it was captured from", "[devices]") {
    if (!two_devices_are_there()) return;
    TwoDevices both;
    Memory more(ints_of(3));
    CU_OK(cu.cuCtxSetCurrent(both.first.context));
    Memory beside(ints_of(4));
    CU_OK(cu.cuCtxSetCurrent(both.second.context));
    Stream stream(CU_STREAM_NON_BLOCKING);
    CU_OK(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU_OK(cu.cuMemcpyDtoDAsync(beside.address, both.there.address, TwoDevices::bytes, stream));
    CU_OK(cu.cuMemcpyDtoDAsync(more.address, both.there.address, TwoDevices::bytes, stream));
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CU_OK(cu.cuStreamEndCapture(stream, &graph));
    CU_OK(cu.cuGraphInstantiate(&exec, graph, 0));
    CU_OK(cu.cuGraphLaunch(exec, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(beside.read<int>(TwoDevices::ints) == ints_of(1));
    CHECK(more.read<int>(TwoDevices::ints) == ints_of(1));
    CU_OK(cu.cuGraphExecDestroy(exec));
    CU_OK(cu.cuGraphDestroy(graph));
}

TEST_CASE("a copy that names two devices' contexts is not captured", "[devices]") {
    if (!two_devices_are_there()) return;
    TwoDevices both;
    Stream stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph = nullptr;
    CU_OK(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU_CHECK(cu.cuMemcpyPeerAsync(both.here.address, both.second.context, both.there.address, both.first.context,
                                  TwoDevices::bytes, stream),
             CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CU_CHECK(cu.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(graph == nullptr);
    CU_OK(cu.cuMemcpyPeerAsync(both.here.address, both.second.context, both.there.address, both.first.context,
                               TwoDevices::bytes, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(both.here.read<int>(TwoDevices::ints) == ints_of(1));
}

TEST_CASE("memory of another device's pool is copied once the pool is open, or by naming both contexts", "[devices]") {
    if (!are_peers()) return;
    TwoDevices both;
    CU_OK(cu.cuCtxSetCurrent(both.first.context));
    CUmemoryPool pool = nullptr;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, both.first.device};
    CU_OK(cu.cuMemPoolCreate(&pool, &properties));
    CUdeviceptr pooled = 0;
    CU_OK(cu.cuMemAllocFromPoolAsync(&pooled, TwoDevices::bytes, pool, nullptr));
    CU_OK(cu.cuMemsetD32Async(pooled, 7, TwoDevices::ints, nullptr));
    CU_OK(cu.cuCtxSynchronize());
    CU_OK(cu.cuCtxSetCurrent(both.second.context));
    Stream stream(CU_STREAM_NON_BLOCKING);
    const auto here = both.here.address;
    const auto bytes = TwoDevices::bytes;
    SECTION("closed") {
        CU_CHECK(cu.cuMemcpyDtoDAsync(here, pooled, bytes, stream), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuMemcpyAsync(pooled, here, bytes, stream), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuMemcpy(here, pooled, bytes), CUDA_ERROR_INVALID_VALUE);
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(both.here.read<int>(TwoDevices::ints) == ints_of(2));
    }
    SECTION("by both contexts") {
        CU_OK(cu.cuMemcpyPeerAsync(here, both.second.context, pooled, both.first.context, bytes, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(both.here.read<int>(TwoDevices::ints) == ints_of(7));
        CU_OK(cu.cuMemcpyHtoD(here, ints_of(2).data(), bytes));
        CUDA_MEMCPY3D_PEER box{};
        box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        box.srcDevice = pooled, box.srcContext = both.first.context;
        box.dstDevice = here, box.dstContext = both.second.context;
        box.srcPitch = box.dstPitch = box.WidthInBytes = bytes;
        box.srcHeight = box.dstHeight = box.Height = box.Depth = 1;
        CU_OK(cu.cuMemcpy3DPeerAsync(&box, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(both.here.read<int>(TwoDevices::ints) == ints_of(7));
    }
    SECTION("open") {
        const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, both.second.device},
                                     CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CU_OK(cu.cuMemPoolSetAccess(pool, &access, 1));
        CU_OK(cu.cuMemcpyDtoDAsync(here, pooled, bytes, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(both.here.read<int>(TwoDevices::ints) == ints_of(7));
    }
    CU_OK(cu.cuMemFree(pooled));
    CU_OK(cu.cuMemPoolDestroy(pool));
}

TEST_CASE("with peer access kernels use memory that is there and that comes later", "[devices]") {
    if (!are_peers()) return;
    TwoDevices both;
    Module module;
    CU_CHECK(cu.cuCtxEnablePeerAccess(both.first.context, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuCtxDisablePeerAccess(both.first.context), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    CU_OK(cu.cuCtxEnablePeerAccess(both.first.context, 0));
    CU_CHECK(cu.cuCtxEnablePeerAccess(both.first.context, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    CU_OK(launch(module.function("store"), nullptr, both.there.address, 21));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(both.there.first<int>() == 21);

    CU_OK(cu.cuCtxSetCurrent(both.first.context));
    {
        Memory large(size_t{16} << 20), small(size_t{64});
        CU_OK(cu.cuMemsetD32(large.address, 0, 16));
        CU_OK(cu.cuCtxSynchronize());
        CU_OK(cu.cuCtxSetCurrent(both.second.context));
        for (auto address : {large.address, small.address}) {
            int value = 0;
            CU_OK(launch(module.function("store"), nullptr, address, 22));
            CU_OK(cu.cuCtxSynchronize());
            CU_OK(cu.cuMemcpyDtoH(&value, address, sizeof(value)));
            CHECK(value == 22);
        }
        CU_OK(cu.cuCtxSetCurrent(both.first.context));
    }
    CU_OK(cu.cuCtxSetCurrent(both.second.context));
    CU_OK(cu.cuCtxDisablePeerAccess(both.first.context));
    CU_CHECK(cu.cuCtxDisablePeerAccess(both.first.context), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    CU_CHECK(cu.cuCtxEnablePeerAccess(both.second.context, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);  // that is itself
}

FRESH_PROCESS_TEST_CASE("without peer access a kernel that touches another device's memory faults", "[devices]") {
    if (!are_peers()) return;
    TwoDevices both;
    Module module;
    CU_OK(launch(module.function("store"), nullptr, both.there.address, 1));
    CU_CHECK(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    std::_Exit(0);  // nothing can be freed any more
}

FRESH_PROCESS_TEST_CASE("peer access ends when it is disabled", "[devices]") {
    if (!are_peers()) return;
    TwoDevices both;
    Module module;
    CU_OK(cu.cuCtxEnablePeerAccess(both.first.context, 0));
    CU_OK(launch(module.function("store"), nullptr, both.there.address, 1));
    CU_OK(cu.cuCtxSynchronize());
    CU_OK(cu.cuCtxDisablePeerAccess(both.first.context));
    CU_OK(launch(module.function("store"), nullptr, both.there.address, 1));
    CU_CHECK(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    std::_Exit(0);
}

TEST_CASE("a pool is opened to another device by itself", "[devices]") {
    if (!are_peers()) return;
    TwoDevices both;
    Module module;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, both.first.device};
    CUmemoryPool pool = nullptr;
    CU_OK(cu.cuMemPoolCreate(&pool, &properties));
    CUmemLocation other{CU_MEM_LOCATION_TYPE_DEVICE, both.second.device};
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_READ;
    CU_OK(cu.cuMemPoolGetAccess(&access, pool, &other));
    CHECK(access == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CUmemAccessDesc wanted{other, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CU_OK(cu.cuMemPoolSetAccess(pool, &wanted, 1));
    CU_OK(cu.cuMemPoolGetAccess(&access, pool, &other));
    CHECK(access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

    CU_OK(cu.cuCtxSetCurrent(both.first.context));
    CUdeviceptr address = 0;
    {
        Stream stream;
        CU_OK(cu.cuMemAllocFromPoolAsync(&address, 4096, pool, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
    }
    CU_OK(cu.cuCtxSetCurrent(both.second.context));
    CU_OK(launch(module.function("store"), nullptr, address, 31));
    CU_OK(cu.cuCtxSynchronize());
    int value = 0;
    CU_OK(cu.cuCtxSetCurrent(both.first.context));
    CU_OK(cu.cuMemcpyDtoH(&value, address, sizeof(value)));
    CHECK(value == 31);
    CU_OK(cu.cuMemFree(address));
    CU_OK(cu.cuMemPoolDestroy(pool));
    CU_OK(cu.cuCtxSetCurrent(both.second.context));
}

TEST_CASE("memory of a pool is on the pool's device, whichever the stream's is", "[devices]") {
    if (!two_devices_are_there()) return;
    TwoDevices both;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, both.first.device};
    CUmemoryPool pool = nullptr;
    CU_OK(cu.cuMemPoolCreate(&pool, &properties));
    Stream of_second;
    auto ordinal_of = [](CUdeviceptr address) {
        int ordinal = -1;
        CU_OK(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
        return ordinal;
    };
    CUdeviceptr address = 0, of_stream = 0;
    CU_OK(cu.cuMemAllocFromPoolAsync(&address, 4096, pool, of_second));
    CHECK(ordinal_of(address) == both.first.device);
    CU_OK(cu.cuCtxSetCurrent(both.first.context));
    CU_OK(cu.cuMemAllocAsync(&of_stream, 4096, of_second));
    CHECK(ordinal_of(of_stream) == both.second.device);
    CU_OK(cu.cuStreamSynchronize(of_second));
    Module module;
    int value = 0;
    CU_OK(launch(module.function("store"), nullptr, address, 17));
    CU_OK(cu.cuMemcpyDtoH(&value, address, sizeof(value)));
    CHECK(value == 17);
    CU_OK(cu.cuMemFreeAsync(address, of_second));
    CU_OK(cu.cuMemFreeAsync(of_stream, of_second));
    CU_OK(cu.cuStreamSynchronize(of_second));
    CU_OK(cu.cuMemPoolDestroy(pool));
    CU_OK(cu.cuCtxSetCurrent(both.second.context));
}

TEST_CASE("memory mapped at addresses of another device belongs to its own", "[devices]") {
    if (!are_peers()) return;
    TwoDevices both;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, both.first.device};
    size_t bytes = 0;
    CU_OK(cu.cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    CU_OK(cu.cuMemAddressReserve(&address, bytes, 0, 0, 0));  // while the second device is current
    CU_OK(cu.cuMemCreate(&handle, bytes, &properties, 0));
    CU_OK(cu.cuMemMap(address, bytes, 0, handle, 0));
    CUmemAccessDesc access[2] = {
        {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {{CU_MEM_LOCATION_TYPE_DEVICE, both.second.device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    CU_OK(cu.cuMemSetAccess(address, bytes, access, 2));
    unsigned long long flags = 0;
    CU_OK(cu.cuMemGetAccess(&flags, &access[1].location, address));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    int value = 41, back = 0;
    for (auto* gpu : {&both.first, &both.second}) {
        CU_OK(cu.cuCtxSetCurrent(gpu->context));
        CU_OK(cu.cuMemcpyHtoD(address, &value, sizeof(value)));
        CU_OK(cu.cuMemcpyDtoH(&back, address, sizeof(back)));
        CHECK(back == value++);
    }
    CU_OK(cu.cuMemUnmap(address, bytes));
    CU_OK(cu.cuMemRelease(handle));
    CU_OK(cu.cuMemAddressFree(address, bytes));
}

TEST_CASE("what one device's atomics can do in another's memory", "[devices]") {
    if (!two_devices_are_there()) return;
    constexpr unsigned count = 4;
    CUatomicOperation operations[count] = {CU_ATOMIC_OPERATION_INTEGER_ADD, CU_ATOMIC_OPERATION_CAS,
                                           CU_ATOMIC_OPERATION_INTEGER_ADD, CU_ATOMIC_OPERATION_FLOAT_ADD};
    unsigned can[count] = {1u << 31, 1u << 31, 1u << 31, 1u << 31};
    CU_OK(cu.cuDeviceGetP2PAtomicCapabilities(can, operations, count, 0, 1));
    CHECK(can[0] == can[2]);
    for (unsigned one : can) CHECK((one & 1u << 31) == 0);
    int native = 0;
    CU_OK(cu.cuDeviceGetP2PAttribute(&native, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 0, 1));
    if (native) CHECK((can[0] & CU_ATOMIC_CAPABILITY_SCALAR_32) != 0);

    CU_CHECK(cu.cuDeviceGetP2PAtomicCapabilities(nullptr, operations, count, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuDeviceGetP2PAtomicCapabilities(can, nullptr, count, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuDeviceGetP2PAtomicCapabilities(can, operations, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuDeviceGetP2PAtomicCapabilities(can, operations, count, 0, 0), CUDA_ERROR_INVALID_DEVICE);
    CU_CHECK(cu.cuDeviceGetP2PAtomicCapabilities(can, operations, count, 0, 99), CUDA_ERROR_INVALID_DEVICE);
    operations[1] = static_cast<CUatomicOperation>(-1);
    CU_CHECK(cu.cuDeviceGetP2PAtomicCapabilities(can, operations, count, 0, 1), CUDA_ERROR_INVALID_VALUE);
    operations[1] = static_cast<CUatomicOperation>(1000);
    CU_CHECK(cu.cuDeviceGetP2PAtomicCapabilities(can, operations, count, 0, 1), CUDA_ERROR_INVALID_VALUE);
}
