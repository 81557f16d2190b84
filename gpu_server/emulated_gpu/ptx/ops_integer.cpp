// Integer arithmetic: add sub mul mad div rem abs neg min max sad mul24 mad24 dp4a dp2a.
#include <limits>
#include <type_traits>

#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"

namespace tnr::ptx {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;
// The type twice as wide, in which products fit.
template <class T>
using Twice =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                                          std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

// Sums and low products are those of unsigned numbers of at least 32 bits: no overflow is undefined there.
template <class T>
using Modular = std::conditional_t<sizeof(T) == 2, uint32_t, Unsigned<T>>;

template <class T>
constexpr T add(T a, T b) {
    return static_cast<T>(static_cast<Modular<T>>(a) + static_cast<Modular<T>>(b));
}
template <class T>
constexpr T sub(T a, T b) {
    return static_cast<T>(static_cast<Modular<T>>(a) - static_cast<Modular<T>>(b));
}
template <class T>
constexpr T mul_lo(T a, T b) {
    return static_cast<T>(static_cast<Modular<T>>(a) * static_cast<Modular<T>>(b));
}
template <class T>
constexpr Twice<T> mul_wide(T a, T b) {
    return static_cast<Twice<T>>(a) * static_cast<Twice<T>>(b);
}
template <class T>
constexpr T mul_hi(T a, T b) {
    return static_cast<T>(mul_wide(a, b) >> (8 * sizeof(T)));
}
template <class T>
constexpr T mad_lo(T a, T b, T c) {
    return add(mul_lo(a, b), c);
}
template <class T>
constexpr T mad_hi(T a, T b, T c) {
    return add(mul_hi(a, b), c);
}
template <class T>
constexpr Twice<T> mad_wide(T a, T b, Twice<T> c) {
    return add<Twice<T>>(mul_wide(a, b), c);
}
constexpr int32_t clamp_sum(int64_t sum) {
    constexpr int64_t low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
    return static_cast<int32_t>(sum < low ? low : sum > high ? high : sum);
}
int32_t add_sat(int32_t a, int32_t b) {
    return clamp_sum(int64_t{a} + b);
}
int32_t sub_sat(int32_t a, int32_t b) {
    return clamp_sum(int64_t{a} - b);
}
int32_t mad_hi_sat(int32_t a, int32_t b, int32_t c) {
    return clamp_sum((int64_t{a} * b >> 32) + c);
}

// Hardware does not trap: division by zero gives all ones, the remainder the dividend.
template <class T>
constexpr T div(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return sub<T>(0, a);
    return static_cast<T>(a / b);
}
template <class T>
constexpr T rem(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
}
template <class T>
constexpr T neg(T a) {
    return sub<T>(0, a);
}
template <class T>
constexpr T abs(T a) {
    return a < 0 ? neg(a) : a;
}
template <class T>
constexpr T min(T a, T b) {
    return a < b ? a : b;
}
template <class T>
constexpr T max(T a, T b) {
    return a < b ? b : a;
}
template <class T>
constexpr T max_relu(T a, T b) {
    return max<T>(max(a, b), 0);
}
template <class T>
constexpr T min_relu(T a, T b) {
    return max<T>(min(a, b), 0);
}
template <class T>
constexpr T sad(T a, T b, T c) {
    return add(c, a < b ? sub(b, a) : sub(a, b));
}
template <class T>
constexpr T low24(T a) {
    return static_cast<T>(static_cast<T>(static_cast<uint32_t>(a) << 8) >> 8);
}
template <class T>
constexpr T mul24_lo(T a, T b) {
    return mul_lo(low24(a), low24(b));
}
template <class T>
constexpr T mul24_hi(T a, T b) {
    return static_cast<T>(mul_wide(low24(a), low24(b)) >> 16);
}
template <class T>
constexpr T mad24_lo(T a, T b, T c) {
    return add(mul24_lo(a, b), c);
}
template <class T>
constexpr T mad24_hi(T a, T b, T c) {
    return add(mul24_hi(a, b), c);
}

int32_t mad24_hi_sat(int32_t a, int32_t b, int32_t c) {
    return clamp_sum(int64_t{mul24_hi(a, b)} + c);
}

template <class A, class B>
constexpr uint32_t dp4a(uint32_t a, uint32_t b, uint32_t c) {
    for (int at = 0; at < 32; at += 8)
        c += static_cast<uint32_t>(static_cast<int32_t>(static_cast<A>(a >> at)) *
                                   static_cast<int32_t>(static_cast<B>(b >> at)));
    return c;
}
// b's low or high half holds the two bytes.
template <class A, class B, int Shift>
constexpr uint32_t dp2a(uint32_t a, uint32_t b, uint32_t c) {
    for (int k = 0; k < 2; ++k)
        c += static_cast<uint32_t>(static_cast<int32_t>(static_cast<A>(a >> (16 * k))) *
                                   static_cast<int32_t>(static_cast<B>(b >> (Shift + 8 * k))));
    return c;
}

template <class T, T (*F)(T, T)>
uint32_t on_halves(uint32_t a, uint32_t b) {
    auto low = static_cast<uint16_t>(F(static_cast<T>(a), static_cast<T>(b)));
    auto high = static_cast<uint16_t>(F(static_cast<T>(a >> 16), static_cast<T>(b >> 16)));
    return low | static_cast<uint32_t>(high) << 16;
}

// A handler per integer type; Make<T>::handler() is it.
template <template <class> class Make>
Handler by_type(Type type) {
    switch (type) {
        case Type::u16:
            return Make<uint16_t>::handler();
        case Type::s16:
            return Make<int16_t>::handler();
        case Type::u32:
            return Make<uint32_t>::handler();
        case Type::s32:
            return Make<int32_t>::handler();
        case Type::u64:
            return Make<uint64_t>::handler();
        case Type::s64:
            return Make<int64_t>::handler();
        default:
            return nullptr;
    }
}

#define TNR_UNARY_OP(name, f)                                    \
    template <class T>                                           \
    struct name {                                                \
        static Handler handler() { return unary<T, T, f<T>>(); } \
    };
#define TNR_BINARY_OP(name, f)                                       \
    template <class T>                                               \
    struct name {                                                    \
        static Handler handler() { return binary<T, T, T, f<T>>(); } \
    };
#define TNR_TERNARY_OP(name, f)                                          \
    template <class T>                                                   \
    struct name {                                                        \
        static Handler handler() { return ternary<T, T, T, T, f<T>>(); } \
    };
TNR_BINARY_OP(Add, add)
TNR_BINARY_OP(Sub, sub)
TNR_BINARY_OP(MulLo, mul_lo)
TNR_BINARY_OP(MulHi, mul_hi)
TNR_BINARY_OP(Div, div)
TNR_BINARY_OP(Rem, rem)
TNR_BINARY_OP(Min, min)
TNR_BINARY_OP(Max, max)
TNR_UNARY_OP(Neg, neg)
TNR_UNARY_OP(Abs, abs)
TNR_TERNARY_OP(MadLo, mad_lo)
TNR_TERNARY_OP(MadHi, mad_hi)
TNR_TERNARY_OP(Sad, sad)
#undef TNR_UNARY_OP
#undef TNR_BINARY_OP
#undef TNR_TERNARY_OP

template <class T>
Handler mul24(bool hi, bool mad) {
    if (mad) return hi ? ternary<T, T, T, T, mad24_hi<T>>() : ternary<T, T, T, T, mad24_lo<T>>();
    return hi ? binary<T, T, T, mul24_hi<T>>() : binary<T, T, T, mul24_lo<T>>();
}

Handler wide_handler(Type type, bool mad) {
    switch (type) {
        case Type::u16:
            return mad ? ternary<uint32_t, uint16_t, uint16_t, uint32_t, mad_wide<uint16_t>>()
                       : binary<uint32_t, uint16_t, uint16_t, mul_wide<uint16_t>>();
        case Type::s16:
            return mad ? ternary<int32_t, int16_t, int16_t, int32_t, mad_wide<int16_t>>()
                       : binary<int32_t, int16_t, int16_t, mul_wide<int16_t>>();
        case Type::u32:
            return mad ? ternary<uint64_t, uint32_t, uint32_t, uint64_t, mad_wide<uint32_t>>()
                       : binary<uint64_t, uint32_t, uint32_t, mul_wide<uint32_t>>();
        case Type::s32:
            return mad ? ternary<int64_t, int32_t, int32_t, int64_t, mad_wide<int32_t>>()
                       : binary<int64_t, int32_t, int32_t, mul_wide<int32_t>>();
        default:
            return nullptr;
    }
}

Handler packed_handler(Decoder& d, std::string_view name, Type type) {
    bool is_signed = type == Type::s16x2, relu = d.take("relu");
    if (name == "add") return binary<uint32_t, uint32_t, uint32_t, on_halves<uint16_t, add<uint16_t>>>();
    if (name == "min" && relu) return binary<uint32_t, uint32_t, uint32_t, on_halves<int16_t, min_relu<int16_t>>>();
    if (name == "max" && relu) return binary<uint32_t, uint32_t, uint32_t, on_halves<int16_t, max_relu<int16_t>>>();
    if (name == "min")
        return is_signed ? binary<uint32_t, uint32_t, uint32_t, on_halves<int16_t, min<int16_t>>>()
                         : binary<uint32_t, uint32_t, uint32_t, on_halves<uint16_t, min<uint16_t>>>();
    if (name == "max")
        return is_signed ? binary<uint32_t, uint32_t, uint32_t, on_halves<int16_t, max<int16_t>>>()
                         : binary<uint32_t, uint32_t, uint32_t, on_halves<uint16_t, max<uint16_t>>>();
    return nullptr;
}

Handler two_operand_handler(Decoder& d, std::string_view name, Type type) {
    if (type == Type::u16x2 || type == Type::s16x2) return packed_handler(d, name, type);
    if (name == "add" && d.take("sat"))
        return type == Type::s32 ? binary<int32_t, int32_t, int32_t, add_sat>() : nullptr;
    if (name == "sub" && d.take("sat"))
        return type == Type::s32 ? binary<int32_t, int32_t, int32_t, sub_sat>() : nullptr;
    if (name == "max" && type == Type::s32 && d.take("relu"))
        return binary<int32_t, int32_t, int32_t, max_relu<int32_t>>();
    if (name == "min" && type == Type::s32 && d.take("relu"))
        return binary<int32_t, int32_t, int32_t, min_relu<int32_t>>();
    if (name == "add") return by_type<Add>(type);
    if (name == "sub") return by_type<Sub>(type);
    if (name == "div") return by_type<Div>(type);
    if (name == "rem") return by_type<Rem>(type);
    if (name == "min") return by_type<Min>(type);
    return name == "max" ? by_type<Max>(type) : nullptr;
}

void emit_operands(Decoder& d, Handler handler, Type dst, Type ab, Type c, int sources) {
    if (!handler) return d.unsupported();
    RegRef refs[4] = {};
    for (int s = 0; s < sources; ++s) refs[s] = d.source(static_cast<size_t>(s) + 1, s == 2 ? c : ab);
    auto to = d.dest(0, dst);
    auto& instr = d.emit(handler);
    instr.dst = to;
    instr.a = refs[0];
    instr.b = refs[1];
    instr.c = refs[2];
}

Type twice(Type type) {
    switch (type) {
        case Type::u16:
            return Type::u32;
        case Type::s16:
            return Type::s32;
        case Type::u32:
            return Type::u64;
        default:
            return Type::s64;
    }
}

void decode_product(Decoder& d, Type type, bool mad) {
    int sources = mad ? 3 : 2;
    if (d.take("wide")) return emit_operands(d, wide_handler(type, mad), twice(type), type, twice(type), sources);
    if (d.take("lo"))
        return emit_operands(d, mad ? by_type<MadLo>(type) : by_type<MulLo>(type), type, type, type, sources);
    if (!d.take("hi")) return d.unsupported();
    if (mad && d.take("sat"))
        return emit_operands(d, type == Type::s32 ? ternary<int32_t, int32_t, int32_t, int32_t, mad_hi_sat>() : nullptr,
                             type, type, type, 3);
    emit_operands(d, mad ? by_type<MadHi>(type) : by_type<MulHi>(type), type, type, type, sources);
}

void decode_dot(Decoder& d, bool four) {
    bool low = d.take("lo"), high = d.take("hi");
    auto a = d.take_type(), b = d.take_type();
    if ((!four && low == high) || (a != Type::u32 && a != Type::s32) || (b != Type::u32 && b != Type::s32))
        return d.unsupported();
    auto pick = [&](Handler uu, Handler us, Handler su, Handler ss) {
        return a == Type::u32 ? (b == Type::u32 ? uu : us) : (b == Type::u32 ? su : ss);
    };
    using W = uint32_t;
    Handler handler;
    if (four)
        handler = pick(ternary<W, W, W, W, dp4a<uint8_t, uint8_t>>(), ternary<W, W, W, W, dp4a<uint8_t, int8_t>>(),
                       ternary<W, W, W, W, dp4a<int8_t, uint8_t>>(), ternary<W, W, W, W, dp4a<int8_t, int8_t>>());
    else if (low)
        handler =
            pick(ternary<W, W, W, W, dp2a<uint16_t, uint8_t, 0>>(), ternary<W, W, W, W, dp2a<uint16_t, int8_t, 0>>(),
                 ternary<W, W, W, W, dp2a<int16_t, uint8_t, 0>>(), ternary<W, W, W, W, dp2a<int16_t, int8_t, 0>>());
    else
        handler =
            pick(ternary<W, W, W, W, dp2a<uint16_t, uint8_t, 16>>(), ternary<W, W, W, W, dp2a<uint16_t, int8_t, 16>>(),
                 ternary<W, W, W, W, dp2a<int16_t, uint8_t, 16>>(), ternary<W, W, W, W, dp2a<int16_t, int8_t, 16>>());
    emit_operands(d, handler, Type::b32, Type::b32, Type::b32, 3);
}

bool is_integer(Type type) {
    return (type >= Type::u16 && type <= Type::u64) || (type >= Type::s16 && type <= Type::s64) ||
           type == Type::u16x2 || type == Type::s16x2;
}

}  // namespace

