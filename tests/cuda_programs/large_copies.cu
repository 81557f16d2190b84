// 64 MiB to the device, within the device and back, and odd pieces of it: every byte is compared.
#include <cstring>

#include "check.hpp"

__global__ void flip(unsigned long long* words, size_t every, size_t count) {
    size_t i = (blockIdx.x * size_t(blockDim.x) + threadIdx.x) * every;
    if (i < count) words[i] = ~words[i];
}

int main() {
    const size_t bytes = size_t{64} << 20, words = bytes / 8, every = 4096;
    std::vector<unsigned long long> data(words), back(words);
    unsigned long long state = 88172645463325252ull;
    for (auto& word : data) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        word = state;
    }
    unsigned char *first = nullptr, *second = nullptr;
    CUDA_OK(cudaMalloc(&first, bytes));
    CUDA_OK(cudaMalloc(&second, bytes));
    CUDA_OK(cudaMemcpy(first, data.data(), bytes, cudaMemcpyHostToDevice));
    flip<<<int(words / every / 64), 64>>>(reinterpret_cast<unsigned long long*>(first), every, words);
    CUDA_OK(cudaMemcpy(second, first, bytes, cudaMemcpyDeviceToDevice));
    CUDA_OK(cudaMemset(first, 0, bytes));
    CUDA_OK(cudaMemcpy(back.data(), second, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < words; i += every) data[i] = ~data[i];
    EXPECT(std::memcmp(back.data(), data.data(), bytes) == 0);

    const size_t odd = (size_t{17} << 20) + 13;  // no multiple of any piece a copy may be cut into
    std::vector<unsigned char> part(odd);
    CUDA_OK(cudaMemcpy(part.data(), second + 12'345, odd, cudaMemcpyDeviceToHost));
    EXPECT(std::memcmp(part.data(), reinterpret_cast<unsigned char*>(data.data()) + 12'345, odd) == 0);
    CUDA_OK(cudaMemcpy(first + 7, part.data(), odd, cudaMemcpyHostToDevice));
    std::vector<unsigned char> again(odd + 14);
    CUDA_OK(cudaMemcpy(again.data(), first, odd + 14, cudaMemcpyDeviceToHost));
    EXPECT(std::memcmp(again.data() + 7, part.data(), odd) == 0);
    for (size_t i = 0; i < 7; ++i) EXPECT(again[i] == 0 && again[odd + 7 + i] == 0);
    CUDA_OK(cudaFree(first));
    CUDA_OK(cudaFree(second));
    return check::finish();
}
