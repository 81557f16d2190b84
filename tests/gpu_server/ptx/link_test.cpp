// Several translation units become one module: which definition a name means, and what is refused.
#include <algorithm>

#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

std::string unit(const std::string& declarations) {
    return ".version 8.0\n.target sm_80\n.address_size 64\n" + declarations + "\n";
}

// `.func name` that gives `value` + its argument.
std::string adds(const std::string& linkage, const std::string& name, int value) {
    return linkage + " .func (.param .b32 r) " + name +
           "(.param .b32 a)\n{ .reg .b32 %x; ld.param.b32 %x, [a]; add.s32 %x, %x, " + std::to_string(value) +
           "; st.param.b32 [r], %x; ret; }\n";
}
std::string declares(const std::string& name) {
    return ".extern .func (.param .b32 r) " + name + "(.param .b32 a);\n";
}
std::string call(const std::string& name) {
    return "{ .param .b32 a; .param .b32 r; st.param.b32 [a], %x; call.uni (r), " + name +
           ", (a); ld.param.b32 %x, [r]; }\n";
}
// An entry that calls each of `functions` in turn on 0 and stores the sum of what they add.
std::string entry(const std::string& name, const std::vector<std::string>& functions) {
    std::string text = ".visible .entry " + name +
                       "(.param .u64 p)\n{ .reg .b32 %x; .reg .b64 %p; ld.param.u64 %p, [p]; mov.b32 %x, 0;\n";
    for (auto& function : functions) text += call(function);
    return text + "st.global.b32 [%p], %x; ret; }\n";
}

int result_of(Bench& bench, const std::string& kernel) {
    auto out = bench.array<int>(1);
    bench.run(kernel, {1}, {1}, out);
    return out[0];
}

std::string refusal(const std::vector<Source>& sources, tnr::Error::Kind kind = tnr::Error::Kind::not_found) {
    auto loaded = load(sources);
    REQUIRE(!loaded);
    CHECK(loaded.error().kind == kind);
    return loaded.error().what;
}

}  // namespace

TEST_CASE("a unit uses what another defines, whichever comes first", "[ptx][link]") {
    auto user = unit(declares("f") +
                     ".extern .global .align 4 .u32 counter;\n.extern .const .align 4 .b8 weights[8];\n"
                     ".visible .global .align 8 .u64 where = counter;\n"
                     ".visible .entry k(.param .u64 p)\n{ .reg .b32 %x, %y; .reg .b64 %p, %q; ld.param.u64 %p, [p];\n"
                     "mov.b32 %x, 5;\n" +
                     call("f") +
                     "ld.const.u32 %y, [weights+4]; add.u32 %x, %x, %y;\n"
                     "st.global.u32 [%p], %x; ld.global.u64 %q, [where]; atom.global.add.u32 %y, [%q], 1;\n"
                     "mov.u64 %q, counter; ld.global.u32 %y, [%q]; st.global.u32 [%p+4], %y; ret; }\n");
    auto maker =
        unit(".visible .global .align 4 .u32 counter = 100;\n.visible .const .align 4 .b32 weights[2] = {1, 2000};\n" +
             adds(".visible", "f", 30));
    bool user_first = GENERATE(true, false);
    std::vector<Source> sources{{"user", user}, {"maker", maker}};
    if (!user_first) std::reverse(sources.begin(), sources.end());
    Bench bench(sources);
    auto out = bench.array<uint32_t>(2);
    bench.run("k", {1}, {1}, out);
    CHECK(out[0] == 5 + 30 + 2000);
    CHECK(out[1] == 101);
    CHECK(bench.global<uint32_t>("counter")[0] == 101);
    CHECK(bench.module().globals().size() == 3);
}

TEST_CASE("names that are not visible stay apart", "[ptx][link]") {
    auto one = unit(".global .align 4 .u32 state = 7;\n" + adds("", "helper", 1) + entry("first", {"helper"}) +
                    ".visible .entry read_first(.param .u64 p)\n{ .reg .b32 %x; .reg .b64 %p; ld.param.u64 %p, [p]; "
                    "ld.global.u32 %x, [state]; st.global.u32 [%p], %x; ret; }\n");
    auto other = unit(".global .align 4 .u32 state = 9;\n" + adds("", "helper", 2) + entry("second", {"helper"}) +
                      ".visible .entry read_second(.param .u64 p)\n{ .reg .b32 %x; .reg .b64 %p; ld.param.u64 %p, [p]; "
                      "ld.global.u32 %x, [state]; st.global.u32 [%p], %x; ret; }\n");
    Bench bench(std::vector<Source>{{"one", one}, {"other", other}});
    CHECK(result_of(bench, "first") == 1);
    CHECK(result_of(bench, "second") == 2);
    CHECK(result_of(bench, "read_first") == 7);
    CHECK(result_of(bench, "read_second") == 9);
}

TEST_CASE("a private definition hides another unit's", "[ptx][link]") {
    auto one = unit(adds("", "f", 1) + entry("mine", {"f"}));
    auto other = unit(adds(".visible", "f", 2) + entry("theirs", {"f"}));
    Bench bench(std::vector<Source>{{"one", one}, {"other", other}});
    CHECK(result_of(bench, "mine") == 1);
    CHECK(result_of(bench, "theirs") == 2);
}

TEST_CASE("of weak definitions one is taken, and none beside a strong one", "[ptx][link]") {
    auto one = unit(adds(".weak", "f", 1) + adds(".weak", "g", 10) + entry("first", {"f", "g"}));
    auto two = unit(adds(".weak", "f", 2) + adds(".visible", "g", 20) + entry("second", {"f", "g"}));
    Bench bench(std::vector<Source>{{"one", one}, {"two", two}});
    CHECK(result_of(bench, "first") == 1 + 20);
    CHECK(result_of(bench, "second") == 1 + 20);
}

