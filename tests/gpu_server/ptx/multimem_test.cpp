// multimem against plain C++: every type, operation and vector that ptxas of CUDA 13.0 takes for sm_90.
#include <functional>

#include "gpu_server/emulated_gpu/ptx/half.hpp"
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

constexpr size_t team_lanes = 32, lane_bytes = 16, devices = 3;
constexpr uint64_t multicast = uint64_t{1} << 40;  // nothing is there

// The same stretch on three devices, for 32 lanes.
struct Multicast {
    explicit Multicast(const std::string& body) : bench(module_of(body, 3)) {
        for (auto& copy : copies) copy = bench.array<uint8_t>(team_lanes * lane_bytes);
        auto& team = bench.memory().teams[multicast];
        team.range = {multicast, multicast + team_lanes * lane_bytes};
        for (auto& copy : copies)
            team.copies.emplace_back(std::shared_ptr<void>(), reinterpret_cast<std::byte*>(copy.data()));
    }
    Report run(uint64_t address = multicast) { return bench.launch("k", {1}, {team_lanes}, {}, address, in, out); }

    Bench bench;
    Array<uint8_t> copies[devices];
    Array<uint8_t> in = bench.array<uint8_t>(team_lanes * lane_bytes),
                   out = bench.array<uint8_t>(team_lanes * lane_bytes);
};

// A lane's address in each of the three parameters, and registers.
const std::string multimem_head =
    ".reg .b64 %a, %in, %out, %lane, %x<9>; .reg .b32 %r<9>, %t; .reg .b16 %h<9>; .reg .f32 %f<9>; .reg .f64 %d<9>;\n"
    "ld.param.u64 %a, [p0]; ld.param.u64 %in, [p1]; ld.param.u64 %out, [p2]; mov.u32 %t, %tid.x;\n"
    "mul.wide.u32 %lane, %t, 16; add.u64 %a, %a, %lane; add.u64 %in, %in, %lane; add.u64 %out, %out, %lane;\n";

struct Element {
    const char* name;
    size_t bytes;  // of a register
    const char* registers;
    const char* plain;  // for ld and st
};
const Element u32{"u32", 4, "%r", "b32"}, s32{"s32", 4, "%r", "b32"}, b32{"b32", 4, "%r", "b32"},
    u64{"u64", 8, "%x", "b64"}, s64{"s64", 8, "%x", "b64"}, b64{"b64", 8, "%x", "b64"}, f16{"f16", 2, "%h", "b16"},
    bf16{"bf16", 2, "%h", "b16"}, f16x2{"f16x2", 4, "%r", "b32"}, bf16x2{"bf16x2", 4, "%r", "b32"},
    f32{"f32", 4, "%f", "f32"}, f64{"f64", 8, "%d", "f64"};

std::string joined(std::initializer_list<std::string> parts) {
    std::string text;
    for (auto& part : parts) text += part;
    return text;
}

std::string list_of(const Element& type, size_t width) {
    std::string list;
    for (size_t e = 1; e <= width; ++e) list += (e > 1 ? ", " : "") + (type.registers + std::to_string(e));
    return width > 1 ? "{" + list + "}" : list;
}
std::string vector_of(size_t width) {
    return width > 1 ? ".v" + std::to_string(width) : "";
}
// ld or st of the elements one by one.
std::string plainly(bool load, const Element& type, size_t width, const char* base) {
    std::string text;
    for (size_t e = 0; e < width; ++e) {
        auto reg = type.registers + std::to_string(e + 1);
        auto place = "[" + std::string(base) + "+" + std::to_string(e * type.bytes) + "]";
        auto operands = load ? joined({reg, ", ", place}) : joined({place, ", ", reg});
        text += joined({load ? "ld.global." : "st.global.", type.plain, " ", operands, ";\n"});
    }
    return text;
}

// What a lane's bytes become: of two by two, in the order of the devices.
template <class T>
using Two = std::function<T(T, T)>;

template <class T>
std::vector<T> values_in(const Array<uint8_t>& memory, size_t lane, size_t count) {
    std::vector<T> values(count);
    std::memcpy(values.data(), memory.data() + lane * lane_bytes, count * sizeof(T));
    return values;
}

