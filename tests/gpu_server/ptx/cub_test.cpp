// NVIDIA's block algorithms give what the host's do.
#include <algorithm>
#include <numeric>

#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

TEST_CASE("CUB's block algorithms run", "[ptx]") {
    auto bench = Bench::from_file(std::string(TNR_PTX_KERNELS) + "/cub.o80.ptx");
    SECTION("radix sort of pairs") {
        std::vector<uint32_t> keys(512);
        std::vector<int> values(512);
        std::iota(values.begin(), values.end(), 0);
        uint32_t seed = 5;
        for (auto& key : keys) key = seed = seed * 1664525u + 1013904223u;
        auto k = bench.array(keys);
        auto v = bench.array(values);
        bench.run("cub_sort", {1}, {128}, k, v);
        std::sort(values.begin(), values.end(), [&](int a, int b) { return keys[a] < keys[b]; });
        CHECK(std::equal(values.begin(), values.end(), v.data()));
    }
    SECTION("scan and reduction") {
        std::vector<long long> in(128);
        std::iota(in.begin(), in.end(), 1ll << 33);
        auto a = bench.array(in), out = bench.array<long long>(128), sum = bench.array<long long>(1);
        bench.run("cub_scan", {1}, {128}, a, out, sum);
        std::partial_sum(in.begin(), in.end(), in.begin());
        CHECK(std::equal(in.begin(), in.end(), out.data()));
        CHECK(sum[0] == in.back());
    }
}
