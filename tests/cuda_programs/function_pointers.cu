// Indirect calls on the device: tables of function pointers, a pointer the host fetched, and virtual functions.
#include "check.hpp"

using Operation = int (*)(int, int);

__device__ __noinline__ int add(int a, int b) {
    return a + b;
}
__device__ __noinline__ int subtract(int a, int b) {
    return a - b;
}
__device__ __noinline__ int multiply(int a, int b) {
    return a * b;
}

__device__ Operation operations[] = {add, subtract, multiply};
__device__ Operation chosen = multiply;

__global__ void apply_table(int* out) {
    int i = threadIdx.x;
    out[i] = operations[i % 3](i, 7);  // neighbours in a warp call different functions
}

__global__ void apply(Operation operation, int* out) {
    out[threadIdx.x] = operation(threadIdx.x, 3);
}

struct Shape {
    __device__ virtual ~Shape() {}
    __device__ virtual int area() const = 0;
};
struct Square : Shape {
    int side;
    __device__ explicit Square(int side) : side(side) {}
    __device__ int area() const override { return side * side; }
};
struct Box : Shape {
    int width, height;
    __device__ Box(int width, int height) : width(width), height(height) {}
    __device__ int area() const override { return width * height; }
};

__global__ void measure(int* out) {
    Square square(threadIdx.x);
    Box box(threadIdx.x, 2);
    const Shape* shapes[] = {&square, &box};
    out[threadIdx.x] = shapes[threadIdx.x % 2]->area();
}

int main() {
    const int n = 64;
    check::Array<int> table(n), direct(n), areas(n);
    Operation host_pointer = nullptr;  // an address of device code
    CUDA_OK(cudaMemcpyFromSymbol(&host_pointer, chosen, sizeof(host_pointer)));
    apply_table<<<1, n>>>(table.data);
    apply<<<1, n>>>(host_pointer, direct.data);
    measure<<<1, n>>>(areas.data);
    CUDA_LAUNCHED();
    std::vector<int> expected_table(n), expected_direct(n), expected_areas(n);
    for (int i = 0; i < n; ++i) {
        expected_table[i] = i % 3 == 0 ? i + 7 : i % 3 == 1 ? i - 7 : i * 7;
        expected_direct[i] = i * 3;
        expected_areas[i] = i % 2 ? i * 2 : i * i;
    }
    EXPECT_EQUAL(table.host(), expected_table);
    EXPECT_EQUAL(direct.host(), expected_direct);
    EXPECT_EQUAL(areas.host(), expected_areas);
    return check::finish();
}
