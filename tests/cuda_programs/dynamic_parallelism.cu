// Kernels that launch kernels: a sort that splits itself, launches in the order of a stream, and the tail, which comes
// last.
#include <algorithm>

#include "check.hpp"

// Each range is split around a value; both parts are sorted by kernels of their own.
__global__ void quicksort(int* values, int left, int right, int depth) {
    if (right - left < 8 || depth >= 16) {
        for (int i = left + 1; i <= right; ++i)
            for (int k = i; k > left && values[k - 1] > values[k]; --k) {
                int value = values[k];
                values[k] = values[k - 1], values[k - 1] = value;
            }
        return;
    }
    int pivot = values[(left + right) / 2], from = left, to = right;
    while (from <= to) {
        while (values[from] < pivot) ++from;
        while (values[to] > pivot) --to;
        if (from > to) break;
        int value = values[from];
        values[from++] = values[to], values[to--] = value;
    }
    cudaStream_t stream;
    if (left < to) {
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        quicksort<<<1, 1, 0, stream>>>(values, left, to, depth + 1);
        cudaStreamDestroy(stream);
    }
    if (from < right) quicksort<<<1, 1, 0, cudaStreamFireAndForget>>>(values, from, right, depth + 1);
}

__global__ void append(int* list, int value) {
    list[++list[0]] = value;
}
__global__ void append_nested(int* list, int value) {
    append<<<1, 1>>>(list, value + 1);
    list[++list[0]] = value;
}
// What is launched runs when this grid is done, in order, with what it launches itself; the tail last.
__global__ void in_order(int* list) {
    append<<<1, 1, 0, cudaStreamTailLaunch>>>(list, 99);
    append<<<1, 1>>>(list, 10);
    append_nested<<<1, 1>>>(list, 20);
    append<<<1, 1>>>(list, 30);
    list[++list[0]] = 1;
}

struct Large {
    int numbers[40];
    double last;
};
__global__ void take_large(Large large, char c, double* out) {
    extern __shared__ int scratch[];
    scratch[threadIdx.x] = large.numbers[threadIdx.x] + c;
    __syncthreads();
    if (threadIdx.x == 0) *out = scratch[39] + scratch[0] + large.last + blockDim.x * gridDim.y;
}
__global__ void give_large(double* out) {
    Large large;
    for (int i = 0; i < 40; ++i) large.numbers[i] = i;
    large.last = 0.5;
    take_large<<<dim3(1, 3), 40, 40 * sizeof(int)>>>(large, 'a', out);
}

// Every block and thread launches; more than the device can hold at once.
__global__ void count(int* counter) {
    atomicAdd(counter, 1);
}
__global__ void everybody(int* counter) {
    count<<<2, 3>>>(counter);
}
__global__ void too_large(int* counter) {
    count<<<1, 4096>>>(counter);  // no block is that large: nothing is launched
    count<<<1, 1>>>(counter);
}

// Memory of the kernel's own, filled, written and copied by what it launches, in that order.
__global__ void give_back(int* values) {
    cudaFree(values);
}
__global__ void by_way_of_own_memory(int* out, int* errors) {
    int* own = nullptr;
    errors[0] = cudaMalloc(&own, 4 * sizeof(int));
    own[1] = 5;
    errors[1] = cudaMemsetAsync(own + 2, 1, 2 * sizeof(int), nullptr);
    count<<<1, 3>>>(own + 1);
    count<<<1, 2>>>(own + 2);
    errors[2] = cudaMemcpyAsync(out, own + 1, 3 * sizeof(int), cudaMemcpyDeviceToDevice, nullptr);
    count<<<1, 7>>>(own + 1);  // after the copy
    give_back<<<1, 1, 0, cudaStreamTailLaunch>>>(own);
}
__global__ void last_errors(int* counter, int* errors) {
    if (threadIdx.x == 1) count<<<1, 4096>>>(counter);
    int peeked = cudaPeekAtLastError(), got = cudaGetLastError();
    const char* name = cudaGetErrorName(static_cast<cudaError_t>(got));
    errors[threadIdx.x] = peeked * 100 + got + cudaGetLastError() + (name[9] == 'I' ? 10000 : 0);
}

