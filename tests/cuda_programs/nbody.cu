// Bodies attracting each other: float4 loads, reciprocal square roots, tiles of positions in shared memory.
#include "check.hpp"

constexpr int block = 64;
constexpr float softening = 0.01f;

__global__ void accelerate(const float4* bodies, float4* out, int n) {
    __shared__ float4 near[block];
    int i = blockIdx.x * block + threadIdx.x;
    float4 me = bodies[i];
    float3 sum = {0, 0, 0};
    for (int start = 0; start < n; start += block) {
        near[threadIdx.x] = bodies[start + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < block; ++k) {
            float dx = near[k].x - me.x, dy = near[k].y - me.y, dz = near[k].z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + softening);
            float pull = near[k].w * inverse * inverse * inverse;
            sum.x += dx * pull, sum.y += dy * pull, sum.z += dz * pull;
        }
        __syncthreads();
    }
    out[i] = make_float4(sum.x, sum.y, sum.z, 0);
}

int main() {
    const int n = 4 * block;
    check::Random random;
    std::vector<float4> bodies(n);
    for (auto& body : bodies) body = make_float4(random.unit(), random.unit(), random.unit(), 0.1f + random.unit());
    check::Array<float4> device(bodies), out(n);
    accelerate<<<n / block, block>>>(device.data, out.data, n);
    CUDA_LAUNCHED();
    auto result = out.host();
    for (int i = 0; i < n; ++i) {
        double x = 0, y = 0, z = 0, scale = 0;
        for (int k = 0; k < n; ++k) {
            double dx = bodies[k].x - bodies[i].x, dy = bodies[k].y - bodies[i].y, dz = bodies[k].z - bodies[i].z;
            double pull = bodies[k].w / std::pow(dx * dx + dy * dy + dz * dz + softening, 1.5);
            x += dx * pull, y += dy * pull, z += dz * pull, scale += pull;
        }
        EXPECT_NEAR(result[i].x, x, 1e-5 * scale, i);
        EXPECT_NEAR(result[i].y, y, 1e-5 * scale, i);
        EXPECT_NEAR(result[i].z, z, 1e-5 * scale, i);
    }
    return check::finish();
}
