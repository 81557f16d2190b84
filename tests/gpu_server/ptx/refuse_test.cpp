// What cannot be run is refused when it is loaded, with its line; what can never end is found out.
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

std::string refusal(const std::string& text) {
    auto loaded = load(text);
    REQUIRE(!loaded);
    return loaded.error().what;
}

}  // namespace

TEST_CASE("an unsupported instruction names itself and its line", "[ptx]") {
    CHECK(refusal(module_of("tex.2d.v4.f32.s32 {a,b,c,d}, [t, {e,f}];", 0)).find("line 6: ") == 0);
    CHECK(refusal(module_of(".reg .b32 %r<3>;\nadd.frob.s32 %r0, %r1, %r2;", 0)) ==
          "line 7: add.frob.s32 is not supported by the emulated GPU");
}

// NCCL's and cuBLAS's kernels are such: one path of many is for hardware that is not there.
TEST_CASE("code with instructions of other hardware loads, and faults where it comes to one", "[ptx]") {
    for (const char* instruction :
         {"multimem.cp.async.bulk.bulk_group.global.shared::cta [%rd1], [%r1], %r1",
          "multimem.ld_reduce.relaxed.sys.global.add.acc::f16.e4m3x4 %r1, [%rd1]",
          "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f1,%f2,%f3,%f4}, %rd1, %rd1, %r1, 0, 1, 1, 1, 0, 0",
          "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {%f1,%f2,%f3,%f4}, %rd1, %rd1, 1",
          "tcgen05.wait::ld.sync.aligned", "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd1, %r1, %p1"}) {
        CAPTURE(instruction);
        Bench bench(
            module_of(".reg .b32 %r<3>; .reg .b64 %rd<3>; .reg .f32 %f<5>; .reg .pred %p<2>;\n"
                      "mov.u32 %r1, %ntid.x; setp.gt.u32 %p1, %r1, 32;\n@%p1 " +
                          std::string(instruction) + ";",
                      0));
        CHECK(bench.launch("k", {1}, {32}, {}).outcome == Outcome::done);
        auto report = bench.launch("k", {1}, {64}, {});
        CHECK(report.outcome == Outcome::illegal_instruction);
        auto name = std::string(instruction).substr(0, std::string(instruction).find(' '));
        CHECK(report.detail.find("kernel k, line 8: " + name + ", which the emulated GPU does not have") == 0);
    }
}

TEST_CASE("bad text is refused with its line", "[ptx]") {
    CHECK(refusal("").find("line 1: ") == 0);
    CHECK(refusal("hello").find("line 1: ") == 0);
    CHECK(refusal(module_of("bra nowhere;", 0)).find("line 6: bra: there is no label 'nowhere'") == 0);
    CHECK(refusal(module_of(".reg .b32 %r<3>;\nadd.s64 %r0, %r1, %r2;", 0)).find("line 7: ") == 0);
    CHECK(refusal(module_of(".reg .b32 %r<99999999999>;", 0)).find("more registers") != std::string::npos);
    CHECK(refusal(module_of("{{{{", 0)).find("line ") == 0);
    CHECK(refusal(module_of(std::string(100000, '{'), 0)).find("nested too deeply") != std::string::npos);
    CHECK(refusal(module_of(".local .b8 l[99999999999];", 0)).find("larger") != std::string::npos);
    CHECK(refusal(".version 8.0\n.target sm_80\n.address_size 32\n").find("line 3") == 0);
}

TEST_CASE("a barrier that nobody can complete is a deadlock, not a hang", "[ptx]") {
    Bench bench(module_of("bar.sync 1, 128;", 0));
    auto report = bench.launch("k", {1}, {64}, {});
    CHECK(report.outcome == Outcome::deadlock);
    CHECK(report.detail.find("kernel k, line 6: deadlock") == 0);
}

TEST_CASE("threads that have left are not waited for", "[ptx]") {
    Bench bench(
        module_of(".reg .b32 %r<3>; .reg .pred %p; mov.u32 %r1, %tid.x; setp.lt.u32 %p, %r1, 40; @%p exit; bar.sync 0;"
                  "shfl.sync.idx.b32 %r2, %r1, 3, 31, 0xffffffff;",
                  0));
    CHECK(bench.launch("k", {2}, {96}, {}).outcome == Outcome::done);
}
