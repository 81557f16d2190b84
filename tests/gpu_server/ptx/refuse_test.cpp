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
    CHECK(refusal(module_of(".reg .b32 %r<3>;\nwgmma.fence.sync.aligned;", 0)) ==
          "line 7: wgmma.fence.sync.aligned is not supported by the emulated GPU");
    CHECK(refusal(module_of(".reg .b32 %r<3>;\nadd.frob.s32 %r0, %r1, %r2;", 0)) ==
          "line 7: add.frob.s32 is not supported by the emulated GPU");
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
