// Logic and bit fields: and or xor not cnot lop3 shl shr shf popc clz brev bfe bfi bfind fns prmt szext bmsk.
#include <algorithm>

#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"

namespace tnr::ptx {
namespace {

template <class T>
constexpr T bit_and(T a, T b) {
    return a & b;
}
template <class T>
constexpr T bit_or(T a, T b) {
    return a | b;
}
template <class T>
constexpr T bit_xor(T a, T b) {
    return a ^ b;
}
template <class T>
constexpr T bit_not(T a) {
    return static_cast<T>(~a);
}
template <class T>
constexpr T logical_not(T a) {
    return a == 0 ? 1 : 0;
}

void predicate_and(Warp& w, const Instr& i) {
    w.set_mask(i.dst, w.active, w.mask(i.a) & w.mask(i.b));
}
void predicate_or(Warp& w, const Instr& i) {
    w.set_mask(i.dst, w.active, w.mask(i.a) | w.mask(i.b));
}
void predicate_xor(Warp& w, const Instr& i) {
    w.set_mask(i.dst, w.active, w.mask(i.a) ^ w.mask(i.b));
}

// Shift amounts beyond the width give zero, or the sign.
template <class T>
constexpr T shift_left(T a, uint32_t by) {
    return by < 8 * sizeof(T) ? static_cast<T>(static_cast<uint64_t>(a) << by) : T{0};
}
template <class T>
constexpr T shift_right(T a, uint32_t by) {
    constexpr uint32_t width = 8 * sizeof(T);
    if (by >= width) return std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0};
    return static_cast<T>(a >> by);
}

constexpr uint32_t funnel_left_wrap(uint32_t low, uint32_t high, uint32_t by) {
    by &= 31;
    return by ? high << by | low >> (32 - by) : high;
}
constexpr uint32_t funnel_left_clamp(uint32_t low, uint32_t high, uint32_t by) {
    return by >= 32 ? low : funnel_left_wrap(low, high, by);
}
constexpr uint32_t funnel_right_wrap(uint32_t low, uint32_t high, uint32_t by) {
    by &= 31;
    return by ? high << (32 - by) | low >> by : low;
}
constexpr uint32_t funnel_right_clamp(uint32_t low, uint32_t high, uint32_t by) {
    return by >= 32 ? high : funnel_right_wrap(low, high, by);
}

template <class T>
uint32_t count_ones(T a) {
    return static_cast<uint32_t>(std::popcount(a));
}
template <class T>
uint32_t count_leading(T a) {
    return static_cast<uint32_t>(std::countl_zero(a));
}

template <class T>
constexpr T reversed(T a) {
    T result = 0;
    for (size_t bit = 0; bit < 8 * sizeof(T); ++bit, a >>= 1) result = static_cast<T>(result << 1 | (a & 1));
    return result;
}

template <class T>
constexpr T field(T a, uint32_t position, uint32_t length) {
    using U = std::make_unsigned_t<T>;
    constexpr uint32_t width = 8 * sizeof(T);
    position &= 255;
    length &= 255;
    if (length == 0) return 0;
    uint32_t last = std::min(position + length - 1, width - 1);
    bool sign = std::is_signed_v<T> && (static_cast<U>(a) >> last & 1);
    U bits = position < width ? static_cast<U>(a) >> position : 0;
    if (length < width) {
        U mask = (U{1} << length) - 1;
        bits &= mask;
        // The sign fills what lies above the field, also where the field goes beyond the register.
        uint32_t known = position > last ? 0 : last - position + 1;
        if (sign) bits |= known >= width ? 0 : static_cast<U>(~U{0}) << known;
    } else if (sign && position > 0) {
        bits |= position >= width ? ~U{0} : static_cast<U>(~U{0}) << (width - position);
    }
    return static_cast<T>(bits);
}

template <class T>
void insert_field(Warp& w, const Instr& i) {
    constexpr uint32_t width = 8 * sizeof(T);
    auto *d = w.reg<T>(i.dst), *a = w.reg<T>(i.a), *b = w.reg<T>(i.b);
    auto *c = w.reg<uint32_t>(i.c), *n = w.reg<uint32_t>(i.d);
    for_lanes(w.active, [=](uint32_t l) {
        uint32_t position = c[l] & 255, length = n[l] & 255;
        T ones = length >= width ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << length) - 1);
        T mask = position >= width ? T{0} : static_cast<T>(ones << position);
        T moved = position >= width ? T{0} : static_cast<T>(a[l] << position);
        d[l] = (b[l] & ~mask) | (moved & mask);
    });
}

