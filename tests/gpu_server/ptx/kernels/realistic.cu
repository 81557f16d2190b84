// Kernels as people write them, each with its host counterpart in realistic_test.cpp.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cassert>
#include <cstdio>
namespace cg = cooperative_groups;

extern "C" __global__ void shuffle_sum(const float* in, float* out, int n) {
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += in[i];
    for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
    __shared__ float warps[32];
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0;
        for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(0xffffffff, v, o);
        if (threadIdx.x == 0) atomicAdd(out, v);
    }
}

extern "C" __global__ void scan(int* data, int n) {
    extern __shared__ int temp[];
    int t = threadIdx.x;
    temp[t] = t < n ? data[t] : 0;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        int v = t >= step ? temp[t - step] : 0;
        __syncthreads();
        temp[t] += v;
        __syncthreads();
    }
    if (t < n) data[t] = temp[t];
}

extern "C" __global__ void bitonic(unsigned* data) {
    __shared__ unsigned s[512];
    int t = threadIdx.x;
    s[t] = data[t];
    for (int k = 2; k <= blockDim.x; k *= 2)
        for (int j = k / 2; j > 0; j /= 2) {
            __syncthreads();
            int other = t ^ j;
            if (other > t) {
                bool up = (t & k) == 0;
                if ((s[t] > s[other]) == up) {
                    unsigned x = s[t];
                    s[t] = s[other];
                    s[other] = x;
                }
            }
        }
    __syncthreads();
    data[t] = s[t];
}