// Small numbers of both signs, exact in every type; T's own representation by `make`.
template <class T>
void fill_team(Multicast& world, const std::function<T(int)>& make) {
    unsigned random = 7;
    auto next = [&] { return static_cast<int>((random = random * 1664525 + 1013904223) >> 20) % 200 - 100; };
    auto fill_one = [&](const Array<uint8_t>& array) {
        for (size_t at = 0; at < array.size; at += sizeof(T)) {
            T value = make(next());
            std::memcpy(array.data() + at, &value, sizeof value);
        }
    };
    for (auto& copy : world.copies) fill_one(copy);
    fill_one(world.in);
}

struct Reduction {
    const Element& type;
    std::vector<size_t> widths;
    const char* op;
};

// T: the number that `two` works on; a register may hold two of them.
template <class T>
void check_reduction(const Reduction& row, const std::function<T(int)>& make, const Two<T>& two) {
    for (auto width : row.widths) {
        auto count = width * row.type.bytes / sizeof(T);
        auto name = std::string(row.op) + vector_of(width) + "." + row.type.name;
        CAPTURE(name);
        {
            Multicast world(joined({multimem_head, "multimem.ld_reduce.relaxed.sys.global.", name, " ",
                                    list_of(row.type, width), ", [%a];\n", plainly(false, row.type, width, "%out")}));
            fill_team<T>(world, make);
            REQUIRE(world.run().detail.empty());
            for (size_t lane = 0; lane < team_lanes; ++lane) {
                auto expected = values_in<T>(world.copies[0], lane, count);
                for (size_t d = 1; d < devices; ++d)
                    for (size_t e = 0; e < count; ++e)
                        expected[e] = two(expected[e], values_in<T>(world.copies[d], lane, count)[e]);
                REQUIRE(values_in<T>(world.out, lane, count) == expected);
            }
        }
        Multicast world(joined({multimem_head, plainly(true, row.type, width, "%in"),
                                "multimem.red.release.gpu.global.", name, " [%a], ", list_of(row.type, width), ";"}));
        fill_team<T>(world, make);
        std::vector<std::vector<T>> before;
        for (auto& copy : world.copies)
            for (size_t lane = 0; lane < team_lanes; ++lane) before.push_back(values_in<T>(copy, lane, count));
        REQUIRE(world.run().detail.empty());
        for (size_t d = 0; d < devices; ++d)
            for (size_t lane = 0; lane < team_lanes; ++lane) {
                auto expected = before[d * team_lanes + lane];
                for (size_t e = 0; e < count; ++e)
                    expected[e] = two(expected[e], values_in<T>(world.in, lane, count)[e]);
                REQUIRE(values_in<T>(world.copies[d], lane, count) == expected);
            }
    }
}

template <class T>
T number_as(int value) {
    return static_cast<T>(value);
}
uint16_t half_of(int value) {
    return to_half(value);
}
uint16_t bfloat_of(int value) {
    return to_bfloat(value);
}

template <class T>
void check_whole(const Element& type, bool adds) {
    if (adds) check_reduction<T>({type, {1}, "add"}, number_as<T>, [](T a, T b) { return static_cast<T>(a + b); });
    check_reduction<T>({type, {1}, "min"}, number_as<T>, [](T a, T b) { return std::min(a, b); });
    check_reduction<T>({type, {1}, "max"}, number_as<T>, [](T a, T b) { return std::max(a, b); });
}
template <class T>
void check_bits(const Element& type) {
    check_reduction<T>({type, {1}, "and"}, number_as<T>, [](T a, T b) { return a & b; });
    check_reduction<T>({type, {1}, "or"}, number_as<T>, [](T a, T b) { return a | b; });
    check_reduction<T>({type, {1}, "xor"}, number_as<T>, [](T a, T b) { return a ^ b; });
}
void check_halves(const Element& type, const std::vector<size_t>& widths, uint16_t (*make)(int),
                  float (*value)(uint16_t), uint16_t (*round)(double)) {
    auto in_floats = [=](auto two) { return [=](uint16_t a, uint16_t b) { return round(two(value(a), value(b))); }; };
    check_reduction<uint16_t>({type, widths, "add"}, make, in_floats([](float a, float b) { return a + b; }));
    check_reduction<uint16_t>({type, widths, "min"}, make, in_floats([](float a, float b) { return a < b ? a : b; }));
    check_reduction<uint16_t>({type, widths, "max"}, make, in_floats([](float a, float b) { return a > b ? a : b; }));
}

}  // namespace