// The place of the highest bit that differs from the sign; ~0 where there is none.
template <class T, bool Shift>
uint32_t find_highest(T a) {
    using U = std::make_unsigned_t<T>;
    U bits = static_cast<U>(std::is_signed_v<T> && a < 0 ? ~a : a);
    if (bits == 0) return ~0u;
    auto leading = static_cast<uint32_t>(std::countl_zero(bits));
    return Shift ? leading : static_cast<uint32_t>(8 * sizeof(T)) - 1 - leading;
}

uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t bytes = uint64_t{b} << 32 | a;
    uint32_t result = 0;
    for (int k = 0; k < 4; ++k) {
        uint32_t s = selector >> (4 * k) & 15;
        auto byte = static_cast<uint32_t>(bytes >> (8 * (s & 7)) & 255);
        if (s & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << (8 * k);
    }
    return result;
}
// The named modes: which byte of b:a each byte of the result is, by the low two bits of c.
constexpr uint32_t permute_modes[6][4] = {
    {0x3210, 0x4321, 0x5432, 0x6543},  // f4e
    {0x5670, 0x6701, 0x7012, 0x0123},  // b4e
    {0x0000, 0x1111, 0x2222, 0x3333},  // rc8
    {0x3210, 0x3211, 0x3222, 0x3333},  // ecl
    {0x0000, 0x1110, 0x2210, 0x3210},  // ecr
    {0x1010, 0x3232, 0x1010, 0x3232},  // rc16
};
template <int Mode>
uint32_t permute_mode(uint32_t a, uint32_t b, uint32_t c) {
    return permute(a, b, permute_modes[Mode][c & 3]);
}

void lop3(Warp& w, const Instr& i) {
    auto *d = w.reg<uint32_t>(i.dst), *a = w.reg<uint32_t>(i.a), *b = w.reg<uint32_t>(i.b), *c = w.reg<uint32_t>(i.c);
    uint32_t m[8];  // the table's bit for each of the eight combinations, as a mask
    for (int k = 0; k < 8; ++k) m[k] = i.imm >> k & 1 ? ~0u : 0u;
    for_lanes(w.active, [=](uint32_t l) {
        uint32_t x = a[l], y = b[l], z = c[l];
        uint32_t without = (~y & ((~z & m[0]) | (z & m[1]))) | (y & ((~z & m[2]) | (z & m[3])));
        uint32_t with = (~y & ((~z & m[4]) | (z & m[5]))) | (y & ((~z & m[6]) | (z & m[7])));
        d[l] = (~x & without) | (x & with);
    });
}

// fns: the offset-th set bit at or after base, counting down when negative.
uint32_t find_nth_set(uint32_t mask, uint32_t base, int32_t offset) {
    if (base > 31) return ~0u;
    int step = offset < 0 ? -1 : 1;
    int64_t left = offset < 0 ? -int64_t{offset} : offset;
    if (offset == 0) return mask >> base & 1 ? base : ~0u;
    for (int at = static_cast<int>(base); at >= 0 && at < 32; at += step)
        if ((mask >> at & 1) && --left == 0) return static_cast<uint32_t>(at);
    return ~0u;
}

uint32_t bit_mask(uint32_t position, uint32_t length, bool wrap) {
    if (wrap) position &= 31, length &= 31;
    if (position > 31 || length == 0) return 0;
    uint32_t ones = length > 31 ? ~0u : (1u << length) - 1;
    return ones << position;
}
uint32_t bit_mask_clamp(uint32_t position, uint32_t length) {
    return bit_mask(position, length, false);
}
uint32_t bit_mask_wrap(uint32_t position, uint32_t length) {
    return bit_mask(position, length, true);
}

void emit(Decoder& d, Handler handler, Type to, std::initializer_list<Type> from) {
    if (!handler) return d.unsupported();
    RegRef refs[4] = {};
    size_t k = 0;
    for (auto type : from) refs[k] = d.source(k + 1, type), ++k;
    auto dst = d.dest(0, to);
    auto& instr = d.emit(handler);
    instr.dst = dst;
    instr.a = refs[0];
    instr.b = refs[1];
    instr.c = refs[2];
    instr.d = refs[3];
}

template <class T>
Handler logic_of(std::string_view name) {
    if (name == "and") return binary<T, T, T, bit_and<T>>();
    if (name == "or") return binary<T, T, T, bit_or<T>>();
    if (name == "xor") return binary<T, T, T, bit_xor<T>>();
    return name == "not" ? unary<T, T, bit_not<T>>() : unary<T, T, logical_not<T>>();
}

Handler logic_handler(std::string_view name, Type type) {
    if (type == Type::pred) {
        if (name == "cnot") return nullptr;
        return name == "and"   ? predicate_and
               : name == "or"  ? predicate_or
               : name == "xor" ? predicate_xor
                               : not_predicate_handler();
    }
    switch (size_of(type)) {
        case 2:
            return logic_of<uint16_t>(name);
        case 4:
            return logic_of<uint32_t>(name);
        case 8:
            return logic_of<uint64_t>(name);
        default:
            return nullptr;
    }
}

