// How fast the interpreter is. Hidden: `tnr_ptx_tests [.speed]` prints, and judges nothing but the result.
#include <chrono>
#include <cstdio>

#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

TEST_CASE("speed of matrix products", "[.speed]") {
    constexpr int n = 256;
    auto bench = Bench::from_file(std::string(TNR_PTX_KERNELS) + "/basic.o80.ptx");
    auto a = bench.array(std::vector<float>(n * n, 1.5f)), b = bench.array(std::vector<float>(n * n, 2.0f));
    auto c = bench.array<float>(n * n);
    for (std::string kernel : {"matmul", "tiled_matmul"}) {
        for (unsigned threads : {1u, 2u}) {
            auto began = std::chrono::steady_clock::now();
            auto report = bench.launch(kernel, {n / 16, n / 16}, {16, 16}, {.threads = threads}, a, b, c, n);
            double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
            std::printf("%-14s %d^3, %u thread(s): %.3f s, %.1f M warp instructions/s, %.2f G thread instructions/s\n",
                        kernel.c_str(), n, threads, s, static_cast<double>(report.warp_instructions) / s * 1e-6,
                        static_cast<double>(report.warp_instructions) * 32 / s * 1e-9);
            CHECK(c[n * n - 1] == 3.0f * n);
        }
    }
}
