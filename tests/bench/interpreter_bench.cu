// What interpreter_bench runs: each kernel leans on one part of the interpreter.

// Arithmetic and one loop branch: four chains, as compilers unroll.
extern "C" __global__ void fma_loop(float* out, int rounds) {
    float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
    for (int k = 0; k < rounds; ++k) {
        a = fmaf(a, 0.5f, 1.0f);
        b = fmaf(b, 0.5f, 1.0f);
        c = fmaf(c, 0.5f, 1.0f);
        d = fmaf(d, 0.5f, 1.0f);
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}

// Shared memory read as broadcasts and as rows, global memory as rows, a barrier for each tile.
extern "C" __global__ void tiled_product(const float* a, const float* b, float* c, int n) {
    __shared__ float ta[16][16], tb[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < n; t += 16) {
        ta[threadIdx.y][threadIdx.x] = a[row * n + t + threadIdx.x];
        tb[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < 16; ++k) sum += ta[threadIdx.y][k] * tb[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

// A loop over global memory, shuffles, then one atomic for each block.
extern "C" __global__ void reduction(const int* in, int* out, int n) {
    __shared__ int partial[32];
    int sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0;
        for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
        if (threadIdx.x == 0) atomicAdd(out, sum);
    }
}

// Two barriers a step, and a branch that part of a warp takes.
extern "C" __global__ void scan(const int* in, int* out) {
    __shared__ int sums[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    sums[threadIdx.x] = in[i];
    __syncthreads();
    for (int step = 1; step < 256; step *= 2) {
        int other = 0;
        if (threadIdx.x >= step) other = sums[threadIdx.x - step];
        __syncthreads();
        sums[threadIdx.x] += other;
        __syncthreads();
    }
    out[i] = sums[threadIdx.x];
}

// Lanes that leave a loop one after another: the steps of Collatz's sequence.
extern "C" __global__ void divergence(int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, steps = 0;
    for (unsigned long long value = i + 1; value != 1; ++steps) {
        if (value % 2)
            value = 3 * value + 1;
        else
            value /= 2;
    }
    out[i] = steps;
}

// exp, log, sqrt and division: the formula of Black and Scholes for options of one strike.
__device__ float normal(float d) {
    float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    float tail =
        0.39894228f * expf(-0.5f * d * d) *
        (k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f)))));
    return d > 0 ? 1.0f - tail : tail;
}
extern "C" __global__ void options(const float* prices, float* calls, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float price = prices[i], spread = 0.3f * sqrtf(2.0f);
        float d1 = (logf(price / 30.0f) + (0.02f + 0.045f) * 2.0f) / spread;
        calls[i] = price * normal(d1) - 30.0f * expf(-0.04f) * normal(d1 - spread);
    }
}

// Each thread compares two values in shared memory and writes both back, 55 times: a bitonic sort of 1,024 by 512 threads.
extern "C" __global__ void sort(int* values) {
    __shared__ int v[1024];
    values += blockIdx.x * 1024;
    v[threadIdx.x] = values[threadIdx.x];
    v[threadIdx.x + 512] = values[threadIdx.x + 512];
    for (int size = 2; size <= 1024; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            int i = 2 * threadIdx.x - (threadIdx.x & (step - 1)), a = v[i], b = v[i + step];
            bool up = (i & size) == 0;
            v[i] = up == (a < b) ? a : b;
            v[i + step] = up == (a < b) ? b : a;
        }
    __syncthreads();
    values[threadIdx.x] = v[threadIdx.x];
    values[threadIdx.x + 512] = v[threadIdx.x + 512];
}

// Vectors of 16 bytes, as memory is read and written where bandwidth counts.
extern "C" __global__ void vectors(const float4* in, float4* out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 v = in[i];
        out[i] = make_float4(v.w, v.z, v.y, v.x);
    }
}

// All of it is finding out which element is whose: one for each thread, in blocks of 16 by 16.
extern "C" __global__ void transpose(const int* in, int* out, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    out[x * n + y] = in[y * n + x];
}
