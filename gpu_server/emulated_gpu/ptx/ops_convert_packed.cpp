// cvt to and from two values in one register, and to tf32: see convert.hpp.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "gpu_server/emulated_gpu/ptx/convert.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"

namespace tnr::ptx::convert {
namespace {

// cvt.rn.f16x2.f32 d, a, b: a becomes the high half. imm: which format.
void pack_pair(Warp& w, const Instr& i) {
    auto* d = w.reg<uint32_t>(i.dst);
    auto *a = w.reg<float>(i.a), *b = w.reg<float>(i.b);
    auto rounding = mode_of(i).rounding;
    Format format = i.imm == 0 ? half_format : bfloat_format;
    auto convert = [&](float x) {
        double value = i.flags & flag_ftz ? flushed(x) : x;
        if ((i.flags & flag_relu) && value < 0) value = 0;
        return encode(value, format, rounding, i.flags & flag_finite);
    };
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto l = static_cast<uint32_t>(std::countr_zero(rest));
        d[l] = convert(a[l]) << 16 | convert(b[l]);
    }
}

// Formats of a byte or less, two of which lie in a register: each in a byte, those of four bits in a nibble.
struct Tiny {
    Type pair;
    Format format;
};
constexpr Tiny tinies[] = {{Type::e4m3x2, e4m3_format}, {Type::e5m2x2, e5m2_format}, {Type::e2m1x2, e2m1_format},
                           {Type::e2m3x2, e2m3_format}, {Type::e3m2x2, e3m2_format}, {Type::ue8m0x2, {8, 0}}};
enum class From : uint8_t { floats, halves, bfloats };
// Instr::imm of these.
struct TinyPair {
    uint8_t tiny = 0;
    From from = From::floats;
    uint8_t reserved[6] = {};
};

// ue8m0: a power of two without a sign, or NaN (0xff).
uint32_t encode_power(double value, Rounding rounding, bool saturate) {
    constexpr uint32_t bias = 127, largest = 0xfe, nan = 0xff;
    if (value != value) return nan;
    value = std::fabs(value);
    if (value <= 0x1p-127) return 0;
    if (std::isinf(value)) return saturate ? largest : nan;
    int exponent = std::ilogb(value);
    if (rounding == Rounding::up && std::ldexp(1.0, exponent) < value) ++exponent;
    auto bits = static_cast<uint32_t>(exponent + static_cast<int>(bias));
    return bits <= largest ? bits : saturate ? largest : nan;
}

uint32_t encode_tiny(double value, const Tiny& tiny, Rounding rounding, uint8_t flags) {
    if (tiny.pair == Type::ue8m0x2) return encode_power(value, rounding, flags & flag_finite);
    return encode((flags & flag_relu) && value < 0 ? 0 : value, tiny.format, Rounding::nearest, true);
}

double decode_tiny(uint32_t bits, const Tiny& tiny) {
    if (tiny.pair != Type::ue8m0x2) return decode_bits_of(bits, tiny.format);
    return bits == 0xff ? NAN : std::ldexp(1.0, static_cast<int>(bits) - 127);
}

double half_of(uint32_t packed, From from) {
    auto bits = static_cast<uint16_t>(packed);
    return from == From::halves ? half_to_float(bits) : bfloat_to_float(bits);
}

// cvt.rn.satfinite.e4m3x2.f32 d, a, b and .e4m3x2.f16x2 d, a. D: the register.
template <class D>
void pack_tiny(Warp& w, const Instr& i) {
    auto* d = w.reg<D>(i.dst);
    auto [index, from, unused] = std::bit_cast<TinyPair>(i.imm);
    auto& tiny = tinies[index];
    auto rounding = mode_of(i).rounding;
    constexpr int half = 4 * sizeof(D);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto l = static_cast<uint32_t>(std::countr_zero(rest));
        uint32_t packed = w.reg<uint32_t>(i.a)[l];
        double high = from == From::floats ? w.reg<float>(i.a)[l] : half_of(packed >> 16, from);
        double low = from == From::floats ? w.reg<float>(i.b)[l] : half_of(packed, from);
        d[l] = static_cast<D>(encode_tiny(high, tiny, rounding, i.flags) << half |
                              encode_tiny(low, tiny, rounding, i.flags));
    }
}

// cvt.rn.f16x2.e4m3x2 d, a; to bf16x2 from ue8m0x2.
template <class A>
void unpack_tiny(Warp& w, const Instr& i) {
    auto* d = w.reg<uint32_t>(i.dst);
    auto* a = w.reg<A>(i.a);
    auto [index, to, unused] = std::bit_cast<TinyPair>(i.imm);
    auto& tiny = tinies[index];
    constexpr int half = 4 * sizeof(A);
    auto one = [&, to = to](uint32_t bits) -> uint32_t {
        double value = decode_tiny(bits & ((1u << half) - 1), tiny);
        if ((i.flags & flag_relu) && value < 0) value = 0;
        return to == From::halves ? to_half(value) : to_bfloat(value);
    };
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto l = static_cast<uint32_t>(std::countr_zero(rest));
        uint32_t bits = a[l];
        d[l] = one(bits >> half) << 16 | one(bits);
    }
}

