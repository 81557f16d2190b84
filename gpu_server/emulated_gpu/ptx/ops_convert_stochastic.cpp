// cvt.rs: floats to two or four smaller ones, rounded up when the bits that are cut off and random ones of the program's, added,
// carry out. The ISA does not say where fewer random bits than are cut off begin: here at the most significant of those. Nor
// does it of e2m1x4, which has four bytes of them, in which order: here that of the operands a and b, then of e and f, the
// upper half's byte first.
#include <algorithm>
#include <array>

#include "gpu_server/emulated_gpu/ptx/convert.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"

namespace tnr::ptx::convert {
namespace {

// The random bits of one element: where in the operand they begin, and how many.
struct RandomPart {
    uint8_t shift, bits;
};

struct Packed {
    std::string_view name;
    Format format;
    uint32_t element_bits;
    std::array<RandomPart, 4> random;  // by element, the first operand's first
};
constexpr std::array<RandomPart, 4> of_halves{{{16, 16}, {16, 16}, {0, 16}, {0, 16}}};
constexpr std::array<RandomPart, 4> of_bytes{{{24, 8}, {8, 8}, {16, 8}, {0, 8}}};
constexpr Packed packings[] = {{"f16x2", half_format, 16, {{{16, 13}, {0, 13}}}},
                               {"bf16x2", bfloat_format, 16, {{{16, 16}, {0, 16}}}},
                               {"e4m3x4", e4m3_format, 8, of_halves},
                               {"e5m2x4", e5m2_format, 8, of_halves},
                               {"e2m3x4", e2m3_format, 8, of_halves},
                               {"e3m2x4", e3m2_format, 8, of_halves},
                               {"e2m1x4", e2m1_format, 4, of_bytes}};

uint32_t count_of(const Packed& packed) {
    return packed.element_bits == 16 ? 2 : 4;
}

// The finite value's neighbour in the format towards zero, or the one after it; as large as it gets if there is none.
double rounded(float value, Format format, uint32_t random, uint32_t random_bits) {
    constexpr int mantissa_bits = 23, far_below = 48;  // nothing that is random can carry from so far down
    int exponent = 0, bias = (1 << (format.exponent - 1)) - 1;
    auto whole = static_cast<uint64_t>(std::ldexp(std::frexp(std::fabs(value), &exponent), mantissa_bits + 1));
    int cut = mantissa_bits - format.mantissa + std::max(0, 2 - bias - exponent);
    if (cut > far_below) return std::copysign(0.0, value);
    int room = cut - static_cast<int>(random_bits);
    uint64_t added = room >= 0 ? uint64_t{random} << room : random >> -room;
    uint64_t unit = uint64_t{1} << cut, rest = whole & (unit - 1);
    uint64_t kept = whole - rest + (rest + added >= unit ? unit : 0);
    return std::copysign(std::ldexp(static_cast<double>(kept), exponent - mantissa_bits - 1), value);
}

// a: the random bits; table: the operands; imm: which of `packings`.
void convert_randomly(Warp& w, const Instr& i) {
    auto& packed = packings[i.imm];
    auto* random = w.reg<uint32_t>(i.a);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        uint32_t bits = 0;
        for (uint32_t e = 0; e < count_of(packed); ++e) {
            float value = w.reg<float>(w.program->registers[i.table + e])[lane];
            auto [shift, count] = packed.random[e];
            if ((i.flags & flag_relu) && value < 0) value = 0;
            double kept = std::isfinite(value)
                              ? rounded(value, packed.format, random[lane] >> shift & ((1u << count) - 1), count)
                              : value;
            bits = bits << packed.element_bits | encode(kept, packed.format, Rounding::nearest, i.flags & flag_finite);
        }
        if (packed.element_bits == 4)
            w.reg<uint16_t>(i.dst)[lane] = static_cast<uint16_t>(bits);
        else
            w.reg<uint32_t>(i.dst)[lane] = bits;
    }
}

}  // namespace

// cvt.rs{.relu}{.satfinite}.f16x2.f32 d, a, b, random and cvt.rs{.relu}.satfinite.e4m3x4.f32 d, {a, b, e, f}, random
void decode_stochastic(Decoder& d) {
    uint8_t flags = 0;
    if (d.take("satfinite")) flags |= flag_finite;
    if (d.take("relu")) flags |= flag_relu;
    auto* packed = std::find_if(std::begin(packings), std::end(packings), [&](auto& one) { return d.take(one.name); });
    if (packed == std::end(packings) || !d.take("f32")) return d.unsupported();
    bool four = count_of(*packed) == 4;
    if (four && !(flags & flag_finite)) return d.unsupported();
    std::vector<RegRef> values;
    auto& vector = d.operand(1);
    if (four && (vector.kind != ast::Operand::Kind::vector || vector.parts.size() != 4))
        return d.fail("expected {a, b, e, f}");
    for (uint32_t e = 0; e < count_of(*packed); ++e)
        values.push_back(d.source(four ? vector.parts[e] : d.operand(1 + e), Type::f32));
    auto random = d.source(four ? 2 : 3, Type::b32);
    auto dst = d.dest(0, packed->element_bits == 4 ? Type::b16 : Type::b32);
    auto table = d.add_table(values);
    auto& instr = d.emit(convert_randomly);
    instr.dst = dst;
    instr.a = random;
    instr.table = table;
    instr.imm = packed - std::begin(packings);
    instr.flags = flags;
}

}  // namespace tnr::ptx::convert
