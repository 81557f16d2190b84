// The first programs of every CUDA user, from nvcc, in all forms.
#include <numeric>

#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

std::string kernel_file(const std::string& name) {
    return std::string(TNR_PTX_KERNELS) + "/" + name + ".ptx";
}

}  // namespace

TEST_CASE("programs that nvcc made run, whatever its options", "[ptx]") {
    auto form = GENERATE("o80", "g75", "o90");
    auto bench = Bench::from_file(kernel_file(std::string("basic.") + form));

    SECTION("a vector sum with a tail") {
        std::vector<float> x(1000), y(1000);
        std::iota(x.begin(), x.end(), 0.5f);
        std::iota(y.begin(), y.end(), 100.0f);
        auto a = bench.array(x), b = bench.array(y), c = bench.array<float>(1000);
        bench.run("vector_add", {4}, {256}, a, b, c, 1000);
        for (size_t i = 0; i < 1000; ++i) REQUIRE(c[i] == x[i] + y[i]);
    }
    SECTION("a sum through shared memory, barriers and an atomic") {
        std::vector<int> values(5000);
        std::iota(values.begin(), values.end(), 1);
        auto in = bench.array(values), out = bench.array<int>(1);
        bench.run("block_sum", {20}, {256}, in, out, 5000);
        CHECK(out[0] == 5000 * 5001 / 2);
    }
    SECTION("printf") {
        bench.run("say", {1}, {32}, 7);
        CHECK(bench.printed == "n=7  3.14|ab    |z 1099511627776 ff %\n");
    }
    SECTION("matrix products") {
        auto kernel = GENERATE("matmul", "tiled_matmul");
        constexpr int n = 64;
        std::vector<float> x(n * n), y(n * n);
        for (int i = 0; i < n * n; ++i) x[i] = static_cast<float>(i % 7), y[i] = static_cast<float>(i % 5 - 2);
        auto a = bench.array(x), b = bench.array(y), c = bench.array<float>(n * n);
        bench.run(kernel, {4, 4}, {16, 16}, a, b, c, n);
        for (int row = 0; row < n; ++row)
            for (int column = 0; column < n; ++column) {
                float sum = 0;
                for (int k = 0; k < n; ++k) sum += x[row * n + k] * y[k * n + column];
                REQUIRE(c[row * n + column] == sum);
            }
    }
}
