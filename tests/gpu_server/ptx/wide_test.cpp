// Registers of 128 bits: packed, moved, loaded and stored at once, exchanged and compared in memory.
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

TEST_CASE("128 bits are packed, moved, loaded, stored and taken apart", "[ptx][wide]") {
    Bench bench(R"(
.version 8.4
.target sm_90
.address_size 64
.shared .align 16 .b8 room[512];
.entry k(.param .u64 in, .param .u64 out)
{
    .reg .b128 %w, %v; .reg .b64 %in, %out, %o, %l, %h; .reg .b32 %t, %s, %a, %b, %c, %d;
    ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 16; add.u64 %in, %in, %o; add.u64 %out, %out, %o;
    mov.u32 %s, room; shl.b32 %a, %t, 4; add.u32 %s, %s, %a;
    ld.global.b128 %w, [%in];
    mov.b128 %v, %w;
    mov.b128 {%l, %h}, %v;
    mov.b128 %w, {%h, %l};
    st.shared.b128 [%s], %w;
    ld.volatile.shared.b128 %v, [%s];
    mov.b128 {%a, %b, %c, %d}, %v;
    add.u32 %a, %a, 1;
    mov.b128 %v, {%a, %b, %c, %d};
    st.release.gpu.global.b128 [%out], %v;
    ld.global.b128 _, [%out];
    ret;
})");
    std::vector<uint64_t> values(64);
    for (size_t i = 0; i < values.size(); ++i) values[i] = i * 0x0123456789abcdefull;
    auto in = bench.array(values);
    auto out = bench.array<uint64_t>(64);
    bench.run("k", {1}, {32}, in, out);
    for (size_t i = 0; i < 64; i += 2) {
        auto low = static_cast<uint32_t>(values[i + 1]) + 1;
        CHECK(out[i] == ((values[i + 1] & 0xffffffff00000000) | low));
        CHECK(out[i + 1] == values[i]);
    }
    CHECK(bench.launch("k", {1}, {32}, {}, in.address + 8, out).outcome == Outcome::misaligned_address);
}

TEST_CASE("128 bits are exchanged and compared as one", "[ptx][wide][atomic]") {
    // Each thread adds 1 to the low half and 3 to the high one, as one value; the last to come leaves a mark.
    Bench bench(R"(
.version 8.4
.target sm_90
.address_size 64
.entry k(.param .u64 p0)
{
    .reg .b128 %old, %new, %found; .reg .b64 %p, %l, %h, %x, %y; .reg .pred %q, %r;
    ld.param.u64 %p, [p0];
    ld.relaxed.gpu.global.b128 %old, [%p];
again:
    mov.b128 {%l, %h}, %old;
    add.u64 %x, %l, 1; add.u64 %y, %h, 3;
    mov.b128 %new, {%x, %y};
    atom.cas.relaxed.gpu.global.b128 %found, [%p], %old, %new;
    mov.b128 %old, %found;
    mov.b128 {%x, %y}, %found;
    setp.eq.u64 %q, %x, %l; setp.eq.and.u64 %r, %y, %h, %q;
    @!%r bra again;
    atom.exch.b128 %old, [%p+16], %new;
    ret;
})");
    auto words = bench.array<uint64_t>({5, 7, 0, 0});
    bench.run("k", {8}, {64}, words);
    CHECK(words[0] == 5 + 512);
    CHECK(words[1] == 7 + 3 * 512);
    CHECK(words[3] - 7 == 3 * (words[2] - 5));
}

TEST_CASE("what has no 128 bits is refused", "[ptx][wide]") {
    for (const char* line :
         {"add.b128 %w, %w, %w;", "and.b128 %w, %w, %w;", "not.b128 %w, %w;", "mov.b128 %w, 1;",
          "selp.b128 %w, %w, %w, 1;", "st.global.b128 [%p], 0;", "atom.add.b128 %w, [%p], %w;",
          "ld.global.v2.b128 {%w, %w}, [%p];", "cvt.b64.b128 %p, %w;", "mov.b64 %p, %w;", "shl.b128 %w, %w, 1;",
          "setp.eq.b128 %q, %w, %w;", "shfl.sync.idx.b128 %w, %w, 0, 31, -1;", "set.eq.u32.b128 %a, %w, %w;",
          "slct.b128.s32 %w, %w, %w, %a;", "prmt.b128 %w, %w, %w, 0;"}) {
        CAPTURE(line);
        CHECK_FALSE(
            load(module_of(".reg .b128 %w; .reg .b64 %p; .reg .b32 %a; .reg .pred %q;\n" + std::string(line), 0)));
    }
}