TEST_CASE("multimem reduces whole numbers", "[ptx][multimem]") {
    check_whole<uint32_t>(u32, true);
    check_whole<int32_t>(s32, true);
    check_whole<uint64_t>(u64, true);
    check_whole<int64_t>(s64, false);
    check_bits<uint32_t>(b32);
    check_bits<uint64_t>(b64);
}

TEST_CASE("multimem reduces floats and vectors of them", "[ptx][multimem]") {
    check_halves(f16, {2, 4, 8}, half_of, half_to_float, to_half);
    check_halves(bf16, {2, 4, 8}, bfloat_of, bfloat_to_float, to_bfloat);
    check_halves(f16x2, {1, 2, 4}, half_of, half_to_float, to_half);
    check_halves(bf16x2, {1, 2, 4}, bfloat_of, bfloat_to_float, to_bfloat);
    check_reduction<float>({f32, {1, 2, 4}, "add"}, number_as<float>, std::plus<float>());
    check_reduction<double>({f64, {1}, "add"}, number_as<double>, std::plus<double>());
}

TEST_CASE("multimem adds halves in a float where it is told to", "[ptx][multimem]") {
    for (bool narrow : {false, true})
        for (auto* type : {&f16, &f16x2, &bf16, &bf16x2}) {
            CAPTURE(narrow, type->name);
            bool brain = type == &bf16 || type == &bf16x2;
            size_t width = type->bytes == 2 ? 2 : 1;
            Multicast world(multimem_head + "multimem.ld_reduce.weak.global.add" + (narrow ? "" : ".acc::f32") +
                            vector_of(width) + "." + type->name + " " + list_of(*type, width) + ", [%a];\n" +
                            plainly(false, *type, width, "%out"));
            // 2048 and 256: where the next number is 2 away. Three halves' sum is exact in a float only.
            int big = brain ? 256 : 2048;
            const int summands[devices] = {big, 1, 1};
            for (size_t d = 0; d < devices; ++d)
                for (size_t at = 0; at < team_lanes * lane_bytes; at += 2) {
                    uint16_t value = brain ? bfloat_of(summands[d]) : half_of(summands[d]);
                    std::memcpy(world.copies[d].data() + at, &value, sizeof value);
                }
            REQUIRE(world.run().detail.empty());
            uint16_t expected = brain ? bfloat_of(narrow ? big : big + 2) : half_of(narrow ? big : big + 2);
            CHECK(values_in<uint16_t>(world.out, 5, 2) == std::vector<uint16_t>(2, expected));
        }
}

TEST_CASE("multimem stores to every device", "[ptx][multimem]") {
    const std::pair<const Element*, std::vector<size_t>> rows[] = {
        {&u32, {1}},       {&s32, {1}},        {&b32, {1}},         {&u64, {1}},
        {&s64, {1}},       {&b64, {1}},        {&f64, {1}},         {&f32, {1, 2, 4}},
        {&f16, {2, 4, 8}}, {&bf16, {2, 4, 8}}, {&f16x2, {1, 2, 4}}, {&bf16x2, {1, 2, 4}}};
    for (auto& [type, widths] : rows)
        for (auto width : widths)
            for (std::string order : {".weak.global", ".relaxed.sys.global", ".release.gpu", ""}) {
                auto name = "multimem.st" + order + vector_of(width) + "." + type->name;
                CAPTURE(name);
                Multicast world(joined(
                    {multimem_head, plainly(true, *type, width, "%in"), name, " [%a], ", list_of(*type, width), ";"}));
                fill_team<uint8_t>(world, number_as<uint8_t>);
                auto before = values_in<uint8_t>(world.copies[2], 31, lane_bytes);
                REQUIRE(world.run().detail.empty());
                for (auto& copy : world.copies)
                    for (size_t lane = 0; lane < team_lanes; ++lane)
                        REQUIRE(values_in<uint8_t>(copy, lane, width * type->bytes) ==
                                values_in<uint8_t>(world.in, lane, width * type->bytes));
                auto after = values_in<uint8_t>(world.copies[2], 31, lane_bytes);
                CHECK(std::equal(after.begin() + static_cast<int64_t>(width * type->bytes), after.end(),
                                 before.begin() + static_cast<int64_t>(width * type->bytes)));
            }
}