extern "C" __global__ void histogram(const unsigned char* in, unsigned* bins, int n) {
    __shared__ unsigned local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[in[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}

__device__ float normal(float d) {
    return 0.5f * erfcf(-d * 0.70710678f);
}
extern "C" __global__ void black_scholes(const float* s, const float* k, const float* t, float* call, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float root = sqrtf(t[i]), d1 = (logf(s[i] / k[i]) + (0.02f + 0.5f * 0.09f) * t[i]) / (0.3f * root);
    call[i] = s[i] * normal(d1) - k[i] * expf(-0.02f * t[i]) * normal(d1 - 0.3f * root);
}

extern "C" __global__ void half_math(const float* in, float* out, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    __half h = __float2half(in[i]);
    __half2 p = __halves2half2(h, __hadd(h, __float2half(1.0f)));
    p = __hfma2(p, p, __half2half2(__float2half(0.5f)));
    __nv_bfloat16 b = __float2bfloat16(in[i]);
    b = __hadd(__hmul(b, b), b);
    out[3 * i] = __low2float(p);
    out[3 * i + 1] = __high2float(p);
    out[3 * i + 2] = __bfloat162float(b);
}

extern "C" __global__ void doubles(const double* in, double* out, int n) {
    int i = threadIdx.x;
    if (i < n) out[i] = sin(in[i]) * exp(in[i]) + log(in[i] + 1) / sqrt(in[i] + 2) + pow(in[i], 1.5);
}

struct Shape {
    __device__ virtual int area(int x) const { return x; }
    __device__ virtual ~Shape() {}
};
struct Square : Shape {
    int k;
    __device__ Square(int k) : k(k) {}
    __device__ int area(int x) const override { return x * x + k; }
};
__device__ int plus_one(int x) {
    return x + 1;
}
__device__ int twice(int x) {
    return x * 2;
}
__device__ int (*table[2])(int) = {plus_one, twice};
__device__ __noinline__ int fibonacci(int n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
__constant__ int weights[4] = {10, 20, 30, 40};
__device__ const char* words[2] = {"abc", "xyz"};
struct Pack {
    char c;
    double d;
    int i[3];
};
__device__ __noinline__ Pack change(Pack p, int n) {
    p.c += n;
    p.d *= n;
    p.i[n % 3] += 100;
    return p;
}
extern "C" __global__ void language(int* out, Pack pack) {
    int t = threadIdx.x;
    Shape* shape = t % 2 ? new Square(t) : new Shape;
    int r = shape->area(t);
    delete shape;
    r = r * 31 + table[t & 1](t);
    r = r * 31 + fibonacci(t % 10);
    r = r * 31 + weights[t & 3] + words[t & 1][t % 3];
    Pack p = change(pack, t);
    r = r * 31 + p.c + static_cast<int>(p.d) + p.i[0] + p.i[1] + p.i[2];
    switch (t % 9) {
        case 0:
            r += 7;
            break;
        case 1:
            r ^= 0x55;
            break;
        case 2:
            r -= 3;
            break;
        case 3:
            r *= 3;
            break;
        case 5:
            r = ~r;
            break;
        case 6:
            r += t;
            break;
        case 7:
            r /= 3;
            break;
        default:
            r %= 1000;
    }
    out[t] = r;
}

extern "C" __global__ void grid_steps(int* a, int* b, int steps) {
    auto grid = cg::this_grid();
    int i = grid.thread_rank(), n = grid.size();
    for (int s = 0; s < steps; ++s) {
        b[i] = a[(i + 1) % n] + 1;
        grid.sync();
        a[i] = b[(i + n - 1) % n];
        grid.sync();
    }
}

extern "C" __global__ void groups(int* out) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    int t = threadIdx.x;
    int sum = t;
    for (int o = 4; o > 0; o /= 2) sum += tile.shfl_xor(sum, o);
    int rank = -1;
    if (t % 3 == 0) {
        auto active = cg::coalesced_threads();
        rank = active.thread_rank() * 100 + active.size();
        active.sync();
    }
    out[t] = sum * 10000 + rank;
}

// Every lane of a warp takes the same lock.
extern "C" __global__ void spin_lock(int* lock, int* counter) {
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __threadfence();
    *(volatile int*)counter += 1;
    __threadfence();
    atomicExch(lock, 0);
}

extern "C" __global__ void divergent_barrier(int* out) {
    __shared__ int v[64];
    int t = threadIdx.x;
    if (t % 2) {
        v[t] = t;
        __syncthreads();
        out[t] = v[t ^ 1];
    } else {
        v[t] = t * 10;
        __syncthreads();
        out[t] = v[t ^ 1] + 1;
    }
}

extern "C" __global__ void divergent_shuffle(int* out) {
    int t = threadIdx.x, r;
    if (t < 11)
        r = __shfl_sync(0x000007ff, t * 2, (t + 1) % 11);
    else
        r = __shfl_sync(0xfffff800, t * 3, 31) + __popc(__ballot_sync(0xfffff800, t & 1));
    if (t == 5) return;
    r += __any_sync(0xffffffdf, t == 7) ? 1000 : 0;
    out[t] = r;
}

// Blocks wait for the block before them: a chain, as in decoupled look-back.
extern "C" __global__ void chain(volatile int* flags, int* out) {
    int b = blockIdx.x;
    if (threadIdx.x == 0) {
        if (b > 0)
            while (flags[b - 1] == 0) {
            }
        __threadfence();
        out[b] = b ? out[b - 1] + b : 0;
        __threadfence();
        flags[b] = 1;
    }
}

// The first block waits for the last: no order of blocks is promised, but hardware runs them together.
extern "C" __global__ void backward_chain(volatile int* flags) {
    if (threadIdx.x == 0) {
        if (blockIdx.x + 1 < gridDim.x)
            while (flags[blockIdx.x + 1] == 0) {
            }
        flags[blockIdx.x] = 1;
    }
}

extern "C" __global__ void stencil(const float* in, float* out, int nx, int ny) {
    __shared__ float tile[18][18];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    auto at = [&](int i, int j) { return in[min(max(j, 0), ny - 1) * nx + min(max(i, 0), nx - 1)]; };
    tile[threadIdx.y + 1][threadIdx.x + 1] = at(x, y);
    if (threadIdx.x == 0) tile[threadIdx.y + 1][0] = at(x - 1, y), tile[threadIdx.y + 1][17] = at(x + 16, y);
    if (threadIdx.y == 0) tile[0][threadIdx.x + 1] = at(x, y - 1), tile[17][threadIdx.x + 1] = at(x, y + 16);
    __syncthreads();
    auto* c = &tile[threadIdx.y + 1][threadIdx.x + 1];
    if (x < nx && y < ny) out[y * nx + x] = 0.25f * (c[-1] + c[1] + c[-18] + c[18]);
}

extern "C" __global__ void out_of_bounds(int* p, int i) {
    p[i] = 1;
}
extern "C" __global__ void asserting(int n) {
    assert(n > static_cast<int>(threadIdx.x));
}
extern "C" __global__ void trapping() {
    if (threadIdx.x == 3) __trap();
}
extern "C" __global__ void endless(volatile int* flag) {
    while (*flag == 0) {
    }
}
extern "C" __global__ void many_formats(double x, const char* s) {
    printf("%+d|%05i|%-5u|%#x|%o|%ld|%llu|%hhd\n", 5, 42, 7u, 255u, 8u, -1234567890123l, 1234567890123ull, 3);
    printf("%e|%10.3f|%g|%G|%a|%c|%%|%5s|%.2s|%*d|%.*f\n", x, x, x, x * 1e10, 1.0, 'q', "ab", "xyz", 4, 9, 2, x);
}
