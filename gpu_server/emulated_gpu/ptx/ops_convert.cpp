// cvt among all types. Values pass through the widest type that holds the source exactly: __int128 for
// integers, double for floats (long double is not needed: the only inexact way, 64-bit integers to
// floats, is done directly). The target's rounding and saturation follow.
#include <cfenv>
#include <cmath>
#include <limits>

#include "gpu_server/emulated_gpu/ptx/convert.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"

namespace tnr::ptx {
namespace {

using namespace convert;

double to_integral(double value, Rounding rounding) {
    switch (rounding) {
        case Rounding::zero:
            return std::trunc(value);
        case Rounding::down:
            return std::floor(value);
        case Rounding::up:
            return std::ceil(value);
        case Rounding::away:
            return std::round(value);
        case Rounding::nearest:
            return std::nearbyint(value);
    }
    return value;
}

// Integer to integer: wraps, or with .sat clamps to the target's range.
template <class D, class S>
void integer_to_integer(Warp& w, const Instr& i) {
    bool sat = i.flags & flag_sat;
    auto* d = w.reg<D>(i.dst);
    auto* a = w.reg<S>(i.a);
    if (!sat) return assign_lanes(w.active, d, [=](uint32_t l) { return static_cast<D>(a[l]); });
    for_lanes(w.active, [=](uint32_t l) {
        auto wide = static_cast<__int128>(a[l]);
        auto low = static_cast<__int128>(std::numeric_limits<D>::min());
        auto high = static_cast<__int128>(std::numeric_limits<D>::max());
        d[l] = static_cast<D>(wide < low ? low : wide > high ? high : wide);
    });
}

// What NaN becomes: 0, but with 64 bits on either side the highest bit alone.
template <class D, class Stored>
constexpr D nan_as_integer = sizeof(D) == 8 || sizeof(Stored) == 8
                                 ? static_cast<D>(std::make_unsigned_t<D>(uint64_t{1} << (8 * sizeof(D) - 1)))
                                 : D{0};

// Float to integer always clamps.
template <class D, class Stored>
D to_integer(double value, Rounding rounding) {
    if (value != value) return nan_as_integer<D, Stored>;
    value = to_integral(value, rounding);
    constexpr double low = static_cast<double>(std::numeric_limits<D>::min());
    const double beyond = std::ldexp(1.0, std::numeric_limits<D>::digits);
    if (value < low) return std::numeric_limits<D>::min();
    if (value >= beyond) return std::numeric_limits<D>::max();
    return static_cast<D>(value);
}

struct F32 {
    using Stored = float;
    static double value(float stored, uint8_t flags) { return flags & flag_ftz ? flushed(stored) : stored; }
};
struct F64 {
    using Stored = double;
    static double value(double stored, uint8_t) { return stored; }
};
struct F16 {
    using Stored = uint16_t;
    static double value(uint16_t stored, uint8_t) { return half_to_float(stored); }
};
struct Bf16 {
    using Stored = uint16_t;
    static double value(uint16_t stored, uint8_t flags) {
        float value = bfloat_to_float(stored);
        return flags & flag_ftz ? flushed(value) : value;
    }
};

template <class D, class V>
void float_to_integer(Warp& w, const Instr& i) {
    auto* d = w.reg<D>(i.dst);
    using Stored = typename V::Stored;
    auto* a = w.reg<Stored>(i.a);
    auto rounding = mode_of(i).rounding;
    uint8_t flags = i.flags;
    if (rounding == Rounding::zero)  // a C++ cast; by itself it becomes vector code
        return assign_lanes(w.active, d,
                            [=](uint32_t l) { return to_integer<D, Stored>(V::value(a[l], flags), Rounding::zero); });
    for_lanes(w.active, [=](uint32_t l) { d[l] = to_integer<D, Stored>(V::value(a[l], flags), rounding); });
}

float narrowed(double value, Rounding rounding) {
    if (rounding == Rounding::nearest) return static_cast<float>(value);
    std::fesetround(host_rounding(rounding));
    volatile double source = value;
    volatile float result = static_cast<float>(source);
    std::fesetround(FE_TONEAREST);
    return result;
}

double saturated(double value) {
    return value >= 0 ? (value > 1 ? 1 : value) : 0;
}

// Float to float. A double holds every source; rounding happens once, here.
template <class V>
typename V::Stored from_double(double value, Rounding rounding, uint8_t flags) {
    if (flags & flag_sat) value = saturated(value);
    if ((flags & flag_relu) && !(value > 0)) value = value != value ? value : 0;
    if constexpr (std::is_same_v<V, F64>) {
        return value;
    } else if constexpr (std::is_same_v<V, F32>) {
        if (value != value) return std::bit_cast<float>(0x7fffffffu);
        float result = narrowed(value, rounding);
        return flags & flag_ftz ? flushed(result) : result;
    } else {
        return static_cast<uint16_t>(
            encode(value, std::is_same_v<V, F16> ? half_format : bfloat_format, rounding, flags & flag_finite));
    }
}

template <class D, class S>
void float_to_float(Warp& w, const Instr& i) {
    auto* d = w.reg<typename D::Stored>(i.dst);
    auto* a = w.reg<typename S::Stored>(i.a);
    auto mode = mode_of(i);
    uint8_t flags = i.flags;
    if constexpr (std::is_same_v<D, F32> || std::is_same_v<D, F64>) {
        if (!mode.integral && mode.rounding == Rounding::nearest)
            return assign_lanes(w.active, d, [=](uint32_t l) {
                return from_double<D>(S::value(a[l], flags), Rounding::nearest, flags);
            });
    }
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto l = static_cast<uint32_t>(std::countr_zero(rest));
        double value = S::value(a[l], flags);
        if (mode.integral) value = to_integral(value, mode.rounding);
        d[l] = from_double<D>(value, mode.integral ? Rounding::nearest : mode.rounding, flags);
    }
}

void half_to_float_fast(Warp& w, const Instr& i) {
    auto* d = w.reg<float>(i.dst);
    auto* a = w.reg<uint16_t>(i.a);
    for_lanes(w.active, [=](uint32_t l) { d[l] = half_to_float(a[l]); });
}

// 64-bit integers do not fit a double: the host converts them itself, in the right mode.
template <class D, class S>
void integer_to_float(Warp& w, const Instr& i) {
    auto* d = w.reg<typename D::Stored>(i.dst);
    auto* a = w.reg<S>(i.a);
    auto rounding = mode_of(i).rounding;
    if constexpr (std::is_same_v<D, F32> || std::is_same_v<D, F64>) {
        if (rounding == Rounding::nearest && !(i.flags & flag_sat))
            return assign_lanes(w.active, d, [=](uint32_t l) { return static_cast<typename D::Stored>(a[l]); });
    }
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto l = static_cast<uint32_t>(std::countr_zero(rest));
        if constexpr (std::is_same_v<D, F32> || std::is_same_v<D, F64>) {
            std::fesetround(host_rounding(rounding));
            volatile S source = a[l];
            volatile typename D::Stored result = static_cast<typename D::Stored>(source);
            std::fesetround(FE_TONEAREST);
            typename D::Stored kept = result;
            d[l] = i.flags & flag_sat ? static_cast<typename D::Stored>(saturated(kept)) : kept;
        } else {
            // Beyond 2^53 bits are lost to a sticky last bit, which is all the small format's rounding needs.
            auto wide = static_cast<__int128>(a[l]);
            bool negative = wide < 0;
            auto size = static_cast<uint64_t>(negative ? -wide : wide);
            if (size >> 53) size = (size & ~uint64_t{2047}) | (size & 2047 ? 2048 : 0);
            double value = static_cast<double>(size);
            d[l] = from_double<D>(negative ? -value : value, rounding, i.flags);
        }
    }
}

