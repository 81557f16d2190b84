// A kernel that writes where nothing is: reported at the next wait, and by every call after it.
#include "check.hpp"

__global__ void write(int* where) {
    *where = 42;
}

int main() {
    check::Array<int> good(1);
    write<<<1, 1>>>(good.data);
    EXPECT(good.host()[0] == 42);

    write<<<1, 1>>>(reinterpret_cast<int*>(size_t{0x10}));
    EXPECT_ERROR(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorIllegalAddress);
    // Sticky: reading the error does not clear it, and nothing works any more in this process.
    void* pointer = nullptr;
    EXPECT_ERROR(cudaMalloc(&pointer, 4), cudaErrorIllegalAddress);
    int value = 0;
    EXPECT_ERROR(cudaMemcpy(&value, good.data, 4, cudaMemcpyDeviceToHost), cudaErrorIllegalAddress);
    EXPECT_ERROR(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    write<<<1, 1>>>(good.data);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorIllegalAddress);
    return check::finish();
}
