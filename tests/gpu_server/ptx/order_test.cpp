// Flags beside the data that they stand for: NCCL sends both in one vector, or in the vectors of one warp, and a reader
// that finds the flag takes the data.
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

// Block 0 writes 1, 2, 3 … p2 into all of 512 bytes at [p0]. Block 1 reads them as often, and adds to [p1] how often a
// number was older than one that is written after it: the next in a vector, or the last of the last lane.
constexpr char flags_and_data[] = R"(
.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 p0, .param .u64 p1, .param .u32 p2)
{
    .reg .b32 %r<13>; .reg .b64 %d<4>; .reg .pred %p;
    ld.param.u64 %d1, [p0];
    ld.param.u64 %d2, [p1];
    ld.param.u32 %r1, [p2];
    mov.u32 %r2, %laneid;
    mul.wide.u32 %d3, %r2, 16;
    add.u64 %d1, %d1, %d3;
    mov.u32 %r3, 0;
    mov.u32 %r4, 0;
    mov.u32 %r5, %ctaid.x;
    setp.ne.u32 %p, %r5, 0;
    @%p bra READ;
WRITE:
    add.u32 %r3, %r3, 1;
    st.volatile.global.v4.u32 [%d1], {%r3, %r3, %r3, %r3};
    setp.lt.u32 %p, %r3, %r1;
    @%p bra WRITE;
    ret;
READ:
    add.u32 %r3, %r3, 1;
    ld.volatile.global.v4.u32 {%r6, %r7, %r8, %r9}, [%d1];
    shfl.sync.idx.b32 %r10, %r9, 31, 31, -1;
    max.u32 %r11, %r7, %r10;
    setp.lt.u32 %p, %r6, %r11;
    selp.u32 %r12, 1, 0, %p;
    add.u32 %r4, %r4, %r12;
    setp.lt.u32 %p, %r8, %r9;
    selp.u32 %r12, 1, 0, %p;
    add.u32 %r4, %r4, %r12;
    setp.lt.u32 %p, %r3, %r1;
    @%p bra READ;
    red.global.add.u32 [%d2], %r4;
    ret;
})";

}  // namespace

TEST_CASE("who reads a flag with volatile reads finds the data that was written before it", "[ptx]") {
    Bench bench(flags_and_data);
    auto memory = bench.array<uint32_t>(128), stale = bench.array<uint32_t>(1);
    bench.run("k", {2}, {32}, memory, stale, 200'000u);
    CHECK(stale[0] == 0);
}

namespace {

// Block 0 writes vectors whose elements are all 1, all 2, 3 … p2 to [p0]. Block 1 reads them as often, and adds to [p1] how
// often the first element was another one than the last. T: the element's type, V: how many.
std::string vectors_of_one_number(const std::string& how, const std::string& type, int count) {
    std::string same = "%x0", each = "%x1";
    for (int e = 1; e < count; ++e) same += ", %x0", each += ", %x" + std::to_string(e + 1);
    std::string last = "%x" + std::to_string(count), vector = ".v" + std::to_string(count) + "." + type;
    return ".version 8.0\n.target sm_80\n.address_size 64\n"
           ".entry k(.param .u64 p0, .param .u64 p1, .param .u32 p2)\n{\n"
           ".reg .b32 %r<8>; .reg .b64 %d<4>; .reg .pred %p, %q; .reg ." +
           type +
           " %x<9>;\n"
           "ld.param.u64 %d1, [p0]; ld.param.u64 %d2, [p1]; ld.param.u32 %r1, [p2];\n"
           "mov.u32 %r3, 0; mov.u32 %r4, 0; mov.u32 %r5, %ctaid.x; setp.ne.u32 %p, %r5, 0; @%p bra READ;\n"
           "WRITE: add.u32 %r3, %r3, 1; cvt." +
           type +
           ".u32 %x0, %r3;\n"
           "st." +
           how + vector + " [%d1], {" + same +
           "}; setp.lt.u32 %p, %r3, %r1; @%p bra WRITE; ret;\n"
           "READ: add.u32 %r3, %r3, 1; ld." +
           how + vector + " {" + each +
           "}, [%d1];\n"
           "setp.ne." +
           type + " %q, %x1, " + last +
           "; @%q add.u32 %r4, %r4, 1;\n"
           "setp.lt.u32 %p, %r3, %r1; @%p bra READ;\n"
           "red.global.add.u32 [%d2], %r4; ret;\n}\n";
}

}  // namespace

TEST_CASE("nobody sees half of a vector of 16 bytes or less", "[ptx]") {
    struct Form {
        const char *how, *type;
        int count;
    };
    for (auto [how, type, count] : {Form{"relaxed.gpu.global", "u32", 2}, Form{"relaxed.gpu.global", "u64", 2},
                                    Form{"volatile.global", "u16", 4}, Form{"global.cg", "u32", 4}}) {
        Bench bench(vectors_of_one_number(how, type, count));
        auto vector = bench.array<uint64_t>(4);
        auto torn = bench.array<uint32_t>(1);
        bench.run("k", {2}, {1}, vector, torn, 400'000u);
        INFO(how << ".v" << count << "." << type);
        CHECK(torn[0] == 0);
    }
}
