// Streams themselves: flags, priorities, callbacks, and what happens when one is destroyed.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "graph.hpp"

using namespace driver_api;

TEST_CASE("a stream knows its flags, priority, context and id", "[stream]") {
    Gpu gpu;
    Stream blocking, non_blocking(CU_STREAM_NON_BLOCKING);
    unsigned flags = 99;
    CU_OK(cu.cuStreamGetFlags(blocking, &flags));
    CHECK(flags == CU_STREAM_DEFAULT);
    CU_OK(cu.cuStreamGetFlags(non_blocking, &flags));
    CHECK(flags == CU_STREAM_NON_BLOCKING);
    CUcontext context = nullptr;
    CU_OK(cu.cuStreamGetCtx(blocking, &context));
    CHECK(context == gpu.context);
    unsigned long long first = 0, second = 0;
    CU_OK(cu.cuStreamGetId(blocking, &first));
    CU_OK(cu.cuStreamGetId(non_blocking, &second));
    CHECK(first != second);
    int priority = 99;
    CU_OK(cu.cuStreamGetPriority(blocking, &priority));
    CHECK(priority == 0);
}

TEST_CASE("priorities are kept within the context's range", "[stream]") {
    Gpu gpu;
    int least = 0, greatest = 0, priority = 99;
    CU_OK(cu.cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(least >= greatest);  // a smaller number comes first
    int alone = 99;
    CU_OK(cu.cuCtxGetStreamPriorityRange(&alone, nullptr));  // either may be left out, as cuDNN's cudnnSetStream does
    CHECK(alone == least);
    CU_OK(cu.cuCtxGetStreamPriorityRange(nullptr, &alone));
    CHECK(alone == greatest);
    CU_OK(cu.cuCtxGetStreamPriorityRange(nullptr, nullptr));
    for (auto [asked, given] :
         {std::pair{greatest, greatest}, {least, least}, {greatest - 100, greatest}, {least + 100, least}}) {
        CUstream stream = nullptr;
        CU_OK(cu.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, asked));
        CU_OK(cu.cuStreamGetPriority(stream, &priority));
        CHECK(priority == given);
        CU_OK(cu.cuStreamDestroy(stream));
    }
}

