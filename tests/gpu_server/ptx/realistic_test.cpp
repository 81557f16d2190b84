// Kernels as people write them, from nvcc in all forms, against the same computed on the host.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

Bench compiled() {
    auto form = GENERATE("o80", "g75", "o90");
    INFO(form);
    return Bench::from_file(std::string(TNR_PTX_KERNELS) + "/realistic." + form + ".ptx");
}

uint32_t random_word(uint32_t& state) {
    return state = state * 1664525u + 1013904223u;
}

struct Pack {
    char c;
    double d;
    int i[3];
};

int fibonacci(int n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

int language(int t, Pack pack) {
    const int weights[] = {10, 20, 30, 40};
    const char* words[] = {"abc", "xyz"};
    int r = t % 2 ? t * t + t : t;
    r = r * 31 + (t % 2 ? t * 2 : t + 1);
    r = r * 31 + fibonacci(t % 10);
    r = r * 31 + weights[t & 3] + words[t & 1][t % 3];
    pack.c = static_cast<char>(pack.c + t);
    pack.d *= t;
    pack.i[t % 3] += 100;
    r = r * 31 + pack.c + static_cast<int>(pack.d) + pack.i[0] + pack.i[1] + pack.i[2];
    switch (t % 9) {
        case 0:
            return r + 7;
        case 1:
            return r ^ 0x55;
        case 2:
            return r - 3;
        case 3:
            return static_cast<int>(static_cast<unsigned>(r) * 3);  // as the GPU: what is too much is cut off
        case 5:
            return ~r;
        case 6:
            return r + t;
        case 7:
            return r / 3;
        default:
            return r % 1000;
    }
}

}  // namespace

TEST_CASE("sums, scans, sorts and histograms", "[ptx]") {
    auto bench = compiled();
    uint32_t seed = 1;
    SECTION("a sum by shuffles") {
        std::vector<float> values(3000);
        for (auto& v : values) v = static_cast<float>(random_word(seed) % 100);
        auto in = bench.array(values), out = bench.array<float>(1);
        bench.run("shuffle_sum", {3}, {128}, in, out, 3000);
        CHECK(out[0] == std::accumulate(values.begin(), values.end(), 0.0f));
    }
    SECTION("a scan in dynamic shared memory") {
        std::vector<int> values(200);
        for (auto& v : values) v = static_cast<int>(random_word(seed) % 1000);
        auto data = bench.array(values);
        auto report = bench.launch("scan", {1}, {256}, {.shared = 1024}, data, 200);
        REQUIRE(report.outcome == Outcome::done);
        std::partial_sum(values.begin(), values.end(), values.begin());
        CHECK(std::equal(values.begin(), values.end(), data.data()));
    }
    SECTION("a bitonic sort") {
        std::vector<uint32_t> values(512);
        for (auto& v : values) v = random_word(seed);
        auto data = bench.array(values);
        bench.run("bitonic", {1}, {512}, data);
        std::sort(values.begin(), values.end());
        CHECK(std::equal(values.begin(), values.end(), data.data()));
    }
    SECTION("a histogram") {
        std::vector<uint8_t> values(10000);
        std::vector<uint32_t> expected(256);
        for (auto& v : values) ++expected[v = static_cast<uint8_t>(random_word(seed) >> 24)];
        auto in = bench.array(values);
        auto bins = bench.array<uint32_t>(256);
        bench.run("histogram", {4}, {96}, in, bins, 10000);
        CHECK(std::equal(expected.begin(), expected.end(), bins.data()));
    }
}

