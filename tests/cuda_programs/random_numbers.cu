// cuRAND's generators for kernels: bits and uniform numbers as the same code gives them on the host, the distributions' means
// and spreads.
#define QUALIFIERS static inline __host__ __device__
#include <curand_kernel.h>

#include "check.hpp"

constexpr int threads = 64, draws = 200;
constexpr unsigned long long seed = 20251124;

template <class State>
__host__ __device__ void draw(int thread, unsigned* bits, float* uniform) {
    State state;
    curand_init(seed, thread, 5, &state);
    for (int k = 0; k < 8; ++k) bits[thread * 8 + k] = curand(&state);
    skipahead(1000, &state);
    for (int k = 0; k < 8; ++k) uniform[thread * 8 + k] = curand_uniform(&state);
}

template <class State>
__global__ void draw_all(unsigned* bits, float* uniform) {
    draw<State>(threadIdx.x, bits, uniform);
}

template <class State>
void check_generator() {
    check::Array<unsigned> bits(threads * 8);
    check::Array<float> uniform(threads * 8);
    draw_all<State><<<1, threads>>>(bits.data, uniform.data);
    CUDA_LAUNCHED();
    std::vector<unsigned> expected_bits(threads * 8);
    std::vector<float> expected_uniform(threads * 8);
    for (int t = 0; t < threads; ++t) draw<State>(t, expected_bits.data(), expected_uniform.data());
    EXPECT_EQUAL(bits.host(), expected_bits);
    EXPECT_EQUAL(uniform.host(), expected_uniform);
}

__global__ void distributions(double lambda, double* normal, double* log_normal, double* poisson, double* four) {
    curandStatePhilox4_32_10_t state;
    curand_init(seed, threadIdx.x, 0, &state);
    for (int k = 0; k < draws; ++k) {
        int at = threadIdx.x * draws + k;
        normal[at] = curand_normal(&state);
        log_normal[at] = curand_log_normal_double(&state, 0.5, 0.25);
        poisson[at] = curand_poisson(&state, lambda);
        uint4 many = curand_poisson4(&state, lambda);
        four[at] = (many.x + many.y + many.z + many.w) / 4.0;
    }
}

void check_moments(const check::Array<double>& device, double mean, double spread, double tolerance) {
    auto values = device.host();
    double sum = 0, squares = 0;
    for (double v : values) sum += v;
    double got = sum / values.size();
    for (double v : values) squares += (v - got) * (v - got);
    EXPECT_NEAR(got, mean, tolerance * spread, 0);
    EXPECT_NEAR(std::sqrt(squares / values.size()), spread, tolerance * spread, 1);
}

int main() {
    check_generator<curandStateXORWOW_t>();
    check_generator<curandStatePhilox4_32_10_t>();
    check_generator<curandStateMRG32k3a_t>();
    for (double lambda : {3.0, 90.0, 5000.0}) {  // each is another method
        check::Array<double> normal(threads * draws), log_normal(threads * draws), poisson(threads * draws),
            four(threads * draws);
        distributions<<<1, threads>>>(lambda, normal.data, log_normal.data, poisson.data, four.data);
        CUDA_LAUNCHED();
        check_moments(normal, 0, 1, 0.05);
        check_moments(log_normal, std::exp(0.5 + 0.03125), std::exp(0.53125) * std::sqrt(std::exp(0.0625) - 1), 0.05);
        check_moments(poisson, lambda, std::sqrt(lambda), 0.05);
        check_moments(four, lambda, std::sqrt(lambda) / 2, 0.05);
    }
    return check::finish();
}
