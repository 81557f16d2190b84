// cudaMemset and its asynchronous form: odd sizes and offsets, and nothing outside the range is touched.
#include "check.hpp"

int main() {
    const size_t n = 70'001;
    std::vector<unsigned char> expected(n, 0xA5);  // what Array fills itself with
    check::Array<unsigned char> bytes(n);
    struct {
        size_t first, count;
        unsigned char value;
    } const ranges[] = {{0, 1, 1}, {3, 7, 2}, {100, 4096, 3}, {5001, 1023, 4}, {n - 1, 1, 5}, {9000, 0, 6}};
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreate(&stream));
    for (auto& range : ranges) {
        if (range.value % 2)
            CUDA_OK(cudaMemset(bytes.data + range.first, range.value, range.count));
        else
            CUDA_OK(cudaMemsetAsync(bytes.data + range.first, range.value, range.count, stream));
        for (size_t i = 0; i < range.count; ++i) expected[range.first + i] = range.value;
    }
    CUDA_OK(cudaStreamSynchronize(stream));
    EXPECT_EQUAL(bytes.host(), expected);
    CUDA_OK(cudaMemset(bytes.data, 0x1ff, n));  // only the low byte of the value counts
    EXPECT_EQUAL(bytes.host(), std::vector<unsigned char>(n, 0xff));
    CUDA_OK(cudaStreamDestroy(stream));
    return check::finish();
}