TEST_CASE("numbers", "[ptx]") {
    auto bench = compiled();
    SECTION("Black-Scholes") {
        constexpr int n = 100;
        auto s = bench.array<float>(n), k = bench.array<float>(n), t = bench.array<float>(n),
             call = bench.array<float>(n);
        for (int i = 0; i < n; ++i)
            s[i] = 5.0f + static_cast<float>(i), k[i] = 20.0f + static_cast<float>(i % 30),
            t[i] = 0.25f + static_cast<float>(i % 8);
        bench.run("black_scholes", {2}, {64}, s, k, t, call, n);
        auto normal = [](double d) { return 0.5 * std::erfc(-d / std::sqrt(2.0)); };
        for (int i = 0; i < n; ++i) {
            double root = std::sqrt(t[i]), d1 = (std::log(s[i] / k[i]) + (0.02 + 0.045) * t[i]) / (0.3 * root);
            double expected = s[i] * normal(d1) - k[i] * std::exp(-0.02 * t[i]) * normal(d1 - 0.3 * root);
            REQUIRE(call[i] == Approx(expected).margin(1e-3).epsilon(1e-4));
        }
    }
    SECTION("halves and bfloats") {
        auto in = bench.array<float>(32), out = bench.array<float>(96);
        for (int i = 0; i < 32; ++i) in[i] = static_cast<float>(i) * 0.25f - 4;
        bench.run("half_math", {1}, {32}, in, out, 32);
        for (int i = 0; i < 32; ++i) {
            float x = in[i];
            REQUIRE(out[3 * i] == x * x + 0.5f);
            REQUIRE(out[3 * i + 1] == (x + 1) * (x + 1) + 0.5f);
            REQUIRE(out[3 * i + 2] == Approx(x * x + x).epsilon(0.01).margin(0.02));
        }
    }
    SECTION("doubles through nvcc's own mathematics") {
        auto in = bench.array<double>(32), out = bench.array<double>(32);
        for (int i = 0; i < 32; ++i) in[i] = i * 0.37;
        bench.run("doubles", {1}, {32}, in, out, 32);
        for (int i = 0; i < 32; ++i) {
            double x = in[i];
            REQUIRE(out[i] == Approx(std::sin(x) * std::exp(x) + std::log(x + 1) / std::sqrt(x + 2) + std::pow(x, 1.5))
                                  .epsilon(1e-12));
        }
    }
    SECTION("a stencil") {
        constexpr int nx = 50, ny = 33;
        auto in = bench.array<float>(nx * ny), out = bench.array<float>(nx * ny);
        for (int i = 0; i < nx * ny; ++i) in[i] = static_cast<float>(i * 7 % 64);
        bench.run("stencil", {4, 3}, {16, 16}, in, out, nx, ny);
        auto at = [&](int i, int j) {
            return in[static_cast<size_t>(std::clamp(j, 0, ny - 1)) * static_cast<size_t>(nx) +
                      static_cast<size_t>(std::clamp(i, 0, nx - 1))];
        };
        for (int y = 0; y < ny; ++y)
            for (int x = 0; x < nx; ++x)
                REQUIRE(out[y * nx + x] == 0.25f * (at(x - 1, y) + at(x + 1, y) + at(x, y - 1) + at(x, y + 1)));
    }
}

TEST_CASE("virtual functions, pointers to functions, recursion, structs, switches", "[ptx]") {
    auto bench = compiled();
    auto out = bench.array<int>(64);
    Pack pack{'k', 1.5, {1, 2, 3}};
    bench.run("language", {1}, {64}, out, pack);
    for (int t = 0; t < 64; ++t) REQUIRE(out[t] == language(t, pack));
}

TEST_CASE("all blocks of a cooperative grid advance together", "[ptx]") {
    auto bench = compiled();
    unsigned threads = GENERATE(1u, 2u);
    constexpr int blocks = 9, width = 40, n = blocks * width, steps = 5;
    auto a = bench.array<int>(n), b = bench.array<int>(n);
    std::vector<int> x(n), y(n);
    for (int i = 0; i < n; ++i) a[i] = x[i] = i * i % 101;
    auto report = bench.launch("grid_steps", {blocks}, {width}, {.cooperative = true, .threads = threads}, a, b, steps);
    INFO(report.detail);
    REQUIRE(report.outcome == Outcome::done);
    for (int s = 0; s < steps; ++s) {
        for (int i = 0; i < n; ++i) y[i] = x[(i + 1) % n] + 1;
        for (int i = 0; i < n; ++i) x[i] = y[(i + n - 1) % n];
    }
    CHECK(std::equal(x.begin(), x.end(), a.data()));
}

TEST_CASE("threads that wait for each other all make progress", "[ptx]") {
    auto bench = compiled();
    SECTION("a lock that every lane of every warp takes") {
        auto lock = bench.array<int>(1), counter = bench.array<int>(1);
        bench.run("spin_lock", {3}, {96}, lock, counter);
        CHECK(counter[0] == 288);
    }
    SECTION("a chain of blocks") {
        auto flags = bench.array<int>(50), out = bench.array<int>(50);
        bench.run("chain", {50}, {64}, flags, out);
        CHECK(out[49] == 49 * 50 / 2);
    }
    SECTION("a chain against the order of blocks") {
        auto flags = bench.array<int>(20);
        auto report = bench.launch("backward_chain", {20}, {32}, {.threads = 1}, flags);
        CHECK(report.outcome == Outcome::done);
        CHECK(flags[0] == 1);
    }
}