TEST_CASE("a stream keeps how it is waited for, and no policy that is none", "[stream]") {
    Gpu gpu;
    Stream stream;
    CUstreamAttrValue value{};
    for (auto policy : {CU_SYNC_POLICY_AUTO, CU_SYNC_POLICY_SPIN, CU_SYNC_POLICY_YIELD, CU_SYNC_POLICY_BLOCKING_SYNC}) {
        value.syncPolicy = policy;
        CU_OK(cu.cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
        for (int none : {-1, 0, 5}) {
            value.syncPolicy = static_cast<CUsynchronizationPolicy>(none);
            CU_CHECK(cu.cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value),
                     CUDA_ERROR_INVALID_VALUE);
        }
        CU_OK(cu.cuStreamGetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
        CHECK(value.syncPolicy == policy);
    }
}

TEST_CASE("streams with unknown flags are refused", "[stream]") {
    Gpu gpu;
    CUstream stream = nullptr;
    CU_CHECK(cu.cuStreamCreate(&stream, 0xff00), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuStreamCreate(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a destroyed stream finishes its work", "[stream]") {
    Gpu gpu;
    Module module;
    Memory value(std::vector<int>{0});
    CUstream stream = nullptr;
    CU_OK(cu.cuStreamCreate(&stream, 0));
    Gate gate(stream);
    CU_OK(launch(module.function("store"), stream, value.address, 4));
    CU_OK(cu.cuStreamDestroy(stream));  // returns although the work has not begun
    gate.open();
    CU_OK(cu.cuCtxSynchronize());
    CHECK(value.first<int>() == 4);
}

TEST_CASE("the default streams cannot be destroyed", "[stream]") {
    Gpu gpu;
    CU_CHECK_EITHER(cu.cuStreamDestroy(nullptr), CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuStreamSynchronize(nullptr));
}

namespace {
struct Seen {
    std::atomic<int> order{0};
    int first = -1, second = -1;
    CUresult status = CUDA_ERROR_UNKNOWN;
    CUstream stream = nullptr;
};
}  // namespace

TEST_CASE("host functions and callbacks run in stream order", "[stream]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Seen seen;
    Memory value(std::vector<int>{0});
    int before = -1, after = -1;
    CU_OK(launch(module.function("store"), stream, value.address, 1));
    CU_OK(cu.cuMemcpyDtoHAsync(&before, value.address, sizeof(int), stream));
    CU_OK(cu.cuLaunchHostFunc(
        stream, [](void* data) { static_cast<Seen*>(data)->first = static_cast<Seen*>(data)->order++; }, &seen));
    CU_OK(cu.cuStreamAddCallback(
        stream,
        [](CUstream which, CUresult status, void* data) {
            auto* seen = static_cast<Seen*>(data);
            seen->second = seen->order++;
            seen->status = status;
            seen->stream = which;
        },
        &seen, 0));
    CU_OK(launch(module.function("store"), stream, value.address, 2));
    CU_OK(cu.cuMemcpyDtoHAsync(&after, value.address, sizeof(int), stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(before == 1);
    CHECK(after == 2);
    CHECK(seen.first == 0);
    CHECK(seen.second == 1);
    CHECK(seen.status == CUDA_SUCCESS);
    CHECK(seen.stream == stream.handle);
}

TEST_CASE("a host function sees what a copy before it has brought", "[stream]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory value(std::vector<int>{0});
    struct {
        int* pinned = nullptr;
        int seen = -1;
    } shared;
    CU_OK(cu.cuMemAllocHost(reinterpret_cast<void**>(&shared.pinned), sizeof(int)));
    *shared.pinned = -2;
    CU_OK(launch(module.function("store"), stream, value.address, 31));
    CU_OK(cu.cuMemcpyDtoHAsync(shared.pinned, value.address, sizeof(int), stream));
    using Shared = decltype(shared);
    CU_OK(cu.cuLaunchHostFunc(
        stream, [](void* data) { static_cast<Shared*>(data)->seen = *static_cast<Shared*>(data)->pinned; }, &shared));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(shared.seen == 31);
    CU_OK(cu.cuMemFreeHost(shared.pinned));
}

// A driver may wait for the function that calls it, so it serves none.
TEST_CASE("a function that a stream calls may not use the driver", "[stream][emulated]") {
    Gpu gpu;
    Stream stream, other;
    Event event;
    CU_OK(cu.cuEventRecord(event, other));
    CU_OK(cu.cuEventSynchronize(event));
    Memory value(std::vector<int>{1});
    struct Tried {
        CUstream own, other;
        CUevent event;
        CUdeviceptr address;
        std::vector<CUresult> acts{}, asks{};
        void call() {
            CUdeviceptr memory = 0;
            void* pinned = nullptr;
            int word = 0, count = 0;
            size_t bytes = 0;
            acts = {cu.cuStreamSynchronize(own),
                    cu.cuStreamQuery(other),
                    cu.cuMemAlloc(&memory, 4096),
                    cu.cuMemFree(address),
                    cu.cuMemAllocHost(&pinned, 4096),
                    cu.cuMemsetD32Async(address, 2, 1, other),
                    cu.cuMemcpyDtoH(&word, address, 4),
                    cu.cuMemcpyDtoHAsync(&word, address, 4, other),
                    cu.cuEventRecord(event, other),
                    cu.cuEventQuery(event),
                    cu.cuEventSynchronize(event),
                    cu.cuEventDestroy(event),
                    cu.cuStreamWaitEvent(other, event, 0),
                    cu.cuCtxSynchronize(),
                    cu.cuMemGetAddressRange(&memory, &bytes, address)};
            asks = {cu.cuDeviceGetCount(&count), cu.cuDriverGetVersion(&count)};
        }
    } tried{stream, other, event, value.address};
    auto in_stream = [](void* data) { static_cast<Tried*>(data)->call(); };
    auto check = [&] {
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(tried.acts == std::vector<CUresult>(15, CUDA_ERROR_NOT_PERMITTED));
        CHECK(tried.asks == std::vector<CUresult>(2, CUDA_SUCCESS));
        tried.acts.clear();
    };
    CU_OK(cu.cuLaunchHostFunc(stream, in_stream, &tried));
    check();
    CU_OK(cu.cuStreamAddCallback(
        stream, [](CUstream, CUresult, void* data) { static_cast<Tried*>(data)->call(); }, &tried, 0));
    check();
    begin_capture(stream);
    CU_OK(cu.cuLaunchHostFunc(stream, in_stream, &tried));
    Graph graph(end_capture(stream));
    GraphExec exec(graph);
    CU_OK(cu.cuGraphLaunch(exec, stream));
    check();
    CHECK(value.first<int>() == 1);  // nothing of it has happened
    CU_OK(cu.cuEventRecord(event, stream));
}

TEST_CASE("host functions that are none are refused", "[stream]") {
    Gpu gpu;
    Stream stream;
    CU_CHECK(cu.cuLaunchHostFunc(stream, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a batch of more operations than there may be is refused before it is read", "[stream]") {
    Gpu gpu;
    Stream stream;
    // Two operations, and behind them memory that nobody may read.
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    auto* pages =
        static_cast<char*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(pages != MAP_FAILED);
    REQUIRE(mprotect(pages + page, page, PROT_NONE) == 0);
    auto* operations = reinterpret_cast<CUstreamBatchMemOpParams*>(pages + page) - 2;
    CU_CHECK(cu.cuStreamBatchMemOp(stream, 257, operations, 0), CUDA_ERROR_INVALID_VALUE);
    munmap(pages, 2 * page);
}