TEST_CASE("an ordinary store to a multicast address goes to every device", "[ptx][multimem]") {
    for (std::string store : {"st.global.b64 [%a], %x1;", "st.relaxed.sys.global.b64 [%a], %x1;",
                              "st.release.sys.b64 [%a], %x1;", "st.global.v2.b32 [%a], {%r1, %r2};"}) {
        CAPTURE(store);
        Multicast world(
            joined({multimem_head, "ld.global.b64 %x1, [%in]; ld.global.v2.b32 {%r1, %r2}, [%in];", store}));
        fill_team<uint8_t>(world, number_as<uint8_t>);
        REQUIRE(world.run().detail.empty());
        for (auto& copy : world.copies)
            for (size_t lane = 0; lane < team_lanes; ++lane)
                REQUIRE(values_in<uint64_t>(copy, lane, 1) == values_in<uint64_t>(world.in, lane, 1));
        CHECK(world.run(multicast + 4).outcome == Outcome::misaligned_address);
        CHECK(world.run(multicast + 16).outcome == Outcome::illegal_address);
    }
    // Beside lanes that store to memory of one device.
    Multicast mixed(multimem_head + ".reg .pred %p; ld.global.b64 %x1, [%in]; setp.lt.u32 %p, %t, 16;" +
                    "@%p mov.u64 %a, %out; st.global.b64 [%a], %x1;");
    fill_team<uint8_t>(mixed, number_as<uint8_t>);
    REQUIRE(mixed.run().detail.empty());
    for (size_t lane = 0; lane < team_lanes; ++lane)
        for (auto& copy : mixed.copies)
            REQUIRE(values_in<uint64_t>(lane < 16 ? mixed.out : copy, lane, 1) ==
                    values_in<uint64_t>(mixed.in, lane, 1));
}

TEST_CASE("multimem faults where there is no team and where an address is not aligned", "[ptx][multimem]") {
    Multicast world(multimem_head + "multimem.st.v2.f32 [%a], {%f1, %f2};");
    CHECK(world.run(multicast + 4).outcome == Outcome::misaligned_address);
    CHECK(world.run(multicast + 16).outcome == Outcome::illegal_address);  // the last lane is beyond the end
    CHECK(world.run(world.in.address).outcome == Outcome::illegal_address);
    Multicast plain(multimem_head + "ld.global.b32 %r1, [%a];");
    CHECK(plain.run().outcome == Outcome::illegal_address);
}

TEST_CASE("what multimem does not have is refused", "[ptx][multimem]") {
    for (const char* text : {"multimem.ld_reduce.add.s64 %x1, [%a]", "multimem.ld_reduce.min.f32 %f1, [%a]",
                             "multimem.red.add.f16 [%a], %h1", "multimem.ld_reduce.and.u32 %r1, [%a]",
                             "multimem.st.v2.u32 [%a], {%r1, %r2}", "multimem.red.add.acc::f32.f16x2 [%a], %r1",
                             "multimem.ld_reduce.add.v8.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, [%a]",
                             "multimem.st.shared.u32 [%a], %r1", "multimem.st.v2.f64 [%a], {%d1, %d2}",
                             "multimem.red.inc.u32 [%a], %r1"}) {
        CAPTURE(text);
        auto loaded = load(module_of(multimem_head + text + ";", 3));
        REQUIRE(!loaded);
        CHECK(loaded.error().what.find("is not supported by the emulated GPU") != std::string::npos);
    }
}