uint8_t tiny_index(Type type) {
    auto* found = std::find_if(std::begin(tinies), std::end(tinies), [&](auto& tiny) { return tiny.pair == type; });
    return static_cast<uint8_t>(found - std::begin(tinies));
}

void decode_from_tiny(Decoder& d, Type to, Type from, uint8_t flags, Mode mode) {
    if (to != (from == Type::ue8m0x2 ? Type::bf16x2 : Type::f16x2)) return d.unsupported();
    auto a = d.source(1, from);
    auto dst = d.dest(0, Type::b32);
    auto& instr = d.emit(size_of(from) == 1 ? unpack_tiny<uint8_t> : unpack_tiny<uint16_t>);
    finish(instr, dst, a, flags, mode);
    instr.imm = std::bit_cast<int64_t>(
        TinyPair{.tiny = tiny_index(from), .from = to == Type::f16x2 ? From::halves : From::bfloats});
}

void decode_to_tiny(Decoder& d, Type to, Type from, uint8_t flags, Mode mode) {
    bool power = to == Type::ue8m0x2;
    if (from != Type::f32 && from != (power ? Type::bf16x2 : Type::f16x2)) return d.unsupported();
    bool floats = from == Type::f32;
    auto a = d.source(1, floats ? Type::f32 : Type::b32), b = floats ? d.source(2, Type::f32) : a;
    auto dst = d.dest(0, to);
    auto& instr = d.emit(size_of(to) == 1 ? pack_tiny<uint8_t> : pack_tiny<uint16_t>);
    finish(instr, dst, a, flags, mode);
    instr.b = b;
    instr.imm = std::bit_cast<int64_t>(TinyPair{.tiny = tiny_index(to),
                                                .from = floats  ? From::floats
                                                        : power ? From::bfloats
                                                                : From::halves});
}

void to_tf32(Warp& w, const Instr& i) {
    auto* d = w.reg<uint32_t>(i.dst);
    auto* a = w.reg<float>(i.a);
    auto rounding = mode_of(i).rounding;
    bool relu = i.flags & flag_relu;
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto l = static_cast<uint32_t>(std::countr_zero(rest));
        double value = relu && a[l] < 0 ? 0 : a[l];
        d[l] = encode(value, tf32_format, rounding, i.flags & flag_finite) << 13;
    }
}

}  // namespace

bool is_tiny(Type type) {
    return tiny_index(type) < std::size(tinies);
}

void decode_packed(Decoder& d, Type to, Type from, uint8_t flags, Mode mode) {
    if (is_tiny(from)) return decode_from_tiny(d, to, from, flags, mode);
    if (is_tiny(to)) return decode_to_tiny(d, to, from, flags, mode);
    if (from != Type::f32) return d.unsupported();
    auto a = d.source(1, Type::f32), b = d.source(2, Type::f32), dst = d.dest(0, Type::b32);
    auto& instr = d.emit(pack_pair);
    finish(instr, dst, a, flags, mode);
    instr.b = b;
    instr.imm = to == Type::bf16x2;
}

// cvt.pack.sat.u8.s32{.b32} d, a, b{, c}: a and b clamped to the type, beside each other, c's low part above them.
void pack_integers(Warp& w, const Instr& i) {
    auto* d = w.reg<uint32_t>(i.dst);
    auto *a = w.reg<int32_t>(i.a), *b = w.reg<int32_t>(i.b);
    auto* c = w.reg<uint32_t>(i.c);
    uint32_t bits = i.count, mask = (1u << bits) - 1;
    auto low = static_cast<int32_t>(i.flags ? -(1 << (bits - 1)) : 0);
    auto high = static_cast<int32_t>((1u << (i.flags ? bits - 1 : bits)) - 1);
    assign_lanes(w.active, d, [=](uint32_t l) {
        auto clamp = [=](int32_t value) { return static_cast<uint32_t>(std::clamp(value, low, high)) & mask; };
        uint32_t above = bits < 16 ? c[l] << (2 * bits) : 0;
        return above | clamp(a[l]) << bits | clamp(b[l]);
    });
}

void decode_pack(Decoder& d) {
    static constexpr std::pair<std::string_view, uint16_t> widths[] = {{"16", 16}, {"8", 8}, {"4", 4}, {"2", 2}};
    if (!d.take("sat")) return d.unsupported();
    uint16_t bits = 0;
    bool is_signed = false;
    for (auto& [name, width] : widths) {
        if (bits) break;
        is_signed = d.take("s" + std::string(name));
        if (is_signed || d.take("u" + std::string(name))) bits = width;
    }
    bool has_c = d.take("b32");
    if (!bits || !d.take("s32") || (bits < 8 && !has_c)) return d.unsupported();
    auto a = d.source(1, Type::s32), b = d.source(2, Type::s32);
    auto c = has_c ? d.source(3, Type::b32) : d.constant(0, 4);
    auto dst = d.dest(0, Type::b32);
    auto& instr = d.emit(pack_integers);
    instr.dst = dst;
    instr.a = a;
    instr.b = b;
    instr.c = c;
    instr.count = bits;
    instr.flags = is_signed;
}

void decode_tf32(Decoder& d, uint8_t flags, Mode mode) {
    auto a = d.source(1, Type::f32);
    auto dst = d.dest(0, Type::b32);
    finish(d.emit(to_tf32), dst, a, flags, mode);
}

}  // namespace tnr::ptx::convert
