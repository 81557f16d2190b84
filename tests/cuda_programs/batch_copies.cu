// Many copies in one call, in every direction, lines and boxes.
#include "check.hpp"

#include <numeric>

static cudaMemcpyAttributes in_stream_order() {
    cudaMemcpyAttributes how{};
    how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    return how;
}

static void lines(cudaStream_t stream) {
    const int count = 50, n = 100;
    std::vector<std::vector<int>> in(count), out(count);
    std::vector<void*> to, back;
    std::vector<const void*> from, there;
    std::vector<size_t> sizes;
    check::Array<int> memory(count * n);
    for (int i = 0; i < count; ++i) {
        in[i].resize(n - i), out[i].resize(n - i);
        std::iota(in[i].begin(), in[i].end(), 1000 * i);
        from.push_back(in[i].data()), to.push_back(memory.data + i * n);
        there.push_back(memory.data + i * n), back.push_back(out[i].data());
        sizes.push_back((n - i) * sizeof(int));
    }
    auto how = in_stream_order();
    size_t first = 0;
    CUDA_OK(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), count, &how, &first, 1, stream));
    CUDA_OK(cudaMemcpyBatchAsync(back.data(), there.data(), sizes.data(), count, &how, &first, 1, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    for (int i = 0; i < count; ++i) EXPECT_EQUAL(out[i], in[i]);
    first = 1;
    EXPECT_ERROR(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), count, &how, &first, 1, stream),
                 cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

// A box of the host's memory goes into an array, and out of it.
static void boxes(cudaStream_t stream) {
    const size_t width = 16, height = 8, depth = 4;
    std::vector<float> in = check::random_floats(width * height * depth), out(in.size());
    auto format = cudaCreateChannelDesc<float>();
    cudaArray_t array = nullptr;
    CUDA_OK(cudaMalloc3DArray(&array, &format, make_cudaExtent(width, height, depth)));
    auto memory = [&](float* at) {
        cudaMemcpy3DOperand side{};
        side.type = cudaMemcpyOperandTypePointer;
        side.op.ptr.ptr = at;
        side.op.ptr.rowLength = width, side.op.ptr.layerHeight = height;
        return side;
    };
    cudaMemcpy3DOperand inside{};
    inside.type = cudaMemcpyOperandTypeArray;
    inside.op.array.array = array;
    cudaMemcpy3DBatchOp there{}, back{};
    there.src = memory(in.data()), there.dst = inside;
    back.src = inside, back.dst = memory(out.data());
    for (auto* one : {&there, &back}) {
        one->extent = make_cudaExtent(width, height, depth);
        one->srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    }
    CUDA_OK(cudaMemcpy3DBatchAsync(1, &there, 0, stream));
    CUDA_OK(cudaMemcpy3DBatchAsync(1, &back, 0, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    EXPECT_EQUAL(out, in);
    CUDA_OK(cudaFreeArray(array));
}

int main() {
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    lines(stream);
    boxes(stream);
    CUDA_OK(cudaStreamDestroy(stream));
    return check::finish();
}
