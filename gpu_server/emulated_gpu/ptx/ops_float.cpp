// f32 and f64 arithmetic. The default is round to nearest; other roundings change the host's mode around
// the loop (all operands are in memory, so the compiler cannot move the arithmetic out of it). What
// hardware approximates is computed by the host's library: closer, never further.
#include <algorithm>
#include <cfenv>
#include <cmath>

#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/half.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"

namespace tnr::ptx {
namespace {

enum Flag : uint8_t { flag_ftz = 1, flag_sat = 2, flag_nan = 4, flag_xorsign = 8, flag_abs = 16 };

// What hardware makes of an invalid operation.
template <class T>
T canonical(T value) {
    if (value == value) return value;
    if constexpr (sizeof(T) == 4)
        return std::bit_cast<float>(0x7fffffffu);
    else
        return value;
}

template <class T>
T add(T a, T b) {
    return a + b;
}
template <class T>
T sub(T a, T b) {
    return a - b;
}
template <class T>
T mul(T a, T b) {
    return a * b;
}
template <class T>
T divide(T a, T b) {
    return a / b;
}
template <class T>
T fma(T a, T b, T c) {
    return std::fma(a, b, c);
}
template <class T>
T reciprocal(T a) {
    return T{1} / a;
}
template <class T>
T root(T a) {
    return std::sqrt(a);
}
template <class T>
T reciprocal_root(T a) {
    return static_cast<T>(1.0 / std::sqrt(double{a}));
}
template <class T>
T negated(T a) {
    return -a;
}
template <class T>
T magnitude(T a) {
    return std::fabs(a);
}
// A NaN gives the other operand; -0 is below +0.
template <class T>
T smaller(T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
}
template <class T>
T larger(T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    return a > b || (a == b && !std::signbit(a)) ? a : b;
}
// copysign takes the sign of its first operand.
template <class T>
T with_sign(T a, T b) {
    return std::copysign(b, a);
}
float sine(float a) {
    return std::sin(a);
}
float cosine(float a) {
    return std::cos(a);
}
float tangent(float a) {
    return std::tanh(a);
}
float exp2_of(float a) {
    return std::exp2(a);
}
float log2_of(float a) {
    return std::log2(a);
}

float clamp01(float value) {
    return value >= 0 ? (value > 1 ? 1.0f : value) : 0.0f;
}  // NaN gives 0
double clamp01(double value) {
    return value >= 0 ? (value > 1 ? 1.0 : value) : 0.0;
}

template <class T>
T finish(T value, uint8_t flags) {
    if constexpr (sizeof(T) == 4)
        if (flags & flag_ftz) value = flushed(value);
    if (flags & flag_sat) value = clamp01(value);
    return canonical(value);
}
template <class T>
T start(T value, uint8_t flags) {
    if constexpr (sizeof(T) == 4)
        return flags & flag_ftz ? flushed(value) : value;
    else
        return value;
}

// Round to nearest, no flushing, no saturation.
template <class T, auto F>
void plain2(Warp& w, const Instr& i) {
    auto *a = w.reg<T>(i.a), *b = w.reg<T>(i.b);
    assign_lanes(w.active, w.reg<T>(i.dst), [=](uint32_t l) { return canonical(F(a[l], b[l])); });
}
template <class T>
void plain_fma(Warp& w, const Instr& i) {
    auto *a = w.reg<T>(i.a), *b = w.reg<T>(i.b), *c = w.reg<T>(i.c);
    assign_lanes(w.active, w.reg<T>(i.dst), [=](uint32_t l) { return canonical(std::fma(a[l], b[l], c[l])); });
}

template <class T, int Sources, auto F>
T with_flags(T a, T b, T c, uint8_t flags) {
    T x = start(a, flags);
    if constexpr (Sources == 1)
        return finish<T>(F(x), flags);
    else if constexpr (Sources == 2)
        return finish<T>(F(x, start(b, flags)), flags);
    else
        return finish<T>(F(x, start(b, flags), start(c, flags)), flags);
}

// Whatever `flags` say; rounds as the host's mode is. Never inlined: the arithmetic must stay between changes of the mode.
template <class T, int Sources, auto F>
[[gnu::noinline]] void as_host_rounds(Warp& w, const Instr& i) {
    auto *a = w.reg<T>(i.a), *b = w.reg<T>(i.b), *c = w.reg<T>(i.c);
    assign_lanes(w.active, w.reg<T>(i.dst),
                 [=, flags = i.flags](uint32_t l) { return with_flags<T, Sources, F>(a[l], b[l], c[l], flags); });
}

// .f32x2: two floats in a register of 64 bits.
template <int Sources, auto F>
[[gnu::noinline]] void pairs_as_host_rounds(Warp& w, const Instr& i) {
    auto *a = w.reg<float>(i.a), *b = w.reg<float>(i.b), *c = w.reg<float>(i.c), *d = w.reg<float>(i.dst);
    for_lanes(w.active, [=, flags = i.flags](uint32_t l) {
        for (uint32_t k = 2 * l; k < 2 * l + 2; ++k) d[k] = with_flags<float, Sources, F>(a[k], b[k], c[k], flags);
    });
}

// Every form: `count` is the rounding, `flags` the rest.
template <Handler AsHostRounds>
void rounded(Warp& w, const Instr& i) {
    int mode = host_rounding(static_cast<Rounding>(i.count));
    if (mode == FE_TONEAREST) return AsHostRounds(w, i);
    std::fesetround(mode);
    AsHostRounds(w, i);
    std::fesetround(FE_TONEAREST);
}
template <class T, int Sources, auto F>
constexpr Handler careful = rounded<as_host_rounds<T, Sources, F>>;
template <int Sources, auto F>
constexpr Handler pairs = rounded<pairs_as_host_rounds<Sources, F>>;

template <class T, bool Max>
T extreme_of(T a, T b, uint8_t flags) {
    T x = start(a, flags), y = start(b, flags);
    bool sign = std::signbit(x) != std::signbit(y);
    if (flags & (flag_xorsign | flag_abs)) x = std::fabs(x), y = std::fabs(y);
    T result = Max ? larger(x, y) : smaller(x, y);
    if ((flags & flag_nan) && (x != x || y != y))
        result = std::numeric_limits<T>::quiet_NaN();
    else if (flags & flag_xorsign)
        result = std::copysign(result, sign ? T{-1} : T{1});
    return canonical(result);
}

template <class T, bool Max>
void extreme(Warp& w, const Instr& i) {
    auto *a = w.reg<T>(i.a), *b = w.reg<T>(i.b);
    assign_lanes(w.active, w.reg<T>(i.dst),
                 [=, flags = i.flags](uint32_t l) { return extreme_of<T, Max>(a[l], b[l], flags); });
}

template <bool Max>
void extreme_of_three(Warp& w, const Instr& i) {
    auto *a = w.reg<float>(i.a), *b = w.reg<float>(i.b), *c = w.reg<float>(i.c);
    assign_lanes(w.active, w.reg<float>(i.dst), [=, flags = i.flags](uint32_t l) {
        return extreme_of<float, Max>(extreme_of<float, Max>(a[l], b[l], flags), c[l], flags);
    });
}

// A half or bfloat among the operands of an instruction that computes in float.
template <auto ToFloat>
void widen(Warp& w, const Instr& i) {
    auto* a = w.reg<uint16_t>(i.a);
    auto* d = w.reg<float>(i.dst);
    for_lanes(w.active, [=](uint32_t l) { d[l] = ToFloat(a[l]); });
}

template <class T>
void test_property(Warp& w, const Instr& i) {
    auto* a = w.reg<T>(i.a);
    auto what = i.count;
    w.set_mask(i.dst, w.active, lanes_where(w.active, [=](uint32_t l) {
                   switch (what) {
                       case 0:
                           return std::isfinite(a[l]);
                       case 1:
                           return std::isinf(a[l]);
                       case 2:
                           return !std::isnan(a[l]);
                       case 3:
                           return std::isnan(a[l]);
                       case 4:
                           return std::isnormal(a[l]);
                       default:
                           return std::fpclassify(a[l]) == FP_SUBNORMAL;
                   }
               }));
}

struct Options {
    uint8_t flags = 0;
    Rounding rounding = Rounding::nearest;
    bool approximate = false;
    bool plain() const { return flags == 0 && (rounding == Rounding::nearest || approximate); }
};

Options take_options(Decoder& d) {
    Options o;
    if (d.take("ftz")) o.flags |= flag_ftz;
    if (d.take("sat")) o.flags |= flag_sat;
    o.approximate = d.take("approx") || d.take("full");
    if (d.take("rn"))
        o.rounding = Rounding::nearest;
    else if (d.take("rz"))
        o.rounding = Rounding::zero;
    else if (d.take("rm"))
        o.rounding = Rounding::down;
    else if (d.take("rp"))
        o.rounding = Rounding::up;
    return o;
}

void emit_refs(Decoder& d, Handler handler, Type type, const RegRef (&refs)[3], const Options& o) {
    auto dst = d.dest(0, type);
    auto& instr = d.emit(handler);
    instr.dst = dst;
    instr.a = refs[0];
    instr.b = refs[1];
    instr.c = refs[2];
    instr.flags = o.flags;
    instr.count = static_cast<uint16_t>(o.rounding);
}

void emit(Decoder& d, Handler handler, Type type, int sources, const Options& o) {
    if (!handler) return d.unsupported();
    RegRef refs[3] = {};
    for (int s = 0; s < sources; ++s) refs[s] = d.source(static_cast<size_t>(s) + 1, type);
    for (int s = sources; s < 3; ++s) refs[s] = refs[0];
    emit_refs(d, handler, type, refs, o);
}

// add.f32.f16 d, a, c; fma.f32.bf16 d, a, b, c: all but the last are of the small type.
void decode_mixed(Decoder& d, Type small, std::string_view name) {
    auto o = take_options(d);
    if (d.take_type() != Type::f32 || d.take_type() != small || (o.flags & flag_ftz)) return d.unsupported();
    Handler handler = name == "fma"   ? careful<float, 3, fma<float>>
                      : name == "add" ? careful<float, 2, add<float>>
                                      : careful<float, 2, sub<float>>;
    size_t sources = name == "fma" ? 3 : 2;
    RegRef refs[3] = {};
    for (size_t s = 0; s + 1 < sources; ++s) {
        auto a = d.source(s + 1, small);
        refs[s] = d.temporary(Type::f32);
        auto& widening = d.emit(small == Type::f16 ? widen<half_to_float> : widen<bfloat_to_float>);
        widening.dst = refs[s];
        widening.a = a;
    }
    refs[sources - 1] = d.source(sources, Type::f32);
    if (sources == 2) refs[2] = refs[0];
    emit_refs(d, handler, Type::f32, refs, o);
}

Handler pair_handler(std::string_view name) {
    if (name == "add") return pairs<2, add<float>>;
    if (name == "sub") return pairs<2, sub<float>>;
    if (name == "mul") return pairs<2, mul<float>>;
    return name == "fma" ? pairs<3, fma<float>> : nullptr;
}

template <class T>
Handler two_operands(std::string_view name, const Options& o) {
    if (name == "add") return o.plain() ? fitted<plain2<T, add<T>>>() : careful<T, 2, add<T>>;
    if (name == "sub") return o.plain() ? fitted<plain2<T, sub<T>>>() : careful<T, 2, sub<T>>;
    if (name == "mul") return o.plain() ? fitted<plain2<T, mul<T>>>() : careful<T, 2, mul<T>>;
    if (name == "div") return o.plain() ? fitted<plain2<T, divide<T>>>() : careful<T, 2, divide<T>>;
    return binary<T, T, T, with_sign<T>>();
}

template <class T>
Handler one_operand(std::string_view name) {
    if (name == "rcp") return careful<T, 1, reciprocal<T>>;
    if (name == "sqrt") return careful<T, 1, root<T>>;
    if (name == "rsqrt") return careful<T, 1, reciprocal_root<T>>;
    if constexpr (sizeof(T) == 4) {
        if (name == "sin") return careful<float, 1, sine>;
        if (name == "cos") return careful<float, 1, cosine>;
        if (name == "tanh") return careful<float, 1, tangent>;
        if (name == "ex2") return careful<float, 1, exp2_of>;
        if (name == "lg2") return careful<float, 1, log2_of>;
    }
    return nullptr;
}

// neg and abs change the sign bit and nothing else, of a NaN too.
template <class T>
Handler sign_operand(std::string_view name, const Options& o) {
    if (o.flags) return name == "neg" ? careful<T, 1, negated<T>> : careful<T, 1, magnitude<T>>;
    return name == "neg" ? unary<T, T, negated<T>>() : unary<T, T, magnitude<T>>();
}

void decode_extreme(Decoder& d, Type type, bool max) {
    Options o;
    if (d.take("ftz")) o.flags |= flag_ftz;
    if (d.take("NaN")) o.flags |= flag_nan;
    if (d.take("xorsign")) {
        if (!d.take("abs")) return d.unsupported();
        o.flags |= flag_xorsign;
    } else if (d.take("abs")) {
        o.flags |= flag_abs;
    }
    if (d.operand_count() == 4 && type == Type::f32 && !(o.flags & flag_xorsign))
        return emit(d, max ? extreme_of_three<true> : extreme_of_three<false>, type, 3, o);
    if (o.flags & flag_abs) return d.unsupported();
    Handler narrow = max ? extreme<float, true> : extreme<float, false>;
    Handler wide = max ? extreme<double, true> : extreme<double, false>;
    emit(d, type == Type::f32 ? narrow : wide, type, 2, o);
}

void decode_testp(Decoder& d, Type type) {
    static constexpr std::string_view names[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
    for (uint16_t k = 0; k < 6; ++k) {
        if (!d.take(names[k])) continue;
        auto a = d.source(1, type);
        auto dst = d.predicate_dest(d.operand(0));
        auto& instr = d.emit(type == Type::f32 ? test_property<float> : test_property<double>);
        instr.dst = dst;
        instr.a = a;
        instr.count = k;
        return;
    }
    d.unsupported();
}

}  // namespace

bool decode_float(Decoder& d) {
    auto name = d.inst().name;
    bool two = name == "add" || name == "sub" || name == "mul" || name == "div" || name == "copysign";
    bool one = name == "rcp" || name == "sqrt" || name == "rsqrt" || name == "sin" || name == "cos" || name == "tanh" ||
               name == "ex2" || name == "lg2";
    bool sign = name == "neg" || name == "abs", extremes = name == "min" || name == "max";
    bool fused = name == "fma" || name == "mad";
    if (!two && !one && !sign && !extremes && !fused && name != "testp") return false;
    auto last = d.last_type();
    bool to_float = std::find(d.inst().modifiers.begin(), d.inst().modifiers.end(), "f32") != d.inst().modifiers.end();
    if ((last == Type::f16 || last == Type::bf16) && to_float && (name == "add" || name == "sub" || name == "fma"))
        return decode_mixed(d, last, name), true;
    if (last != Type::f32 && last != Type::f64 && last != Type::f32x2) return false;
    auto type = d.take_type();
    if (type != last) return d.unsupported(), true;
    bool narrow = type == Type::f32;
    if (type == Type::f32x2 && (extremes || name == "testp")) return d.unsupported(), true;
    if (extremes) return decode_extreme(d, type, name == "max"), true;
    if (name == "testp") return decode_testp(d, type), true;
    auto o = take_options(d);
    if (type == Type::f32x2) return emit(d, pair_handler(name), type, fused ? 3 : 2, o), true;
    if (two) {
        emit(d, narrow ? two_operands<float>(name, o) : two_operands<double>(name, o), type, 2, o);
    } else if (fused) {
        Handler handler = narrow ? (o.plain() ? fitted<plain_fma<float>>() : careful<float, 3, fma<float>>)
                                 : (o.plain() ? fitted<plain_fma<double>>() : careful<double, 3, fma<double>>);
        emit(d, handler, type, 3, o);
    } else if (one) {
        emit(d, narrow ? one_operand<float>(name) : one_operand<double>(name), type, 1, o);
    } else {
        emit(d, narrow ? sign_operand<float>(name, o) : sign_operand<double>(name, o), type, 1, o);
    }
    return true;
}

}  // namespace tnr::ptx