bool decode_integer(Decoder& d) {
    auto name = d.inst().name;
    if (name == "dp4a" || name == "dp2a") return decode_dot(d, name == "dp4a"), true;
    bool two = name == "add" || name == "sub" || name == "div" || name == "rem" || name == "min" || name == "max";
    bool product = name == "mul" || name == "mad" || name == "mul24" || name == "mad24";
    bool one = name == "neg" || name == "abs";
    if (!two && !product && !one && name != "sad") return false;
    for (auto modifier : d.inst().modifiers)
        if (modifier == "cc") return false;
    if (!is_integer(d.last_type())) return false;  // floating point's business
    auto type = d.take_type();
    if (two) {
        emit_operands(d, two_operand_handler(d, name, type), type, type, type, 2);
    } else if (name == "mul24" || name == "mad24") {
        bool hi = d.take("hi"), mad = name == "mad24";
        if (!hi && !d.take("lo")) return d.unsupported(), true;
        bool sat = hi && mad && type == Type::s32 && d.take("sat");
        auto handler = sat                 ? ternary<int32_t, int32_t, int32_t, int32_t, mad24_hi_sat>()
                       : type == Type::u32 ? mul24<uint32_t>(hi, mad)
                       : type == Type::s32 ? mul24<int32_t>(hi, mad)
                                           : nullptr;
        emit_operands(d, handler, type, type, type, mad ? 3 : 2);
    } else if (product) {
        decode_product(d, type, name == "mad");
    } else if (name == "sad") {
        emit_operands(d, by_type<Sad>(type), type, type, type, 3);
    } else {
        emit_operands(d, name == "neg" ? by_type<Neg>(type) : by_type<Abs>(type), type, type, type, 1);
    }
    return true;
}

}  // namespace tnr::ptx