TEST_CASE("a weak kernel of two units is one kernel", "[ptx][link]") {
    auto one = unit(".weak .entry k()\n{ ret; }\n.weak .global .align 4 .u32 shared_state = 3;\n");
    Bench bench(std::vector<Source>{{"one", one}, {"two", one}});
    CHECK(bench.module().kernels().size() == 1);
    CHECK(bench.module().globals().size() == 1);
}

TEST_CASE("common variables are one, as large as the largest", "[ptx][link]") {
    auto small = unit(".common .global .align 4 .b8 buffer[8];\n"),
         large = unit(".common .global .align 4 .b8 buffer[32];\n");
    Bench bench(std::vector<Source>{{"small", small}, {"large", large}});
    REQUIRE(bench.module().globals().size() == 1);
    CHECK(bench.module().globals()[0].size == 32);
}

TEST_CASE("dynamic shared memory is each kernel's own", "[ptx][link]") {
    auto kernel = [](const std::string& name, const std::string& type) {
        return unit(".extern .shared .align 16 ." + type + " buffer[];\n.visible .entry " + name +
                    "(.param .u64 p)\n{ .reg .b32 %x; .reg .b64 %p; ld.param.u64 %p, [p]; mov.b32 %x, 6; st.shared.b32 "
                    "[buffer+4], %x; "
                    "ld.shared.b32 %x, [buffer+4]; st.global.b32 [%p], %x; ret; }\n");
    };
    auto one = kernel("first", "b8"), two = kernel("second", "b32");
    Bench bench(std::vector<Source>{{"one", one}, {"two", two}});
    for (auto name : {"first", "second"}) {
        auto out = bench.array<int>(1);
        Options options;
        options.shared = 8;
        CHECK(bench.launch(name, {1}, {1}, options, out).outcome == Outcome::done);
        CHECK(out[0] == 6);
    }
}

TEST_CASE("what is defined twice is refused with its name and both units", "[ptx][link]") {
    auto f = unit(adds(".visible", "f", 1)), k = unit(".visible .entry k()\n{ ret; }\n"),
         x = unit(".visible .global .u32 x = 1;\n");
    CHECK(refusal({{"one.ptx", f}, {"two.ptx", f}}) == "'f' is defined in one.ptx and in two.ptx");
    CHECK(refusal({{"one.ptx", k}, {"two.ptx", k}}) == "'k' is defined in one.ptx and in two.ptx");
    CHECK(refusal({{"one.ptx", x}, {"two.ptx", x}}) == "'x' is defined in one.ptx and in two.ptx");
}

TEST_CASE("what is defined nowhere is refused where it is used", "[ptx][link]") {
    auto calls = unit(declares("missing") + entry("k", {"missing"}));
    auto reads = unit(".extern .global .u32 x;\n.visible .entry r()\n{ .reg .b64 %p; mov.u64 %p, x; ret; }\n");
    auto points = unit(".extern .global .u32 x;\n.global .u64 where = x;\n");
    auto other = unit("");
    CHECK(refusal({{"one", other}, {"two", calls}}) == "two, line 7: function 'missing' is declared but not defined");
    CHECK(refusal({{"one", reads}, {"two", other}}) == "one, line 6: variable 'x' is declared but not defined");
    CHECK(refusal({{"one", points}}) == "line 5: 'where': variable 'x' is declared but not defined");
    CHECK(refusal({{"alone", calls}}) == "line 7: function 'missing' is declared but not defined");
    CHECK(check(calls));  // another unit may still come
    // Declared and never used: nobody's loss.
    CHECK(load(unit(declares("missing") + ".extern .global .u32 x;\n.visible .entry k()\n{ ret; }\n")));
}

TEST_CASE("a declaration that the definition does not fit is refused", "[ptx][link]") {
    auto f = unit(adds(".visible", "f", 1));
    auto narrow = unit(".extern .func (.param .b32 r) f(.param .b64 a);\n");
    auto variable = unit(".extern .global .u32 f;\n");
    auto small = unit(".extern .global .align 4 .b8 x[4];\n"), large = unit(".visible .global .align 4 .b8 x[8];\n"),
         constant = unit(".extern .const .align 4 .b8 x[8];\n"), unsized = unit(".extern .global .align 4 .b8 x[];\n");
    CHECK(refusal({{"one", f}, {"two", narrow}}) == "'f' is declared otherwise in two than in one");
    CHECK(refusal({{"one", f}, {"two", variable}}) == "'f' is declared otherwise in two than in one");
    CHECK(refusal({{"one", small}, {"two", large}}) == "'x' is declared otherwise in one than in two");
    CHECK(refusal({{"one", constant}, {"two", large}}) == "'x' is declared otherwise in one than in two");
    CHECK(load(std::vector<Source>{{"one", unsized}, {"two", large}}));
}

TEST_CASE("a mistake in one of several units names it", "[ptx][link]") {
    auto sound = unit(""), odd = unit(".visible .entry k()\n{ frob.b32; ret; }\n");
    CHECK(refusal({{"one", sound}, {"two", odd}}, tnr::Error::Kind::usage) ==
          "two, line 5: frob.b32 is not supported by the emulated GPU");
    CHECK(refusal({{"one", sound}, {"two", "nonsense"}}, tnr::Error::Kind::usage).find("two, line 1: ") == 0);
}