template <class U, class S>
Handler shift_handler(bool left, bool arithmetic) {
    if (left) return binary<U, U, uint32_t, shift_left<U>>();
    return arithmetic ? binary<S, S, uint32_t, shift_right<S>>() : binary<U, U, uint32_t, shift_right<U>>();
}

void decode_shift(Decoder& d, bool left) {
    auto type = d.take_type();
    bool arithmetic = is_signed(type);
    Handler handler = size_of(type) == 2   ? shift_handler<uint16_t, int16_t>(left, arithmetic)
                      : size_of(type) == 4 ? shift_handler<uint32_t, int32_t>(left, arithmetic)
                      : size_of(type) == 8 ? shift_handler<uint64_t, int64_t>(left, arithmetic)
                                           : nullptr;
    emit(d, handler, type, {type, Type::u32});
}

void decode_funnel(Decoder& d) {
    bool left = d.take("l"), wrap = d.take("wrap");
    if ((!left && !d.take("r")) || (!wrap && !d.take("clamp")) || !d.take("b32")) return d.unsupported();
    using W = uint32_t;
    Handler handler =
        left ? (wrap ? ternary<W, W, W, W, funnel_left_wrap>() : ternary<W, W, W, W, funnel_left_clamp>())
             : (wrap ? ternary<W, W, W, W, funnel_right_wrap>() : ternary<W, W, W, W, funnel_right_clamp>());
    emit(d, handler, Type::b32, {Type::b32, Type::b32, Type::u32});
}

void decode_count(Decoder& d, std::string_view name) {
    auto type = d.take_type();
    bool wide = type == Type::b64;
    if (!wide && type != Type::b32) return d.unsupported();
    if (name == "brev")
        return emit(
            d, wide ? unary<uint64_t, uint64_t, reversed<uint64_t>>() : unary<uint32_t, uint32_t, reversed<uint32_t>>(),
            type, {type});
    if (name == "popc")
        return emit(d,
                    wide ? unary<uint32_t, uint64_t, count_ones<uint64_t>>()
                         : unary<uint32_t, uint32_t, count_ones<uint32_t>>(),
                    Type::u32, {type});
    emit(d,
         wide ? unary<uint32_t, uint64_t, count_leading<uint64_t>>()
              : unary<uint32_t, uint32_t, count_leading<uint32_t>>(),
         Type::u32, {type});
}

template <class T>
Handler highest_handler(bool shift) {
    return shift ? unary<uint32_t, T, find_highest<T, true>>() : unary<uint32_t, T, find_highest<T, false>>();
}

void decode_find_highest(Decoder& d) {
    bool shift = d.take("shiftamt");
    auto type = d.take_type();
    Handler handler = type == Type::u32   ? highest_handler<uint32_t>(shift)
                      : type == Type::s32 ? highest_handler<int32_t>(shift)
                      : type == Type::u64 ? highest_handler<uint64_t>(shift)
                      : type == Type::s64 ? highest_handler<int64_t>(shift)
                                          : nullptr;
    emit(d, handler, Type::u32, {type});
}

template <class T>
Handler field_handler() {
    return ternary<T, T, uint32_t, uint32_t, field<T>>();
}

void decode_field(Decoder& d) {
    auto type = d.take_type();
    Handler handler = type == Type::u32   ? field_handler<uint32_t>()
                      : type == Type::s32 ? field_handler<int32_t>()
                      : type == Type::u64 ? field_handler<uint64_t>()
                      : type == Type::s64 ? field_handler<int64_t>()
                                          : nullptr;
    emit(d, handler, type, {type, Type::u32, Type::u32});
}

void decode_permute(Decoder& d) {
    if (!d.take("b32")) return d.unsupported();
    using W = uint32_t;
    Handler handler = ternary<W, W, W, W, permute>();
    if (d.take("f4e"))
        handler = ternary<W, W, W, W, permute_mode<0>>();
    else if (d.take("b4e"))
        handler = ternary<W, W, W, W, permute_mode<1>>();
    else if (d.take("rc8"))
        handler = ternary<W, W, W, W, permute_mode<2>>();
    else if (d.take("ecl"))
        handler = ternary<W, W, W, W, permute_mode<3>>();
    else if (d.take("ecr"))
        handler = ternary<W, W, W, W, permute_mode<4>>();
    else if (d.take("rc16"))
        handler = ternary<W, W, W, W, permute_mode<5>>();
    emit(d, handler, Type::b32, {Type::b32, Type::b32, Type::b32});
}