// An integer type as a kind of value, beside F32 and its like.
template <class T>
struct Whole {
    using Stored = T;
};

template <class D, class S>
Handler conversion_of(Whole<D>, Whole<S>) {
    return integer_to_integer<D, S>;
}
template <class D, class S>
Handler conversion_of(Whole<D>, S) {
    return float_to_integer<D, S>;
}
template <class D, class S>
Handler conversion_of(D, Whole<S>) {
    return integer_to_float<D, S>;
}
template <class D, class S>
Handler conversion_of(D, S) {
    return float_to_float<D, S>;
}

// `use` of the kind of value that `type` is; null when it is none of these.
template <class Use>
Handler with_kind(Type type, Use&& use) {
    switch (type) {
        case Type::u8:
        case Type::b8:
            return use(Whole<uint8_t>{});
        case Type::u16:
        case Type::b16:
            return use(Whole<uint16_t>{});
        case Type::u32:
        case Type::b32:
            return use(Whole<uint32_t>{});
        case Type::u64:
        case Type::b64:
            return use(Whole<uint64_t>{});
        case Type::s8:
            return use(Whole<int8_t>{});
        case Type::s16:
            return use(Whole<int16_t>{});
        case Type::s32:
            return use(Whole<int32_t>{});
        case Type::s64:
            return use(Whole<int64_t>{});
        case Type::f32:
            return use(F32{});
        case Type::f64:
            return use(F64{});
        case Type::f16:
            return use(F16{});
        case Type::bf16:
            return use(Bf16{});
        default:
            return nullptr;
    }
}

