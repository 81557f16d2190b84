// 32 lanes side by side are moved at once (ops_memory.cpp). At the ends of memory that must be no different from one by one.
#include <numeric>

#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

// Thread t copies element `from + t` to element `to + t`; the element's type is `type`, its register `reg`.
std::string copy_kernel(const std::string& space, const std::string& type, const std::string& reg) {
    const auto bytes = std::to_string(std::stoi(type.substr(2)) / 8);
    return ".version 8.0\n.target sm_80\n.address_size 64\n"
           ".visible .entry k(.param .u64 in, .param .u64 out) {\n"
           "  .reg .u64 %i, %o, %b;\n  .reg .u32 %t;\n  .reg ." +
           reg +
           " %v;\n"
           "  ld.param.u64 %i, [in];\n  ld.param.u64 %o, [out];\n"
           "  mov.u32 %t, %tid.x;\n  mul.wide.u32 %b, %t, " +
           bytes +
           ";\n"
           "  add.u64 %i, %i, %b;\n  add.u64 %o, %o, %b;\n"
           "  ld" +
           space + type + " %v, [%i];\n  st" + space + type + " [%o], %v;\n  ret;\n}\n";
}

constexpr uint32_t lanes = 32, elements = 40, rest = elements - lanes;

template <class T>
void copies_within_and_not_beyond(const std::string& space, const std::string& type, const std::string& reg) {
    INFO(space << type);
    Bench bench(copy_kernel(space, type, reg));
    std::vector<T> numbers(elements);
    std::iota(numbers.begin(), numbers.end(), T{1});
    auto in = bench.array(numbers);
    auto out = bench.array<T>(elements);
    auto copy = [&](int64_t from, int64_t to) {
        constexpr auto size = static_cast<int64_t>(sizeof(T));
        return bench.launch("k", {1}, {lanes}, {}, in.address + static_cast<uint64_t>(from * size),
                            out.address + static_cast<uint64_t>(to * size));
    };
    REQUIRE(copy(rest, 0).outcome == Outcome::done);
    for (uint32_t t = 0; t < lanes; ++t) REQUIRE(out[t] == numbers[rest + t]);
    REQUIRE(copy(0, rest).outcome == Outcome::done);
    for (uint32_t t = 0; t < lanes; ++t) REQUIRE(out[rest + t] == numbers[t]);

    auto faults = [&](int64_t from, int64_t to, const std::string& doing, const std::string& thread) {
        auto report = copy(from, to);
        INFO(report.detail);
        CHECK(report.outcome == Outcome::illegal_address);
        CHECK(report.detail.find(doing) != std::string::npos);
        CHECK(report.detail.find("thread (" + thread + ",0,0)") != std::string::npos);
    };
    faults(rest + 1, 0, "read", "31");
    faults(0, rest + 1, "write", "31");
    faults(-1, 0, "read", "0");
    faults(0, -1, "write", "0");
    CHECK(copy(0, 0).outcome == Outcome::done);
}

}  // namespace

TEST_CASE("a row of lanes goes up to the end of memory, and the lane beyond it faults", "[ptx]") {
    for (const char* space : {"", ".global"}) {
        copies_within_and_not_beyond<uint8_t>(space, ".u8", "u16");
        copies_within_and_not_beyond<uint16_t>(space, ".u16", "u16");
        copies_within_and_not_beyond<uint32_t>(space, ".u32", "u32");
        copies_within_and_not_beyond<uint64_t>(space, ".u64", "u64");
    }
}
