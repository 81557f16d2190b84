// Comparisons: setp and set. One may be combined with another predicate by
// and, or, xor; floating point ones come ordered and unordered.
#include <cmath>

#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/half.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"

namespace tnr::ptx {
namespace {

// How a register of a type becomes something C++ compares.
template <class T>
struct Plain {
    using Stored = T;
    static T value(T stored) { return stored; }
};
struct Ftz {
    using Stored = float;
    static float value(float stored) { return flushed(stored); }
};
struct HalfValue {
    using Stored = uint16_t;
    static float value(uint16_t stored) { return half_to_float(stored); }
};
struct HalfFtz {
    using Stored = uint16_t;
    static float value(uint16_t stored) {
        constexpr uint16_t exponent = 0x7c00, sign = 0x8000;
        return half_to_float(stored & exponent ? stored : stored & sign);
    }
};
struct BfloatValue {
    using Stored = uint16_t;
    static float value(uint16_t stored) { return bfloat_to_float(stored); }
};

struct Eq {
    template <class T>
    static bool test(T a, T b) {
        return a == b;
    }
};
struct Ne {
    template <class T>
    static bool test(T a, T b) {
        return a < b || a > b;
    }
};
struct Lt {
    template <class T>
    static bool test(T a, T b) {
        return a < b;
    }
};
struct Le {
    template <class T>
    static bool test(T a, T b) {
        return a <= b;
    }
};
struct Gt {
    template <class T>
    static bool test(T a, T b) {
        return a > b;
    }
};
struct Ge {
    template <class T>
    static bool test(T a, T b) {
        return a >= b;
    }
};
struct Equ {
    template <class T>
    static bool test(T a, T b) {
        return !(a < b || a > b);
    }
};
struct Neu {
    template <class T>
    static bool test(T a, T b) {
        return !(a == b);
    }
};
struct Ltu {
    template <class T>
    static bool test(T a, T b) {
        return !(a >= b);
    }
};
struct Leu {
    template <class T>
    static bool test(T a, T b) {
        return !(a > b);
    }
};
struct Gtu {
    template <class T>
    static bool test(T a, T b) {
        return !(a <= b);
    }
};
struct Geu {
    template <class T>
    static bool test(T a, T b) {
        return !(a < b);
    }
};
struct Num {
    template <class T>
    static bool test(T a, T b) {
        return a == a && b == b;
    }
};
struct Nan {
    template <class T>
    static bool test(T a, T b) {
        return a != a || b != b;
    }
};

enum class Combine : uint8_t { none, with_and, with_or, with_xor };

uint32_t combined(Combine how, uint32_t truth, uint32_t other) {
    switch (how) {
        case Combine::with_and:
            return truth & other;
        case Combine::with_or:
            return truth | other;
        case Combine::with_xor:
            return truth ^ other;
        default:
            return truth;
    }
}

// dst|b2: p and q; c: the predicate to combine with; count: how.
template <class V, class C>
uint32_t compare(Warp& w, const Instr& i) {
    auto* a = w.reg<typename V::Stored>(i.a);
    auto* b = w.reg<typename V::Stored>(i.b);
    return lanes_where(w.active, [=](uint32_t l) { return C::test(V::value(a[l]), V::value(b[l])); });
}

template <class V, class C>
void setp(Warp& w, const Instr& i) {
    uint32_t truth = compare<V, C>(w, i);
    auto how = static_cast<Combine>(i.count);
    uint32_t other = how == Combine::none ? 0 : w.mask(i.c);
    w.set_mask(i.dst, w.active, combined(how, truth, other));
    if (i.flags) w.set_mask(i.d, w.active, combined(how, ~truth, other));
}

// set.CmpOp.dtype.stype: all ones, or 1.0, where true.
template <class V, class C>
void set(Warp& w, const Instr& i) {
    auto how = static_cast<Combine>(i.count);
    uint32_t truth = combined(how, compare<V, C>(w, i), how == Combine::none ? 0 : w.mask(i.c));
    auto yes = static_cast<uint32_t>(i.imm);
    if (i.flags == 2) {
        auto* d = w.reg<uint16_t>(i.dst);
        assign_lanes(w.active, d, [=](uint32_t l) { return static_cast<uint16_t>(truth >> l & 1 ? yes : 0); });
    } else {
        auto* d = w.reg<uint32_t>(i.dst);
        assign_lanes(w.active, d, [=](uint32_t l) { return truth >> l & 1 ? yes : 0; });
    }
}

// setp.f16x2 p|q: the low halves to p, the high halves to q. set.f16x2: a half of the result each.
template <class V, class C>
void setp_packed(Warp& w, const Instr& i) {
    auto* a = w.reg<uint32_t>(i.a);
    auto* b = w.reg<uint32_t>(i.b);
    auto how = static_cast<Combine>(i.count);
    uint32_t other = how == Combine::none ? 0 : w.mask(i.c);
    for (int half = 0; half < 2; ++half) {
        uint32_t truth = lanes_where(w.active, [=](uint32_t l) {
            return C::test(V::value(static_cast<uint16_t>(a[l] >> (16 * half))),
                           V::value(static_cast<uint16_t>(b[l] >> (16 * half))));
        });
        w.set_mask(half ? i.d : i.dst, w.active, combined(how, truth, other));
    }
}

template <class V, class C>
void set_packed(Warp& w, const Instr& i) {
    auto* a = w.reg<uint32_t>(i.a);
    auto* b = w.reg<uint32_t>(i.b);
    auto* d = w.reg<uint32_t>(i.dst);
    auto yes = static_cast<uint32_t>(i.imm) & 0xffff;
    auto how = static_cast<Combine>(i.count);
    uint32_t other = how == Combine::none ? 0 : w.mask(i.c);
    for_lanes(w.active, [=](uint32_t l) {
        uint32_t result = 0;
        for (int at = 0; at < 32; at += 16) {
            bool truth =
                C::test(V::value(static_cast<uint16_t>(a[l] >> at)), V::value(static_cast<uint16_t>(b[l] >> at)));
            if (combined(how, truth, other >> l & 1)) result |= yes << at;
        }
        d[l] = result;
    });
}

enum class Kind { setp, set, setp_packed, set_packed };

template <class V, class C>
Handler of_kind(Kind kind) {
    if constexpr (std::is_same_v<typename V::Stored, uint16_t> && !std::is_same_v<V, Plain<uint16_t>>) {
        if (kind == Kind::setp_packed) return setp_packed<V, C>;
        if (kind == Kind::set_packed) return set_packed<V, C>;
    }
    return kind == Kind::setp ? fitted<setp<V, C>>() : kind == Kind::set ? set<V, C> : nullptr;
}

template <class V>
Handler ordered(Kind kind, std::string_view op) {
    if (op == "eq") return of_kind<V, Eq>(kind);
    if (op == "ne") return of_kind<V, Ne>(kind);
    if (op == "lt" || op == "lo") return of_kind<V, Lt>(kind);
    if (op == "le" || op == "ls") return of_kind<V, Le>(kind);
    if (op == "gt" || op == "hi") return of_kind<V, Gt>(kind);
    if (op == "ge" || op == "hs") return of_kind<V, Ge>(kind);
    return nullptr;
}

template <class V>
Handler with_unordered(Kind kind, std::string_view op) {
    if (op == "equ") return of_kind<V, Equ>(kind);
    if (op == "neu") return of_kind<V, Neu>(kind);
    if (op == "ltu") return of_kind<V, Ltu>(kind);
    if (op == "leu") return of_kind<V, Leu>(kind);
    if (op == "gtu") return of_kind<V, Gtu>(kind);
    if (op == "geu") return of_kind<V, Geu>(kind);
    if (op == "num") return of_kind<V, Num>(kind);
    if (op == "nan") return of_kind<V, Nan>(kind);
    return ordered<V>(kind, op);
}

Handler comparison(Kind kind, std::string_view op, Type type, bool ftz) {
    switch (type) {
        case Type::b16:
        case Type::u16:
            return ordered<Plain<uint16_t>>(kind, op);
        case Type::b32:
        case Type::u32:
            return ordered<Plain<uint32_t>>(kind, op);
        case Type::b64:
        case Type::u64:
            return ordered<Plain<uint64_t>>(kind, op);
        case Type::s16:
            return ordered<Plain<int16_t>>(kind, op);
        case Type::s32:
            return ordered<Plain<int32_t>>(kind, op);
        case Type::s64:
            return ordered<Plain<int64_t>>(kind, op);
        case Type::f32:
            return ftz ? with_unordered<Ftz>(kind, op) : with_unordered<Plain<float>>(kind, op);
        case Type::f64:
            return with_unordered<Plain<double>>(kind, op);
        case Type::f16:
        case Type::f16x2:
            return ftz ? with_unordered<HalfFtz>(kind, op) : with_unordered<HalfValue>(kind, op);
        case Type::bf16:
        case Type::bf16x2:
            return with_unordered<BfloatValue>(kind, op);
        default:
            return nullptr;
    }
}

Combine take_combine(Decoder& d) {
    if (d.take("and")) return Combine::with_and;
    if (d.take("or")) return Combine::with_or;
    return d.take("xor") ? Combine::with_xor : Combine::none;
}

struct Comparison {
    RegRef a = 0, b = 0, c = 0;
    Combine how = Combine::none;
};

std::string_view take_operator(Decoder& d) {
    return d.take_any_of({"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu",
                          "geu", "num", "nan"});
}

void fill(Instr& instr, RegRef dst, const Comparison& c) {
    instr.dst = dst;
    instr.a = c.a;
    instr.b = c.b;
    instr.c = c.c;
    instr.count = static_cast<uint16_t>(c.how);
}

Comparison take_sources(Decoder& d, Type type, Combine how) {
    Comparison c;
    c.how = how;
    c.a = d.source(1, type);
    c.b = d.source(2, type);
    if (how != Combine::none) c.c = d.predicate(d.operand(3));
    return c;
}

void decode_setp(Decoder& d) {
    auto op = take_operator(d);
    auto how = take_combine(d);
    bool ftz = d.take("ftz");
    auto type = d.take_type();
    bool packed = type == Type::f16x2 || type == Type::bf16x2;
    auto handler = comparison(packed ? Kind::setp_packed : Kind::setp, op, type, ftz);
    if (!handler) return d.unsupported();
    auto c = take_sources(d, type, how);
    auto& results = d.operand(0);
    bool pair = results.kind == ast::Operand::Kind::pair;
    if (packed && !pair) return d.fail("expected p|q");
    auto p = d.predicate_dest(pair ? results.parts[0] : results);
    auto q = pair ? d.predicate_dest(results.parts[1]) : 0;
    auto& instr = d.emit(handler);
    fill(instr, p, c);
    instr.d = q;
    instr.flags = pair;
}

void decode_set(Decoder& d) {
    auto op = take_operator(d);
    auto how = take_combine(d);
    bool ftz = d.take("ftz");
    auto to = d.take_type(), from = d.take_type();
    bool packed = from == Type::f16x2 || from == Type::bf16x2;
    auto handler = comparison(packed ? Kind::set_packed : Kind::set, op, from, ftz);
    int64_t yes = to == Type::f32                          ? 0x3f800000
                  : to == Type::f16 || to == Type::f16x2   ? 0x3c00
                  : to == Type::bf16 || to == Type::bf16x2 ? 0x3f80
                                                           : -1;
    bool fits = to == Type::u32 || to == Type::s32 || to == Type::f32 || to == Type::u16 || to == Type::s16 ||
                to == Type::f16 || to == Type::bf16 || to == Type::f16x2 || to == Type::bf16x2;
    if (!handler || !fits || (packed && size_of(to) != 4)) return d.unsupported();
    auto c = take_sources(d, from, how);
    auto dst = d.dest(0, to);
    auto& instr = d.emit(handler);
    fill(instr, dst, c);
    instr.flags = static_cast<uint8_t>(size_of(to));
    instr.imm = yes;
}

}  // namespace

bool decode_compare(Decoder& d) {
    auto name = d.inst().name;
    if (name == "setp")
        decode_setp(d);
    else if (name == "set")
        decode_set(d);
    else
        return false;
    return true;
}

}  // namespace tnr::ptx