bool is_bits(Type type) {
    return type == Type::b8 || type == Type::b16 || type == Type::b32 || type == Type::b64;
}

Handler conversion(Type to, Type from) {
    if (is_float(to) && is_bits(from)) return nullptr;  // bits have no value that a float could take
    return with_kind(to,
                     [&](auto d) { return with_kind(from, [&](auto s) -> Handler { return conversion_of(d, s); }); });
}

bool take_mode(Decoder& d, Mode& mode) {
    struct Named {
        std::string_view name;
        Mode mode;
    };
    static constexpr Named all[] = {
        {"rn", {Rounding::nearest, false}}, {"rz", {Rounding::zero, false}},  {"rm", {Rounding::down, false}},
        {"rp", {Rounding::up, false}},      {"rna", {Rounding::away, false}}, {"rni", {Rounding::nearest, true}},
        {"rzi", {Rounding::zero, true}},    {"rmi", {Rounding::down, true}},  {"rpi", {Rounding::up, true}},
    };
    for (auto& named : all)
        if (d.take(named.name)) return mode = named.mode, true;
    return false;
}

Type unsigned_of(uint32_t bytes) {
    return bytes == 1 ? Type::u8 : bytes == 2 ? Type::u16 : bytes == 4 ? Type::u32 : Type::u64;
}

// A source register wider than the type is cut: its lanes lie further apart, so it is copied first.
RegRef narrow_source(Decoder& d, Type from) {
    uint32_t bytes = 0;
    auto a = d.loose_source(d.operand(1), from, bytes);
    if (d.failed() || bytes == size_of(from)) return a;
    auto narrow = d.temporary(from);
    finish(d.emit(conversion(unsigned_of(size_of(from)), unsigned_of(bytes))), narrow, a, 0, {});
    return narrow;
}

void decode_cvt(Decoder& d) {
    if (d.take("pack")) return decode_pack(d);
    if (d.take("rs")) return decode_stochastic(d);
    Mode mode;
    bool has_mode = take_mode(d, mode);
    uint8_t flags = 0;
    if (d.take("ftz")) flags |= flag_ftz;
    if (d.take("sat")) flags |= flag_sat;
    if (d.take("satfinite")) flags |= flag_finite;
    if (d.take("relu")) flags |= flag_relu;
    auto to = d.take_type(), from = d.take_type();
    if (to == Type::f16x2 || to == Type::bf16x2 || is_tiny(to)) return decode_packed(d, to, from, flags, mode);
    if (to == Type::tf32) return decode_tf32(d, flags, mode);
    auto handler = conversion(to, from);
    if (!handler) return d.unsupported();
    if (!has_mode && is_float(from) && !is_float(to)) mode = {Rounding::zero, true};
    if (to == Type::f32 && from == Type::f16 && flags == 0 && !mode.integral) handler = half_to_float_fast;
    auto a = narrow_source(d, from);
    uint32_t bytes = 0;
    auto dst = d.loose_dest(d.operand(0), to, bytes);
    if (d.failed()) return;
    if (bytes == size_of(to)) return finish(d.emit(handler), dst, a, flags, mode);
    // A register wider than the type is filled by the type's own extension.
    auto narrow = d.temporary(to);
    finish(d.emit(handler), narrow, a, flags, mode);
    finish(d.emit(conversion(unsigned_of(bytes), is_signed(to) ? to : unsigned_of(size_of(to)))), dst, narrow, 0, {});
}

}  // namespace

bool decode_convert(Decoder& d) {
    if (d.inst().name != "cvt") return false;
    decode_cvt(d);
    return true;
}

}  // namespace tnr::ptx
