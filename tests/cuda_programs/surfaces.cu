// Surface objects: written and read by kernels in one to three dimensions and in layers, what happens at their edges,
// and copies between arrays and memory of either side.
#include "check.hpp"

namespace {

constexpr int width = 40, height = 24, depth = 5;

__global__ void write_2d(cudaSurfaceObject_t surface) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width) surf2Dwrite(x + 1000 * y, surface, x * int(sizeof(int)), y);
}

__global__ void transpose(cudaSurfaceObject_t from, cudaSurfaceObject_t to) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= width) return;
    int value = surf2Dread<int>(from, x * int(sizeof(int)), y);
    surf2Dwrite(value, to, y * int(sizeof(int)), x);
}

__global__ void write_3d(cudaSurfaceObject_t surface) {
    int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
    surf3Dwrite(make_float2(float(x + 100 * y), float(z)), surface, x * int(sizeof(float2)), y, z);
}

__global__ void write_layers(cudaSurfaceObject_t surface) {
    unsigned char value = static_cast<unsigned char>(threadIdx.x + 10 * blockIdx.x + 50 * blockIdx.y);
    surf2DLayeredwrite(value, surface, int(threadIdx.x), int(blockIdx.x), int(blockIdx.y));
}

__global__ void at_edges(cudaSurfaceObject_t surface, int* out) {
    surf1Dwrite(77, surface, -4, cudaBoundaryModeZero);     // dropped
    surf1Dwrite(88, surface, 4000, cudaBoundaryModeClamp);  // goes into the last
    out[0] = surf1Dread<int>(surface, 4000, cudaBoundaryModeZero);
    out[1] = surf1Dread<int>(surface, 4000, cudaBoundaryModeClamp);
    out[2] = surf1Dread<int>(surface, -4000, cudaBoundaryModeClamp);
}

__global__ void beyond_the_end(cudaSurfaceObject_t surface) {
    surf1Dwrite(1, surface, 4000);
}

struct Surface {
    Surface(cudaChannelFormatDesc format, cudaExtent extent, unsigned flags = 0) {
        CUDA_OK(cudaMalloc3DArray(&array, &format, extent, flags | cudaArraySurfaceLoadStore));
        cudaResourceDesc resource{};
        resource.resType = cudaResourceTypeArray;
        resource.res.array.array = array;
        CUDA_OK(cudaCreateSurfaceObject(&object, &resource));
    }
    ~Surface() {
        cudaDestroySurfaceObject(object);
        cudaFreeArray(array);
    }
    cudaArray_t array = nullptr;
    cudaSurfaceObject_t object = 0;
};

