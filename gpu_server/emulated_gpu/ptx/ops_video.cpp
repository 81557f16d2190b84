// Video instructions: vadd vsub vabsdiff vmin vmax vshl vshr vmad vset on a part of each register (`%r1.b0`), and the forms
// for two halves or four bytes at once. Arithmetic is done in 64 bits, then clamped or cut.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"

namespace tnr::ptx {
namespace {

enum class Op : uint8_t { add, sub, absdiff, min, max, avrg, shl, shr, mad, set };
enum class Second : uint8_t { none, add, min, max, merge };
enum class Compare : uint8_t { eq, ne, lt, le, gt, ge };

// All that an Instr's operands do not say; it travels in Instr::imm.
struct Video {
    Op op = Op::add;
    Second second = Second::none;
    Compare compare = Compare::eq;
    uint8_t part_d = 0, part_a = 0, part_b = 0;  // as ast::Operand::part
    uint8_t traits = 0;
    uint8_t shift = 0;  // of vmad
};
static_assert(sizeof(Video) == sizeof(int64_t));
enum Trait : uint8_t { signed_d = 1, signed_a = 2, signed_b = 4, saturates = 8, wraps = 16 };

uint32_t bits_of_part(uint8_t part) {
    return part == 0 ? 32 : part <= 4 ? 8 : 16;
}
uint32_t place_of_part(uint8_t part) {
    return part == 0 ? 0 : part <= 4 ? 8u * (part - 1u) : 16u * (part - 5u);
}

int64_t extended(uint32_t value, uint32_t bits, bool is_signed) {
    uint64_t cut = value & ((uint64_t{1} << bits) - 1);
    return is_signed && cut >> (bits - 1) ? static_cast<int64_t>(cut | ~uint64_t{0} << bits)
                                          : static_cast<int64_t>(cut);
}

int64_t clamped(int64_t value, uint32_t bits, bool is_signed) {
    int64_t high = (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
    return std::clamp<int64_t>(value, is_signed ? -high - 1 : 0, high);
}

bool holds(Compare compare, int64_t a, int64_t b) {
    switch (compare) {
        case Compare::eq:
            return a == b;
        case Compare::ne:
            return a != b;
        case Compare::lt:
            return a < b;
        case Compare::le:
            return a <= b;
        case Compare::gt:
            return a > b;
        case Compare::ge:
            return a >= b;
    }
    return false;
}

int64_t primary(const Video& v, int64_t a, int64_t b, int64_t c) {
    auto by = static_cast<uint64_t>(b);
    by = v.traits & wraps ? by & 31 : std::min<uint64_t>(by & 0xffffffff, 32);
    switch (v.op) {
        case Op::add:
            return a + b;
        case Op::sub:
            return a - b;
        case Op::absdiff:
            return std::abs(a - b);
        case Op::min:
            return std::min(a, b);
        case Op::max:
            return std::max(a, b);
        case Op::avrg:
            return (a + b + (a + b >= 0)) >> 1;
        case Op::shl:
            return static_cast<int64_t>(static_cast<uint64_t>(a) << by);
        case Op::shr:
            return a >> by;
        case Op::mad:
            return static_cast<int64_t>((static_cast<__int128>(a) * b + c) >> v.shift);
        case Op::set:
            return holds(v.compare, a, b);
    }
    return 0;
}

// d = second(op(a, b), c)
uint32_t scalar_result(const Video& v, uint32_t a, uint32_t b, uint32_t c) {
    bool is_signed = v.traits & signed_d;
    int64_t wide_c = extended(c, 32, is_signed);
    int64_t result =
        primary(v, extended(a >> place_of_part(v.part_a), bits_of_part(v.part_a), v.traits & signed_a),
                extended(b >> place_of_part(v.part_b), bits_of_part(v.part_b), v.traits & signed_b), wide_c);
    uint32_t bits = bits_of_part(v.part_d), place = place_of_part(v.part_d);
    if (v.traits & saturates) result = clamped(result, bits, is_signed);
    auto narrow = static_cast<uint32_t>(result);
    int64_t wide = extended(narrow, 32, is_signed);
    switch (v.second) {
        case Second::none:
            return narrow;
        case Second::add:
            return narrow + c;
        case Second::min:
            return static_cast<uint32_t>(std::min(wide, wide_c));
        case Second::max:
            return static_cast<uint32_t>(std::max(wide, wide_c));
        case Second::merge:
            break;
    }
    auto mask = static_cast<uint32_t>(((uint64_t{1} << bits) - 1) << place);
    return (c & ~mask) | (narrow << place & mask);
}

template <uint32_t Bits>
uint32_t packed_result(const Video& v, uint32_t a, uint32_t b, uint32_t c) {
    uint32_t packed = 0, sum = c;
    for (uint32_t at = 0; at < 32; at += Bits) {
        int64_t result =
            primary(v, extended(a >> at, Bits, v.traits & signed_a), extended(b >> at, Bits, v.traits & signed_b), 0);
        if (v.traits & saturates) result = clamped(result, Bits, v.traits & signed_d);
        packed |= (static_cast<uint32_t>(result) & ((1u << Bits) - 1)) << at;
        sum += static_cast<uint32_t>(result);
    }
    return v.second == Second::add ? sum : packed;
}

template <auto F>
void video(Warp& w, const Instr& i) {
    auto *d = w.reg<uint32_t>(i.dst), *a = w.reg<uint32_t>(i.a), *b = w.reg<uint32_t>(i.b), *c = w.reg<uint32_t>(i.c);
    auto v = std::bit_cast<Video>(i.imm);
    for_lanes(w.active, [=](uint32_t l) { d[l] = F(v, a[l], b[l], c[l]); });
}

struct Name {
    std::string_view name;
    Op op;
};
constexpr Name names[] = {{"vadd", Op::add}, {"vsub", Op::sub},   {"vabsdiff", Op::absdiff}, {"vmin", Op::min},
                          {"vmax", Op::max}, {"vavrg", Op::avrg}, {"vshl", Op::shl},         {"vshr", Op::shr},
                          {"vmad", Op::mad}, {"vset", Op::set}};

// True when the type is one of u32 and s32, and then whether it is signed.
bool take_sign(Decoder& d, Video& v, Trait trait) {
    auto type = d.take_type();
    if (type == Type::s32) v.traits |= trait;
    return type == Type::s32 || type == Type::u32;
}

bool take_options(Decoder& d, Video& v, uint32_t elements) {
    bool sets = v.op == Op::set;
    if (!sets && !take_sign(d, v, signed_d)) return false;
    if (!take_sign(d, v, signed_a) || !take_sign(d, v, signed_b)) return false;
    if (sets) {
        constexpr std::array<std::string_view, 6> words = {"eq", "ne", "lt", "le", "gt", "ge"};
        auto word = d.take_any_of({"eq", "ne", "lt", "le", "gt", "ge"});
        if (word.empty()) return false;
        v.compare = static_cast<Compare>(std::find(words.begin(), words.end(), word) - words.begin());
    }
    if (d.take("sat")) v.traits |= saturates;
    if (v.op == Op::mad) {
        v.shift = d.take("shr7") ? 7 : d.take("shr15") ? 15 : 0;
        return true;
    }
    if ((v.op == Op::shl || v.op == Op::shr) && d.take("wrap")) v.traits |= wraps;
    d.take("clamp");
    if (d.take("add")) v.second = Second::add;
    if (elements == 1 && d.take("min")) v.second = Second::min;
    if (elements == 1 && d.take("max")) v.second = Second::max;
    return true;
}

}  // namespace

bool decode_video(Decoder& d) {
    auto name = d.inst().name;
    uint32_t elements = name.ends_with('2') ? 2 : name.ends_with('4') ? 4 : 1;
    if (elements > 1) name.remove_suffix(1);
    auto* known = std::find_if(std::begin(names), std::end(names), [&](auto& entry) { return entry.name == name; });
    if (known == std::end(names)) return false;
    Video v{.op = known->op};
    bool shifts = v.op == Op::shl || v.op == Op::shr;
    bool fits = elements == 1 ? v.op != Op::avrg : !shifts && v.op != Op::mad;
    if (!fits || !take_options(d, v, elements)) return d.unsupported(), true;
    v.part_d = d.operand(0).part, v.part_a = d.operand(1).part, v.part_b = d.operand(2).part;
    bool has_c = d.operand_count() > 3;
    if (elements > 1 && (v.part_d || v.part_a || v.part_b)) return d.unsupported(), true;  // masks, exchanged elements
    if (v.part_d && v.op != Op::mad && v.second == Second::none) v.second = Second::merge;
    if ((v.second != Second::none || v.op == Op::mad) && !has_c) return d.fail("an operand is missing"), true;
    auto a = d.source(1, Type::b32), b = d.source(2, Type::b32), c = has_c ? d.source(3, Type::b32) : a;
    auto dst = d.dest(0, Type::b32);
    auto& instr = d.emit(elements == 1   ? video<scalar_result>
                         : elements == 2 ? video<packed_result<16>>
                                         : video<packed_result<8>>);
    instr.dst = dst;
    instr.a = a;
    instr.b = b;
    instr.c = c;
    instr.imm = std::bit_cast<int64_t>(v);
    return true;
}

}  // namespace tnr::ptx
