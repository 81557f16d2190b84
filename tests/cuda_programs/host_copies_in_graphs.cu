// A solver as programs capture it: its field is ordinary memory of the host, a step copies edges of it to the device and
// back, parts of it overlap, and a function of the program looks at what has come back before the next copy takes it along.
#include "check.hpp"

#include <numeric>

static const int width = 64, height = 48;

// Cells that are not at the edge become the mean of their neighbours.
__global__ void relax(const float* from, float* to) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= width) return;
    int i = y * width + x;
    bool edge = x == 0 || y == 0 || x == width - 1 || y == height - 1;
    to[i] = edge ? from[i] : (from[i - 1] + from[i + 1] + from[i - width] + from[i + width]) / 4;
}

__global__ void add(float* values, int n, float amount) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) values[i] += amount;
}

static void relax_here(std::vector<float>& field) {
    std::vector<float> from = field;
    for (int y = 1; y < height - 1; ++y)
        for (int x = 1; x < width - 1; ++x) {
            int i = y * width + x;
            field[i] = (from[i - 1] + from[i + 1] + from[i - width] + from[i + width]) / 4;
        }
}

struct Exec {
    explicit Exec(cudaStream_t stream) : stream(stream) {
        CUDA_OK(cudaStreamEndCapture(stream, &graph));
        CUDA_OK(cudaGraphInstantiate(&handle, graph, 0));
    }
    ~Exec() {
        cudaGraphExecDestroy(handle);
        cudaGraphDestroy(graph);
    }
    void run() const {
        CUDA_OK(cudaGraphLaunch(handle, stream));
        CUDA_OK(cudaStreamSynchronize(stream));
    }
    cudaStream_t stream;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t handle = nullptr;
};

// What the function does to the field: the first column is driven from outside.
struct Driven {
    float* field;
    int steps = 0;
};
static void drive(float* field, int step) {
    for (int y = 0; y < height; ++y) field[y * width] += float(step);
}
static void CUDART_CB drive_next(void* data) {
    auto& driven = *static_cast<Driven*>(data);
    drive(driven.field, ++driven.steps);
}

// The inner columns come back, what lies beside the first goes there again as it is, and the program changes the first
// before all goes there.
static void stencil(cudaStream_t stream) {
    std::vector<float> field = check::random_floats(width * height), expected = field;
    check::Array<float> now(field), next(field), beside(2 * height);
    std::vector<float> columns(2 * height);
    Driven driven{field.data()};
    const size_t pitch = width * sizeof(float);
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int step = 0; step < 3; ++step) {
        relax<<<dim3(1, height), width, 0, stream>>>(now.data, next.data);
        CUDA_OK(cudaMemcpy2DAsync(field.data() + 1, pitch, next.data + 1, pitch, pitch - 2 * sizeof(float), height,
                                  cudaMemcpyDeviceToHost, stream));
        CUDA_OK(cudaMemcpy2DAsync(beside.data, 2 * sizeof(float), field.data(), pitch, 2 * sizeof(float), height,
                                  cudaMemcpyHostToDevice, stream));
        CUDA_OK(cudaLaunchHostFunc(stream, drive_next, &driven));
        CUDA_OK(cudaMemcpyAsync(now.data, field.data(), height * pitch, cudaMemcpyHostToDevice, stream));
    }
    Exec exec(stream);
    for (int launch = 0; launch < 2; ++launch) {
        exec.run();
        for (int step = 1; step <= 3; ++step) {
            relax_here(expected);
            for (int y = 0; y < height; ++y)
                for (int x : {0, 1}) columns[2 * y + x] = expected[y * width + x];
            drive(expected.data(), 3 * launch + step);
        }
        for (int i = 0; i < width * height; ++i) EXPECT_NEAR(field[i], expected[i], 1e-3 * std::fabs(expected[i]), i);
        EXPECT_EQUAL(now.host(), field);
        auto there = beside.host();
        for (int i = 0; i < 2 * height; ++i) EXPECT_NEAR(there[i], columns[i], 1e-3 * std::fabs(columns[i]), i);
    }
}

static void CUDART_CB count(void* times) {
    ++*static_cast<int*>(times);
}

// Halves that overlap by a quarter go back and forth, and the program is told of each.
static void halves(cudaStream_t stream) {
    int told = 0;
    const int n = 1024, half = n / 2, quarter = n / 4;
    std::vector<float> values(n), expected(n);
    check::Array<float> there(n);
    std::iota(values.begin(), values.end(), 0.f);
    expected = values;
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int first : {0, quarter, half}) {
        CUDA_OK(cudaMemcpyAsync(there.data + first, values.data() + first, half * sizeof(float), cudaMemcpyHostToDevice,
                                stream));
        add<<<1, 256, 0, stream>>>(there.data + first, half, float(first + 1));
        CUDA_OK(cudaMemcpyAsync(values.data() + first, there.data + first, half * sizeof(float), cudaMemcpyDeviceToHost,
                                stream));
        CUDA_OK(cudaLaunchHostFunc(stream, count, &told));
    }
    Exec exec(stream);
    for (int launch = 0; launch < 2; ++launch) {
        exec.run();
        for (int first : {0, quarter, half})
            for (int i = first; i < first + half; ++i) expected[i] += float(first + 1);
        EXPECT_EQUAL(values, expected);
        EXPECT(told == 3 * (launch + 1));
    }
}

int main() {
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    stencil(stream);
    halves(stream);
    CUDA_OK(cudaStreamDestroy(stream));
    return check::finish();
}
