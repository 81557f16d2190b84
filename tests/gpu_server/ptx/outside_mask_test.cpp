// Lanes that are outside the mask of a warp's operation: undefined, but Warp's reductions of tiles have some, and wait for
// the whole block afterwards.
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

TEST_CASE("lanes outside the mask of a shuffle do not wait for those within", "[ptx]") {
    // The mask is [p0] for all, and each lane's result goes to [p1]; the barrier is the block's.
    auto text = module_of(R"(
        .reg .b64 %d<4>; .reg .b32 %r<5>;
        ld.param.u64 %d1, [p0]; ld.param.u64 %d2, [p1];
        ld.global.u32 %r1, [%d1];
        mov.u32 %r2, %tid.x;
        shfl.sync.down.b32 %r3, %r2, 1, 31, %r1;
        bar.sync 0;
        mul.wide.u32 %d3, %r2, 4; add.u64 %d3, %d2, %d3;
        st.global.u32 [%d3], %r3;)",
                          2);
    for (uint32_t members : {0x1ffu, 0u, 0x80000000u, 0xaaaaaaaau}) {
        Bench bench(text);
        auto mask = bench.array(std::vector<uint32_t>{members}), results = bench.array<uint32_t>(32);
        INFO(members);
        bench.run("k", {1}, {32}, mask, results);
        for (uint32_t lane = 0; lane + 1 < 32; ++lane)
            if (members >> lane & members >> (lane + 1) & 1) CHECK(results[lane] == lane + 1);
    }
}
