// f16, bf16 and their pairs: add sub mul fma neg abs min max ex2 tanh. Each operation is done in float or
// double, where it is exact or as good as, and rounded once to the format.
#include <cmath>

#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/half.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"
#include "gpu_server/emulated_gpu/ptx/tensor_map.hpp"

namespace tnr::ptx {
namespace {

enum Flag : uint8_t { flag_sat = 1, flag_relu = 2, flag_nan = 4, flag_ftz = 8, flag_xorsign = 16, flag_oob = 32 };

struct Half {
    static constexpr uint16_t infinity = 0x7c00, smallest_normal = 0x0400;
    static double load(uint16_t bits) { return half_to_float(bits); }
    static uint16_t store(double value) { return to_half(value); }
};
struct Bfloat {
    static constexpr uint16_t infinity = 0x7f80, smallest_normal = 0x0080;
    static double load(uint16_t bits) { return bfloat_to_float(bits); }
    static uint16_t store(double value) { return to_bfloat(value); }
};

// Sums and products of such short numbers are exact in double, but for sums far apart, which fma_to_odd makes
// round rightly.
double add(double a, double b, double) {
    return fma_to_odd(a, 1, b);
}
double sub(double a, double b, double) {
    return fma_to_odd(a, 1, -b);
}
double mul(double a, double b, double) {
    return a * b;
}
double fma(double a, double b, double c) {
    return fma_to_odd(a, b, c);
}
double exp2_of(double a, double, double) {
    return std::exp2(a);
}
double tanh_of(double a, double, double) {
    return std::tanh(a);
}

template <class H>
uint16_t finish(uint16_t bits, uint8_t flags) {
    bool nan = (bits & 0x7fff) > H::infinity, negative = bits & 0x8000;
    if ((flags & flag_ftz) && (bits & 0x7fff) < H::smallest_normal) bits &= 0x8000;
    if (flags & flag_sat) {
        if (nan || negative) return 0;
        return bits > H::store(1) ? H::store(1) : bits;
    }
    if ((flags & flag_relu) && negative && !nan) return 0;
    return bits;
}

template <class H>
uint16_t start(uint16_t bits, uint8_t flags) {
    return (flags & flag_ftz) && (bits & 0x7fff) < H::smallest_normal ? bits & 0x8000 : bits;
}

template <class H, auto F>
uint16_t compute(uint16_t a, uint16_t b, uint16_t c, uint8_t flags) {
    if ((flags & flag_oob) && (a == oob_nan || b == oob_nan)) return 0;
    a = start<H>(a, flags), b = start<H>(b, flags), c = start<H>(c, flags);
    return finish<H>(H::store(F(H::load(a), H::load(b), H::load(c))), flags);
}

template <class H>
uint16_t negate(uint16_t a, uint16_t, uint16_t, uint8_t flags) {
    return start<H>(a, flags) ^ 0x8000;
}
template <class H>
uint16_t magnitude(uint16_t a, uint16_t, uint16_t, uint8_t flags) {
    return start<H>(a, flags) & 0x7fff;
}

template <class H, bool Max>
uint16_t extreme(uint16_t a, uint16_t b, uint16_t, uint8_t flags) {
    uint16_t sign = (a ^ b) & 0x8000;
    if (flags & flag_xorsign) a &= 0x7fff, b &= 0x7fff;
    a = start<H>(a, flags), b = start<H>(b, flags);
    bool nan_a = (a & 0x7fff) > H::infinity, nan_b = (b & 0x7fff) > H::infinity;
    if ((nan_a && nan_b) || ((nan_a || nan_b) && (flags & flag_nan))) return 0x7fff;
    uint16_t result;
    if (nan_a || nan_b) {
        result = nan_a ? b : a;
    } else {
        double x = H::load(a), y = H::load(b);
        bool first = x == y ? ((a & 0x8000) != 0) != Max : (x < y) != Max;  // -0 is below +0
        result = first ? a : b;
    }
    if (flags & flag_xorsign) result |= sign;
    return finish<H>(result, flags & ~flag_sat);
}

template <auto F>
void scalar(Warp& w, const Instr& i) {
    auto *d = w.reg<uint16_t>(i.dst), *a = w.reg<uint16_t>(i.a), *b = w.reg<uint16_t>(i.b), *c = w.reg<uint16_t>(i.c);
    uint8_t flags = i.flags;
    for_lanes(w.active, [=](uint32_t l) { d[l] = F(a[l], b[l], c[l], flags); });
}

template <auto F>
void packed(Warp& w, const Instr& i) {
    auto *d = w.reg<uint32_t>(i.dst), *a = w.reg<uint32_t>(i.a), *b = w.reg<uint32_t>(i.b), *c = w.reg<uint32_t>(i.c);
    uint8_t flags = i.flags;
    auto low = [](uint32_t x) { return static_cast<uint16_t>(x); };
    auto high = [](uint32_t x) { return static_cast<uint16_t>(x >> 16); };
    for_lanes(w.active, [=](uint32_t l) {
        uint32_t first = F(low(a[l]), low(b[l]), low(c[l]), flags);
        uint32_t second = F(high(a[l]), high(b[l]), high(c[l]), flags);
        d[l] = first | second << 16;
    });
}

template <auto F>
Handler shaped(bool pair) {
    return pair ? packed<F> : scalar<F>;
}

template <class H>
Handler handler_for(std::string_view name, bool pair) {
    if (name == "add") return shaped<compute<H, add>>(pair);
    if (name == "sub") return shaped<compute<H, sub>>(pair);
    if (name == "mul") return shaped<compute<H, mul>>(pair);
    if (name == "fma") return shaped<compute<H, fma>>(pair);
    if (name == "neg") return shaped<negate<H>>(pair);
    if (name == "abs") return shaped<magnitude<H>>(pair);
    if (name == "min") return shaped<extreme<H, false>>(pair);
    if (name == "max") return shaped<extreme<H, true>>(pair);
    if (name == "ex2") return shaped<compute<H, exp2_of>>(pair);
    return name == "tanh" ? shaped<compute<H, tanh_of>>(pair) : nullptr;
}

int sources_of(std::string_view name) {
    if (name == "fma") return 3;
    return name == "neg" || name == "abs" || name == "ex2" || name == "tanh" ? 1 : 2;
}

bool is_half(Type type) {
    return type == Type::f16 || type == Type::f16x2 || type == Type::bf16 || type == Type::bf16x2;
}

}  // namespace

bool decode_half(Decoder& d) {
    auto name = d.inst().name;
    auto last = d.last_type();
    if (!is_half(last)) return false;
    bool pair = last == Type::f16x2 || last == Type::bf16x2;
    bool bfloat = last == Type::bf16 || last == Type::bf16x2;
    auto handler = bfloat ? handler_for<Bfloat>(name, pair) : handler_for<Half>(name, pair);
    if (!handler) return false;
    auto type = d.take_type();
    if (type != last) return d.unsupported(), true;
    uint8_t flags = 0;
    if (d.take("sat")) flags |= flag_sat;
    if (d.take("relu")) flags |= flag_relu;
    if (d.take("NaN")) flags |= flag_nan;
    if (d.take("ftz")) flags |= flag_ftz;
    if (d.take("xorsign") && d.take("abs")) flags |= flag_xorsign;
    if (name == "fma" && d.take("oob")) flags |= flag_oob;
    d.take("rn");
    d.take("approx");
    RegRef refs[3] = {};
    int sources = sources_of(name);
    for (int s = 0; s < 3; ++s) refs[s] = s < sources ? d.source(static_cast<size_t>(s) + 1, type) : refs[0];
    auto dst = d.dest(0, type);
    auto& instr = d.emit(handler);
    instr.dst = dst;
    instr.a = refs[0];
    instr.b = refs[1];
    instr.c = refs[2];
    instr.flags = flags;
    return true;
}

}  // namespace tnr::ptx