// The low b bits of a, extended by their sign or by zeros; none gives 0.
template <class T, bool Wrap>
uint32_t cut_and_extended(uint32_t a, uint32_t b) {
    uint32_t bits = Wrap ? b & 31 : std::min(b, 32u);
    if (bits == 0) return 0;
    return static_cast<uint32_t>(static_cast<T>(a << (32 - bits)) >> (32 - bits));
}

void decode_extend(Decoder& d) {
    bool wrap = d.take("wrap");
    if (!wrap && !d.take("clamp")) return d.unsupported();
    using W = uint32_t;
    auto type = d.take_type();
    Handler handler = type == Type::s32   ? (wrap ? binary<W, W, W, cut_and_extended<int32_t, true>>()
                                                  : binary<W, W, W, cut_and_extended<int32_t, false>>())
                      : type == Type::u32 ? (wrap ? binary<W, W, W, cut_and_extended<uint32_t, true>>()
                                                  : binary<W, W, W, cut_and_extended<uint32_t, false>>())
                                          : nullptr;
    emit(d, handler, type, {type, Type::u32});
}

// p = (a != 0) op q; b: q, count: or.
void nonzero_with(Warp& w, const Instr& i) {
    auto* a = w.reg<uint32_t>(i.a);
    uint32_t truth = lanes_where(w.active, [=](uint32_t l) { return a[l] != 0; });
    w.set_mask(i.dst, w.active, i.count ? truth | w.mask(i.b) : truth & w.mask(i.b));
}

// lop3.or.b32 d|p, a, b, c, table, q
void decode_lop3_predicate(Decoder& d, bool with_or) {
    auto& results = d.operand(0);
    if (results.kind != ast::Operand::Kind::pair) return d.fail("expected d|p");
    if (d.operand(4).kind != ast::Operand::Kind::integer) return d.fail("expected the table as a constant");
    auto a = d.source(1, Type::b32), b = d.source(2, Type::b32), c = d.source(3, Type::b32);
    auto q = d.predicate(d.operand(5)), p = d.predicate_dest(results.parts[1]);
    auto dst = d.dest(results.parts[0], Type::b32);
    auto& logic = d.emit(lop3);
    logic.dst = dst;
    logic.a = a;
    logic.b = b;
    logic.c = c;
    logic.imm = d.operand(4).value;
    auto& truth = d.emit(nonzero_with);
    truth.dst = p;
    truth.a = dst;
    truth.b = q;
    truth.count = with_or;
}

void decode_lop3(Decoder& d) {
    bool with_or = d.take("or"), with_and = d.take("and");
    if (!d.take("b32")) return d.unsupported();
    if (with_or || with_and) return decode_lop3_predicate(d, with_or);
    if (d.operand(4).kind != ast::Operand::Kind::integer) return d.fail("expected the table as a constant");
    emit(d, lop3, Type::b32, {Type::b32, Type::b32, Type::b32});
    if (!d.failed()) d.program().code.back().imm = d.operand(4).value;
}

}  // namespace

bool decode_bits(Decoder& d) {
    auto name = d.inst().name;
    if (name == "and" || name == "or" || name == "xor") {
        auto type = d.take_type();
        emit(d, logic_handler(name, type), type, {type, type});
    } else if (name == "not" || name == "cnot") {
        auto type = d.take_type();
        emit(d, logic_handler(name, type), type, {type});
    } else if (name == "shl" || name == "shr")
        decode_shift(d, name == "shl");
    else if (name == "shf")
        decode_funnel(d);
    else if (name == "popc" || name == "clz" || name == "brev")
        decode_count(d, name);
    else if (name == "bfind")
        decode_find_highest(d);
    else if (name == "bfe")
        decode_field(d);
    else if (name == "bfi") {
        auto type = d.take_type();
        auto handler = type == Type::b32   ? insert_field<uint32_t>
                       : type == Type::b64 ? insert_field<uint64_t>
                                           : nullptr;
        emit(d, handler, type, {type, type, Type::u32, Type::u32});
    } else if (name == "prmt")
        decode_permute(d);
    else if (name == "szext")
        decode_extend(d);
    else if (name == "lop3")
        decode_lop3(d);
    else if (name == "fns") {
        d.take("b32");
        emit(d, ternary<uint32_t, uint32_t, uint32_t, int32_t, find_nth_set>(), Type::b32,
             {Type::b32, Type::b32, Type::s32});
    } else if (name == "bmsk") {
        bool wrap = d.take("wrap");
        d.take("clamp");
        d.take("b32");
        emit(d,
             wrap ? binary<uint32_t, uint32_t, uint32_t, bit_mask_wrap>()
                  : binary<uint32_t, uint32_t, uint32_t, bit_mask_clamp>(),
             Type::b32, {Type::b32, Type::b32});
    } else {
        return false;
    }
    return true;
}

}  // namespace tnr::ptx
