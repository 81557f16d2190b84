// Streams that wait for words in memory and write them: one after the other by turns, several at once, and in a graph.
#include <cuda.h>

#include "check.hpp"

#define DRIVER_OK(call) check::that((call) == CUDA_SUCCESS, #call, __LINE__)

__global__ void append(int* list, int* count, int value) {
    list[(*count)++] = value;
}

// Two streams append by turns; whose turn it is stands in a word.
static void by_turns(cudaStream_t even, cudaStream_t odd) {
    check::Array<int> list(20), count(std::vector<int>{0});
    check::Array<unsigned> turn(std::vector<unsigned>{0});
    auto word = reinterpret_cast<CUdeviceptr>(turn.data);
    for (unsigned i = 0; i < 20; ++i) {
        auto stream = i % 2 ? odd : even;
        DRIVER_OK(cuStreamWaitValue32(stream, word, i, CU_STREAM_WAIT_VALUE_EQ));
        append<<<1, 1, 0, stream>>>(list.data, count.data, int(i));
        DRIVER_OK(cuStreamWriteValue32(stream, word, i + 1, CU_STREAM_WRITE_VALUE_DEFAULT));
    }
    CUDA_OK(cudaStreamSynchronize(odd));
    std::vector<int> expected(20);
    for (int i = 0; i < 20; ++i) expected[i] = i;
    EXPECT_EQUAL(list.host(), expected);
}

// One batch waits for what another has yet to write: words of either size, and bits of one.
static void batches(cudaStream_t first, cudaStream_t second) {
    check::Array<unsigned long long> words(std::vector<unsigned long long>{0, 0, 0});
    check::Array<int> list(2), count(std::vector<int>{0});
    auto at = [&](int i) { return reinterpret_cast<CUdeviceptr>(words.data + i); };
    CUstreamBatchMemOpParams waits[2]{}, writes[3]{};
    waits[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    waits[0].waitValue.address = at(0);
    waits[0].waitValue.value64 = 1ull << 40;
    waits[0].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    waits[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    waits[1].waitValue.address = at(1);
    waits[1].waitValue.value = 4;
    waits[1].waitValue.flags = CU_STREAM_WAIT_VALUE_AND;
    writes[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    writes[0].writeValue.address = at(1);
    writes[0].writeValue.value = 6;
    writes[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    writes[1].writeValue.address = at(2);
    writes[1].writeValue.value64 = 99;
    writes[2] = writes[1];
    writes[2].writeValue.address = at(0);
    writes[2].writeValue.value64 = (1ull << 40) + 1;
    DRIVER_OK(cuStreamBatchMemOp(first, 2, waits, 0));
    append<<<1, 1, 0, first>>>(list.data, count.data, 2);
    append<<<1, 1, 0, second>>>(list.data, count.data, 1);
    DRIVER_OK(cuStreamBatchMemOp(second, 3, writes, 0));
    CUDA_OK(cudaStreamSynchronize(first));
    EXPECT_EQUAL(list.host(), (std::vector<int>{1, 2}));
    EXPECT_EQUAL(words.host(), (std::vector<unsigned long long>{(1ull << 40) + 1, 6, 99}));
    EXPECT(cuStreamBatchMemOp(first, 1, waits, 5) == CUDA_ERROR_INVALID_VALUE);
}

static void in_a_graph(cudaStream_t stream) {
    check::Array<unsigned> words(std::vector<unsigned>{0, 0});
    auto first = reinterpret_cast<CUdeviceptr>(words.data);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    DRIVER_OK(cuStreamWriteValue32(stream, first, 7, CU_STREAM_WRITE_VALUE_DEFAULT));
    DRIVER_OK(cuStreamWaitValue32(stream, first, 7, CU_STREAM_WAIT_VALUE_EQ));
    DRIVER_OK(cuStreamWriteValue32(stream, first + 4, 8, CU_STREAM_WRITE_VALUE_DEFAULT));
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_OK(cudaGraphLaunch(exec, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    EXPECT_EQUAL(words.host(), (std::vector<unsigned>{7, 8}));
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
}

int main() {
    cudaStream_t streams[2];
    for (auto& stream : streams) CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    by_turns(streams[0], streams[1]);
    batches(streams[0], streams[1]);
    in_a_graph(streams[0]);
    for (auto& stream : streams) CUDA_OK(cudaStreamDestroy(stream));
    return check::finish();
}