TEST_CASE("barriers and warp operations hold under divergence", "[ptx]") {
    auto bench = compiled();
    SECTION("a barrier reached from both sides of a branch") {
        auto out = bench.array<int>(64);
        bench.run("divergent_barrier", {1}, {64}, out);
        for (int t = 0; t < 64; ++t) REQUIRE(out[t] == (t % 2 ? (t ^ 1) * 10 : (t ^ 1) + 1));
    }
    SECTION("shuffles and votes of parts of a warp") {
        auto out = bench.array<int>(32);
        bench.run("divergent_shuffle", {1}, {32}, out);
        for (int t = 0; t < 32; ++t) {
            int expected = t < 11 ? (t + 1) % 11 * 2 : 93 + 11;
            REQUIRE(out[t] == (t == 5 ? 0 : expected + 1000));
        }
    }
    SECTION("cooperative groups") {
        auto out = bench.array<int>(64);
        bench.run("groups", {1}, {64}, out);
        for (int t = 0; t < 64; ++t) {
            int base = t / 8 * 8, sum = 8 * base + 28, first = t / 32 * 32, rank = 0, size = 0;
            for (int k = first; k < first + 32; ++k) size += k % 3 == 0, rank += k % 3 == 0 && k < t;
            REQUIRE(out[t] == sum * 10000 + (t % 3 == 0 ? rank * 100 + size : -1));
        }
    }
}

TEST_CASE("what a program does wrong is reported with its place", "[ptx]") {
    auto bench = compiled();
    SECTION("out of bounds") {
        auto p = bench.array<int>(4);
        auto report = bench.launch("out_of_bounds", {1}, {1}, {}, p, 1 << 20);
        CHECK(report.outcome == Outcome::illegal_address);
        CHECK(report.detail.find("kernel out_of_bounds, line ") == 0);
        CHECK(report.detail.find("write of 4 bytes at 0x") != std::string::npos);
        CHECK(report.detail.find("by block (0,0,0) thread (0,0,0)") != std::string::npos);
    }
    SECTION("misaligned") {
        auto p = bench.array<int>(4);
        auto report = bench.launch("out_of_bounds", {1}, {1}, {}, p.address + 2, 0);
        CHECK(report.outcome == Outcome::misaligned_address);
    }
    SECTION("an assertion") {
        auto report = bench.launch("asserting", {1}, {8}, {}, 4);
        CHECK(report.outcome == Outcome::assert_failed);
        CHECK(bench.printed.find("Assertion `n > static_cast<int>(threadIdx.x)` failed.") != std::string::npos);
    }
    SECTION("a trap") {
        auto report = bench.launch("trapping", {1}, {8}, {});
        CHECK(report.outcome == Outcome::trap);
        CHECK(report.detail.find("thread (3,0,0)") != std::string::npos);
    }
    SECTION("an endless kernel can be cancelled") {
        auto flag = bench.array<int>(1);
        bool cancelled = false;
        std::thread stopper([&] { __atomic_store_n(&cancelled, true, __ATOMIC_RELAXED); });
        auto report = bench.launch("endless", {4}, {64}, {.cancelled = &cancelled}, flag);
        stopper.join();
        CHECK(report.outcome == Outcome::cancelled);
    }
}

TEST_CASE("printf knows C's formats", "[ptx]") {
    auto bench = compiled();
    auto text = bench.array(std::vector<char>{'x', 0});
    double x = 12.345;
    bench.run("many_formats", {1}, {1}, x, text);
    char expected[1024];
    int length = std::snprintf(expected, sizeof expected, "%+d|%05i|%-5u|%#x|%o|%ld|%llu|%d\n", 5, 42, 7u, 255u, 8u,
                               -1234567890123l, 1234567890123ull, 3);
    std::snprintf(expected + length, sizeof expected - static_cast<size_t>(length),
                  "%e|%10.3f|%g|%G|%a|%c|%%|%5s|%.2s|%*d|%.*f\n", x, x, x, x * 1e10, 1.0, 'q', "ab", "xyz", 4, 9, 2, x);
    CHECK(bench.printed == expected);
}
