// The kernels of the suite, compiled to PTX and to fat binaries when the tests are built. Names are not mangled.
#include <cuda_device_runtime_api.h>
#include <cassert>
#include <cstdio>

extern "C" {

__constant__ int factors[4] = {2, 3, 5, 7};
__constant__ int unset_factors[4];
__device__ int counter = 7;
__device__ double table[16];
__device__ int* pointer_to_counter = &counter;

__global__ void nothing() {}

__global__ void store(int* out, int value) {
    *out = value;
}

__global__ void add(int* values, int n, int amount) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) values[i] += amount;
}

__global__ void copy_ints(const int* from, int* to, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) to[i] = from[i];
}

// Moves the value on only when it is where the caller expects it: launches out of order leave it behind.
__global__ void advance(int* value, int from, int to) {
    if (*value == from) *value = to;
}

// Counts down, and sets the condition to what is left.
__global__ void count_down(cudaGraphConditionalHandle condition, int* value) {
    cudaGraphSetConditional(condition, unsigned(--*value));
}

__global__ void set_condition(cudaGraphConditionalHandle condition, unsigned value) {
    cudaGraphSetConditional(condition, value);
}

__global__ void spin(unsigned* out, int rounds) {
    unsigned value = threadIdx.x;
    for (int i = 0; i < rounds; ++i) value = value * 1664525u + 1013904223u;
    out[threadIdx.x] = value;
}

struct Parcel {
    char tag;
    int* out;
    double amount;
    short parts[3];
};
__global__ void take_parcel(Parcel parcel) {
    *parcel.out = parcel.tag + int(parcel.amount) + parcel.parts[0] + parcel.parts[1] + parcel.parts[2];
}

struct Large {
    int values[1000];
};
__global__ void sum_large(Large large, int* out) {
    int sum = 0;
    for (int i = 0; i < 1000; ++i) sum += large.values[i];
    *out = sum;
}

// As NCCL has it: what of it is filled in is passed.
struct Batch {
    int* out;
    int count;
    int values[1000];
};
__global__ void sum_batch(Batch batch) {
    int sum = 0;
    for (int i = 0; i < batch.count; ++i) sum += batch.values[i];
    *batch.out = sum;
}

struct Places {
    int* out[500];
};
__global__ void write_to_places(Places places) {
    for (int i = threadIdx.x; i < 500; i += blockDim.x)
        if (places.out[i]) *places.out[i] = i + 1;
}

__global__ void mixed(char a, double b, short c, int* out, float d, long long e, unsigned char f) {
    out[0] = a, out[1] = int(b), out[2] = c, out[3] = int(d), out[4] = int(e >> 32), out[5] = f;
}

// What a block sees of the launch, and that every block ran once.
__global__ void shape(unsigned* out) {
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    atomicAdd(&out[block * (blockDim.x * blockDim.y * blockDim.z) + thread], 1000 * block + thread + 1);
}

__global__ void use_dynamic_shared(int* out, int words) {
    extern __shared__ int values[];
    for (int i = threadIdx.x; i < words; i += blockDim.x) values[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) *out = values[0] + values[words - 1];
}

__global__ void use_static_shared(int* out) {
    __shared__ int values[256];
    values[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

__global__ void __launch_bounds__(64) at_most_64_threads(int* out) {
    out[threadIdx.x] = 1;
}

__global__ void apply_factors(int* out) {
    out[threadIdx.x] = factors[threadIdx.x % 4] + unset_factors[threadIdx.x % 4];
}

__global__ void bump_counter(int amount) {
    *pointer_to_counter += amount;
}

__global__ void scale_table(double factor) {
    table[threadIdx.x] *= factor;
}

// Every block waits for all others: works only when all of them are on the device together.
__global__ void meet(int* arrived, int* out) {
    atomicAdd(arrived, 1);
    while (atomicAdd(arrived, 0) < int(gridDim.x)) {
    }
    out[blockIdx.x] = int(blockIdx.x) + 1;
}

__global__ void trap_now() {
    __trap();
}

__global__ void fail_assertion(int value) {
    assert(value == 0);
}

__global__ void store_misaligned(char* out) {
    *reinterpret_cast<volatile int*>(out + 1) = 1;
}

__global__ void say(int number) {
    printf("the device says %d\n", number);
}

// Each thread keeps `bytes` of the heap for as long as the context lives; counts who gets none.
__global__ void take_from_heap(int* refused, unsigned bytes) {
    auto* mine = static_cast<volatile char*>(malloc(bytes));
    if (mine)
        mine[0] = mine[bytes - 1] = 1;
    else
        atomicAdd(refused, 1);
}

struct Made {
    int value;
    __device__ Made() : value(1) {}
};

// An array of objects in the heap. nvcc writes their number in front of what malloc has given.
__global__ void make_objects(int* sum, int count) {
    auto* objects = new Made[count];
    for (int i = 0; i < count; ++i) atomicAdd(sum, objects[i].value);
    delete[] objects;
}

// Nothing at all, twice; counts the places, which differ.
__global__ void make_nothing(int* places) {
    auto *some = new int[*places], *others = new int[*places];
    *places = (some != nullptr) + (others != nullptr && others != some);
    delete[] some;
    delete[] others;
}

__global__ void read_texture(cudaTextureObject_t texture, float* out, int width) {
    int x = threadIdx.x, y = blockIdx.x;
    if (x < width) out[y * width + x] = tex2D<float>(texture, x + 0.5f, y + 0.5f);
}

// What is read, and -1 where nothing is.
__global__ void read_resident(cudaTextureObject_t texture, float* out, int width, int step) {
    int x = threadIdx.x, y = blockIdx.x;
    bool resident = false;
    float value = tex2D<float>(texture, x * step + 0.5f, y * step + 0.5f, &resident);
    if (x < width) out[y * width + x] = resident ? value : -1;
}
__global__ void read_color(cudaTextureObject_t texture, float4* out, int width) {
    int x = threadIdx.x, y = blockIdx.x;
    if (x < width) out[y * width + x] = tex2D<float4>(texture, x + 0.5f, y + 0.5f);
}

// What a struct hides is no parameter that anybody could translate.
struct Hidden {
    int unused;
    cudaSurfaceObject_t surface;
};
__global__ void write_surface(Hidden hidden, int amount) {
    surf2Dwrite(float(amount + 10 * blockIdx.x + threadIdx.x), hidden.surface, int(threadIdx.x * sizeof(float)),
                int(blockIdx.x));
}

}  // extern "C"