void two_dimensions() {
    auto format = cudaCreateChannelDesc<int>();
    Surface one(format, make_cudaExtent(width, height, 0)), other(format, make_cudaExtent(height, width, 0));
    write_2d<<<dim3(1, height), 64>>>(one.object);
    transpose<<<dim3(1, height), 64>>>(one.object, other.object);
    CUDA_LAUNCHED();
    std::vector<int> got(width * height), expected(width * height);
    for (int y = 0; y < height; ++y)
        for (int x = 0; x < width; ++x) expected[size_t(x * height + y)] = x + 1000 * y;
    CUDA_OK(
        cudaMemcpy2DFromArray(got.data(), height * 4, other.array, 0, 0, height * 4, width, cudaMemcpyDeviceToHost));
    EXPECT_EQUAL(got, expected);

    // From array to array, to the device's memory and on to the host's; asynchronously in a stream.
    Surface copy(format, make_cudaExtent(height, width, 0));
    cudaStream_t stream = nullptr;
    CUDA_OK(cudaStreamCreate(&stream));
    CUDA_OK(cudaMemcpy2DArrayToArray(copy.array, 0, 0, other.array, 0, 0, height * 4, width));
    check::Array<int> memory(got.size());
    CUDA_OK(cudaMemcpy2DFromArrayAsync(memory.data, height * 4, copy.array, 0, 0, height * 4, width,
                                       cudaMemcpyDeviceToDevice, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    EXPECT_EQUAL(memory.host(), expected);
    CUDA_OK(
        cudaMemcpy2DToArrayAsync(copy.array, 8, 1, expected.data(), height * 4, 12, 2, cudaMemcpyHostToDevice, stream));
    CUDA_OK(cudaMemcpy2DFromArrayAsync(got.data(), height * 4, copy.array, 0, 0, height * 4, width,
                                       cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    auto changed = expected;
    for (size_t y = 0; y < 2; ++y)
        for (size_t x = 0; x < 3; ++x) changed[(y + 1) * height + x + 2] = expected[y * height + x];
    EXPECT_EQUAL(got, changed);
    CUDA_OK(cudaStreamDestroy(stream));
    EXPECT_ERROR(cudaMemcpy2DToArray(copy.array, 0, width - 1, expected.data(), height * 4, height * 4, 2,
                                     cudaMemcpyHostToDevice),
                 cudaErrorInvalidValue);
    cudaGetLastError();
}

void three_dimensions() {
    Surface surface(cudaCreateChannelDesc<float2>(), make_cudaExtent(width, height, depth));
    write_3d<<<dim3(height, depth), width>>>(surface.object);
    CUDA_LAUNCHED();
    std::vector<float2> got(width * height * depth);
    cudaMemcpy3DParms copy{};
    copy.srcArray = surface.array;
    copy.dstPtr = make_cudaPitchedPtr(got.data(), width * sizeof(float2), width, height);
    copy.extent = make_cudaExtent(width, height, depth);
    copy.kind = cudaMemcpyDeviceToHost;
    CUDA_OK(cudaMemcpy3D(&copy));
    for (int z = 0; z < depth; ++z)
        for (int y = 0; y < height; ++y)
            for (int x = 0; x < width; ++x) {
                auto& value = got[size_t((z * height + y) * width + x)];
                EXPECT(value.x == float(x + 100 * y) && value.y == float(z));
            }
}

void layers() {
    Surface surface(cudaCreateChannelDesc<unsigned char>(), make_cudaExtent(10, 5, 3), cudaArrayLayered);
    write_layers<<<dim3(5, 3), 10>>>(surface.object);
    CUDA_LAUNCHED();
    std::vector<unsigned char> got(10 * 5 * 3), expected(got.size());
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<unsigned char>(i);
    cudaMemcpy3DParms copy{};
    copy.srcArray = surface.array;
    copy.dstPtr = make_cudaPitchedPtr(got.data(), 10, 10, 5);
    copy.extent = make_cudaExtent(10, 5, 3);
    copy.kind = cudaMemcpyDeviceToHost;
    CUDA_OK(cudaMemcpy3D(&copy));
    EXPECT_EQUAL(got, expected);
}

// What has no layers is the only one of an instruction that names one.
void only_layer() {
    Surface surface(cudaCreateChannelDesc<unsigned char>(), make_cudaExtent(10, 5, 0));
    write_layers<<<5, 10>>>(surface.object);
    CUDA_LAUNCHED();
    std::vector<unsigned char> got(10 * 5), expected(got.size());
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<unsigned char>(i);
    CUDA_OK(cudaMemcpy2DFromArray(got.data(), 10, surface.array, 0, 0, 10, 5, cudaMemcpyDeviceToHost));
    EXPECT_EQUAL(got, expected);
}

void edges() {
    Surface surface(cudaCreateChannelDesc<int>(), make_cudaExtent(16, 0, 0));
    std::vector<int> values(16);
    for (int i = 0; i < 16; ++i) values[size_t(i)] = 100 + i;
    CUDA_OK(cudaMemcpy2DToArray(surface.array, 0, 0, values.data(), 64, 64, 1, cudaMemcpyHostToDevice));
    check::Array<int> output(3);
    at_edges<<<1, 1>>>(surface.object, output.data);
    CUDA_LAUNCHED();
    EXPECT_EQUAL(output.host(), (std::vector<int>{0, 88, 100}));
    CUDA_OK(cudaMemcpy2DFromArray(values.data(), 64, surface.array, 0, 0, 64, 1, cudaMemcpyDeviceToHost));
    EXPECT(values[0] == 100 && values[14] == 114 && values[15] == 88);
    beyond_the_end<<<1, 1>>>(surface.object);
    EXPECT(cudaDeviceSynchronize() != cudaSuccess);  // the last: the context is lost
}

}  // namespace

int main() {
    two_dimensions();
    three_dimensions();
    layers();
    only_layer();
    edges();
    return check::finish();
}
