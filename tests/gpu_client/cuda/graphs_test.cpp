// Graphs and captures as remoting has them: what they cost in records and round trips, and what becomes of the program's
// memory and functions, which the GPU's side cannot reach. Seen from inside the client library, beside a server.
#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/gpu_client/cuda/costs.hpp"

using namespace tnr::cuda;

namespace {

const char* const code = R"(.version 8.1
.target sm_75
.address_size 64
.visible .entry increase(.param .u64 at) {
    .reg .u64 %a;
    .reg .u32 %v;
    ld.param.u64 %a, [at];
    ld.global.u32 %v, [%a];
    add.u32 %v, %v, 1;
    st.global.u32 [%a], %v;
    ret;
}
)";

class Program {
public:
    Program() {
        OK(cuInit(0));
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuCtxSetCurrent(context));
        OK(cuModuleLoadData(&module_, code));
        OK(cuModuleGetFunction(&function_, module_, "increase"));
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        OK(cuMemAlloc_v2(&word, sizeof(int)));
        OK(cuMemsetD32Async(word, 0, 1, stream));
        OK(increase());
        OK(cuStreamSynchronize(stream));
    }
    ~Program() {
        cuMemFree_v2(word);
        cuStreamDestroy_v2(stream);
        cuModuleUnload(module_);
        cuDevicePrimaryCtxRelease_v2(0);
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    CUresult increase() {
        void* parameters[] = {&word};
        return cuLaunchKernel(function_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
    }
    int value() {
        int read = -1;
        OK(cuMemcpyDtoH_v2(&read, word, sizeof read));
        return read;
    }
    void begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED) { OK(cuStreamBeginCapture_v2(stream, mode)); }
    CUgraphExec end() {
        CUgraph graph = nullptr;
        CUgraphExec exec = nullptr;
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        OK(cuGraphDestroy(graph));
        return exec;
    }
    void run(CUgraphExec exec) {
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
    }

    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUdeviceptr word = 0;

private:
    CUmodule module_ = nullptr;
    CUfunction function_ = nullptr;
};

}  // namespace

TEST_CASE("launching a graph is one record, and nobody waits for it", "[graphs]") {
    Program program;
    program.begin();
    for (int i = 0; i < 200; ++i) OK(program.increase());
    auto exec = program.end();
    program.run(exec);
    int before = program.value();
    auto cost = cost_of([&] {
        for (int i = 0; i < 20; ++i) OK(cuGraphLaunch(exec, program.stream));
    });
    CHECK(cost.records == 20);
    CHECK(cost.round_trips == 0);
    CHECK(cost_of([&] { OK(cuStreamSynchronize(program.stream)); }).round_trips == 1);
    CHECK(program.value() == before + 20 * 200);
    CHECK(cost_of([&] { OK(cuGraphExecDestroy(exec)); }).round_trips == 0);
}

TEST_CASE("capturing waits for its end only, and questions about it are answered here", "[graphs]") {
    Program program;
    auto status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    cuuint64_t id = 7;
    size_t count = 7;
    auto asked = cost_of([&] {
        OK(cuStreamIsCapturing(program.stream, &status));
        OK(cuStreamGetCaptureInfo_v2(program.stream, &status, &id, nullptr, nullptr, &count));
    });
    CHECK(asked.records == 0);
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK(count == 0);
    auto captured = cost_of([&] {
        program.begin();
        for (int i = 0; i < 100; ++i) OK(program.increase());
        OK(cuStreamIsCapturing(program.stream, &status));
        CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
        OK(cuStreamGetCaptureInfo(program.stream, &status, &id));
        CHECK(id != 0);
    });
    CHECK(captured.round_trips == 0);
    CUgraph graph = nullptr;
    CHECK(cost_of([&] { OK(cuStreamEndCapture(program.stream, &graph)); }).round_trips == 1);
    OK(cuGraphDestroy(graph));
}

