// Random programs, run by the interpreter and carried out in plain C++. TNR_RANDOM_PROGRAMS=N runs N of them,
// TNR_RANDOM_SEED=S begins with another; a failure names the seed of its program.
#include <cstdlib>

#include "tests/gpu_server/ptx/bench.hpp"
#include "tests/gpu_server/ptx/random_program.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

uint64_t setting(const char* name, uint64_t otherwise) {
    auto* text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

void agree(uint64_t seed, uint32_t blocks, uint32_t threads) {
    auto program = make_program(seed);
    auto text = to_ptx(program);
    INFO("seed " << seed << ", " << blocks << " blocks of " << threads << '\n' << text);
    Bench bench(text);
    struct Thread {
        uint32_t v[words];
        uint64_t w[wides];
    };
    auto out = bench.array<Thread>(blocks * threads);
    auto totals = bench.array<uint32_t>(total_operations().size() * cells);
    bench.run("k", {blocks}, {threads}, out, totals);
    auto expected = carry_out(program, blocks, threads);
    bool same = std::memcmp(totals.data(), expected.totals.data(), totals.size * sizeof(uint32_t)) == 0;
    for (uint32_t t = 0; t < blocks * threads; ++t) {
        bool thread_same = std::memcmp(out[t].v, &expected.words[t * words], sizeof out[t].v) == 0 &&
                           std::memcmp(out[t].w, &expected.wides[t * wides], sizeof out[t].w) == 0;
        if (same && !thread_same) UNSCOPED_INFO("the first that differs is thread " << t);
        same &= thread_same;
    }
    CHECK(same);
}

}  // namespace

TEST_CASE("random programs leave what they leave in plain C++", "[ptx][random]") {
    constexpr uint32_t sizes[] = {1, 32, 33, 70, 96, 128, 250};
    uint64_t first = setting("TNR_RANDOM_SEED", 1), count = setting("TNR_RANDOM_PROGRAMS", 150);
    for (uint64_t seed = first; seed < first + count; ++seed)
        agree(seed, 1 + static_cast<uint32_t>(seed % 3), sizes[seed % std::size(sizes)]);
}