// A column of a matrix of 8 is filled, and two are copied to a matrix of 4; and what a kernel finds out about its device.
__global__ void rows_and_columns(const int* in, int* filled, int* copied, int* errors) {
    errors[0] = cudaMemset2DAsync(filled + 2, 8 * sizeof(int), 1, sizeof(int), 3, nullptr);
    errors[1] = cudaMemcpy2DAsync(copied, 4 * sizeof(int), in + 5, 8 * sizeof(int), 2 * sizeof(int), 3,
                                  cudaMemcpyDeviceToDevice, nullptr);
    errors[2] = cudaMemcpy2DAsync(copied, sizeof(int), in, 8, 8, 2, cudaMemcpyDeviceToDevice, nullptr);
}
__global__ void ask_device(int* answers) {
    answers[0] = cudaGetDevice(&answers[1]);
    answers[2] = cudaGetDeviceCount(&answers[3]);
    answers[4] = cudaDeviceGetAttribute(&answers[5], cudaDevAttrMultiProcessorCount, answers[1]);
    answers[6] = cudaDeviceGetAttribute(&answers[7], cudaDevAttrWarpSize, answers[1]);
    answers[8] = cudaDeviceGetAttribute(&answers[9], cudaDevAttrWarpSize, 77);
}

int main() {
    constexpr int n = 3000;
    std::vector<int> values(n);
    check::Random random;
    for (auto& value : values) value = static_cast<int>(random.bits() % 100000);
    auto sorted = values;
    std::sort(sorted.begin(), sorted.end());
    check::Array<int> data(values);
    quicksort<<<1, 1>>>(data.data, 0, n - 1, 0);
    CUDA_LAUNCHED();
    EXPECT_EQUAL(data.host(), sorted);

    check::Array<int> list(std::vector<int>(16, 0));
    in_order<<<1, 1>>>(list.data);
    append<<<1, 1>>>(list.data, 100);  // the host's next kernel waits for all of that
    CUDA_LAUNCHED();
    EXPECT_EQUAL(list.host(), (std::vector<int>{7, 1, 10, 20, 21, 30, 99, 100, 0, 0, 0, 0, 0, 0, 0, 0}));

    check::Array<double> number(1);
    give_large<<<1, 1>>>(number.data);
    CUDA_LAUNCHED();
    EXPECT_NEAR(number.host()[0], 39 + 97 + 97 + 0.5 + 120, 0, 0);

    check::Array<int> counter(std::vector<int>{0});
    everybody<<<4, 32>>>(counter.data);
    CUDA_LAUNCHED();
    EXPECT(counter.host()[0] == 4 * 32 * 6);
    too_large<<<1, 1>>>(counter.data);
    CUDA_OK(cudaDeviceSynchronize());
    EXPECT(counter.host()[0] == 4 * 32 * 6 + 1);

    check::Array<int> copied(3), errors(std::vector<int>{-1, -1, -1});
    by_way_of_own_memory<<<1, 1>>>(copied.data, errors.data);
    CUDA_LAUNCHED();
    EXPECT_EQUAL(copied.host(), (std::vector<int>{8, 0x01010101 + 2, 0x01010101}));
    EXPECT_EQUAL(errors.host(), (std::vector<int>{0, 0, 0}));
    last_errors<<<1, 3>>>(counter.data, errors.data);
    CUDA_LAUNCHED();
    EXPECT_EQUAL(errors.host(), (std::vector<int>{0, 10000 + 909, 0}));  // cudaErrorInvalidConfiguration

    std::vector<int> numbers(24), expected_rows(24, 0), expected_columns(12, 0);
    for (int i = 0; i < 24; ++i) numbers[i] = i;
    for (int row = 0; row < 3; ++row) {
        expected_rows[row * 8 + 2] = 0x01010101;
        for (int column = 0; column < 2; ++column) expected_columns[row * 4 + column] = row * 8 + 5 + column;
    }
    check::Array<int> in(numbers), filled(std::vector<int>(24, 0)), columns(std::vector<int>(12, 0)), answers(10);
    rows_and_columns<<<1, 1>>>(in.data, filled.data, columns.data, errors.data);
    CUDA_LAUNCHED();
    EXPECT_EQUAL(filled.host(), expected_rows);
    EXPECT_EQUAL(columns.host(), expected_columns);
    EXPECT_EQUAL(errors.host(), (std::vector<int>{0, 0, cudaErrorInvalidPitchValue}));
    ask_device<<<1, 1>>>(answers.data);
    CUDA_LAUNCHED();
    int device = -1, count = 0, multiprocessors = 0;
    CUDA_OK(cudaGetDevice(&device));
    CUDA_OK(cudaGetDeviceCount(&count));
    CUDA_OK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    auto told = answers.host();
    told.pop_back();  // unchanged after the error
    EXPECT_EQUAL(told, (std::vector<int>{0, device, 0, count, 0, multiprocessors, 0, 32, cudaErrorInvalidDevice}));
    return check::finish();
}