TEST_CASE("what a mode forbids is refused without asking, and the end says that the capture is spoilt", "[graphs]") {
    Program program;
    program.begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(program.increase());
    auto refused = cost_of([&] {
        CUdeviceptr memory = 0;
        std::thread([&] {
            CHECK(cuCtxSetCurrent(program.context) == CUDA_SUCCESS);
            CHECK(cuMemAlloc_v2(&memory, 16) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }).join();
    });
    CHECK(refused.round_trips == 0);
    CHECK(program.increase() == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CUgraph graph = nullptr;
    CHECK(cuStreamEndCapture(program.stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(program.increase());  // it is an ordinary stream again
    OK(cuStreamSynchronize(program.stream));
}

TEST_CASE("launches behind each other work on what the one before has copied to the host", "[graphs]") {
    Program program;
    int* host = nullptr;
    OK(cuMemHostAlloc(reinterpret_cast<void**>(&host), sizeof(int), 0));
    program.begin();
    OK(cuMemcpyHtoDAsync_v2(program.word, host, sizeof(int), program.stream));
    OK(program.increase());
    OK(cuMemcpyDtoHAsync_v2(host, program.word, sizeof(int), program.stream));
    auto exec = program.end();
    *host = 100;
    for (int i = 0; i < 10; ++i) OK(cuGraphLaunch(exec, program.stream));
    OK(cuStreamSynchronize(program.stream));
    CHECK(*host == 110);
    OK(cuGraphExecDestroy(exec));
    OK(cuMemFreeHost(host));
}

namespace {
struct Look {
    int* host;
    std::vector<int> seen = {};
};
// What it sees it changes, and that stays.
void look(void* data) {
    auto& self = *static_cast<Look*>(data);
    self.seen.push_back(*self.host);
    *self.host = -1;
}
}  // namespace

TEST_CASE("a function of a graph sees the copies before it, also those of other streams, and may change them",
          "[graphs]") {
    Program program;
    CUstream other = nullptr;
    CUevent forked = nullptr, joined = nullptr;
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    int host = 0, later = 0;
    Look self{&host};
    program.begin();
    OK(program.increase());
    OK(cuEventRecord(forked, program.stream));
    OK(cuStreamWaitEvent(other, forked, 0));
    OK(cuMemcpyDtoHAsync_v2(&host, program.word, sizeof host, other));
    OK(cuEventRecord(joined, other));
    OK(cuStreamWaitEvent(program.stream, joined, 0));
    OK(cuLaunchHostFunc(program.stream, look, &self));
    OK(cuMemcpyDtoHAsync_v2(&later, program.word, sizeof later, program.stream));
    auto exec = program.end();
    int start = program.value();
    for (int i = 1; i <= 3; ++i) {
        program.run(exec);
        CHECK(host == -1);
        CHECK(later == start + i);
    }
    CHECK(self.seen == std::vector<int>{start + 1, start + 2, start + 3});
    OK(cuGraphExecDestroy(exec));
    OK(cuEventDestroy_v2(forked));
    OK(cuEventDestroy_v2(joined));
    OK(cuStreamDestroy_v2(other));
}

TEST_CASE("a copy that a function beside it would undo is refused", "[graphs]") {
    Program program;
    CUstream other = nullptr;
    CUevent forked = nullptr, joined = nullptr;
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    int seen = 0;
    Look self{&seen};
    std::vector<unsigned> host(3);
    CUdeviceptr memory = 0;
    OK(cuMemAlloc_v2(&memory, 3 * sizeof(unsigned)));
    program.begin();
    OK(cuEventRecord(forked, program.stream));
    OK(cuStreamWaitEvent(other, forked, 0));
    OK(cuMemcpyDtoHAsync_v2(host.data(), memory, 2 * sizeof(unsigned), other));
    OK(cuEventRecord(joined, other));
    OK(cuLaunchHostFunc(program.stream, look, &self));
    OK(cuStreamWaitEvent(program.stream, joined, 0));
    OK(cuMemcpyHtoDAsync_v2(memory, host.data() + 1, 2 * sizeof(unsigned), program.stream));
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    OK(cuStreamEndCapture(program.stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGraphDestroy(graph));
    OK(cuMemFree_v2(memory));
    OK(cuEventDestroy_v2(forked));
    OK(cuEventDestroy_v2(joined));
    OK(cuStreamDestroy_v2(other));
}

TEST_CASE("the order of copies and functions costs a question when a graph is instantiated, and nothing later",
          "[graphs]") {
    Program program;
    int host = 0;
    Look self{&host};
    auto captured = cost_of([&] {
        program.begin();
        OK(cuLaunchHostFunc(program.stream, look, &self));
        OK(cuMemcpyHtoDAsync_v2(program.word, &host, sizeof host, program.stream));
    });
    CHECK(captured.round_trips == 0);
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    OK(cuStreamEndCapture(program.stream, &graph));
    CHECK(cost_of([&] { OK(cuGraphInstantiateWithFlags(&exec, graph, 0)); }).round_trips == 2);
    OK(cuGraphDestroy(graph));
    CHECK(cost_of([&] { OK(cuGraphLaunch(exec, program.stream)); }).round_trips == 0);
    OK(cuStreamSynchronize(program.stream));
    CHECK(program.value() == -1);
    OK(cuGraphExecDestroy(exec));
}

TEST_CASE("a large copy in a graph arrives whole, and before the function that is behind it", "[graphs]") {
    Program program;
    constexpr size_t count = (5 << 20) / sizeof(unsigned) + 3;
    std::vector<unsigned> in(count), out(count), back(count);
    CUdeviceptr memory = 0;
    OK(cuMemAlloc_v2(&memory, count * sizeof(unsigned)));
    struct Compare {
        std::vector<unsigned>&in, &out;
        bool same = false;
    } compare{in, out};
    program.begin();
    OK(cuMemcpyHtoDAsync_v2(memory, in.data(), count * sizeof(unsigned), program.stream));
    OK(cuMemcpyDtoHAsync_v2(out.data(), memory, count * sizeof(unsigned), program.stream));
    OK(cuLaunchHostFunc(
        program.stream,
        [](void* data) {
            auto& self = *static_cast<Compare*>(data);
            self.same = self.in == self.out;
        },
        &compare));
    OK(cuMemcpyDtoHAsync_v2(back.data(), memory, count * sizeof(unsigned), program.stream));
    auto exec = program.end();
    for (unsigned round = 1; round <= 2; ++round) {
        std::iota(in.begin(), in.end(), round);
        compare.same = false;
        program.run(exec);
        CHECK(compare.same);
        CHECK((back == in));
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuMemFree_v2(memory));
}

TEST_CASE("allocating and freeing in relaxed mode leaves a capture alone", "[graphs]") {
    Program program;
    CUgraph graph = nullptr;
    program.begin();
    OK(program.increase());
    for (int i = 0; i < 50; ++i) {  // more than is kept in quarantine before the GPU is asked how far it is
        CUdeviceptr memory = 0;
        OK(cuMemAlloc_v2(&memory, 32 << 20));
        OK(cuMemsetD8Async(memory, 1, 16, program.stream));
        OK(cuMemFree_v2(memory));
    }
    OK(cuStreamEndCapture(program.stream, &graph));
    OK(cuGraphDestroy(graph));
}

TEST_CASE("events that graphs record are asked for, not remembered", "[graphs]") {
    Program program;
    CUevent event = nullptr;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(event, program.stream));
    OK(cuEventSynchronize(event));
    program.begin();
    OK(cuEventRecordWithFlags(event, program.stream, CU_EVENT_RECORD_EXTERNAL));
    auto exec = program.end();
    Hold hold(program.stream);
    OK(cuGraphLaunch(exec, program.stream));
    CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
    hold.open();
    OK(cuEventSynchronize(event));
    CHECK(cuEventQuery(event) == CUDA_SUCCESS);
    OK(cuGraphExecDestroy(exec));
    OK(cuEventDestroy_v2(event));
}

TEST_CASE("handles of what went with its graph are not taken any more", "[graphs]") {
    Program program;
    CUgraph graph = nullptr, child = nullptr;
    CUgraphNode node = nullptr, inside = nullptr;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&child, 0));
    OK(cuGraphAddEmptyNode(&inside, child, nullptr, 0));
    OK(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, child));
    CUgraph held = nullptr;
    CUgraphNode found = nullptr;
    size_t one = 1;
    OK(cuGraphChildGraphNodeGetGraph(node, &held));
    OK(cuGraphGetNodes(held, &found, &one));
    CHECK(held != child);
    CHECK(found != inside);
    CUgraph again = nullptr;
    OK(cuGraphChildGraphNodeGetGraph(node, &again));
    CHECK(again == held);
    OK(cuGraphDestroy(graph));
    auto type = CU_GRAPH_NODE_TYPE_EMPTY;
    auto asked = cost_of([&] {
        for (auto gone : {node, found}) CHECK(cuGraphNodeGetType(gone, &type) == CUDA_ERROR_INVALID_VALUE);
        CHECK(cuGraphGetNodes(held, nullptr, &one) == CUDA_ERROR_INVALID_VALUE);
        CHECK(cuGraphDestroy(graph) == CUDA_ERROR_INVALID_VALUE);
    });
    CHECK(asked.records == 0);
    OK(cuGraphNodeGetType(inside, &type));
    OK(cuGraphDestroy(child));
}
