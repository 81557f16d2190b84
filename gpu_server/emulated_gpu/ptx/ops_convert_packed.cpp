// cvt to and from two values in one register, and to tf32: see convert.hpp.
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
        return encode(value, format, rounding, i.flags & flag_sat);
    };
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto l = static_cast<uint32_t>(std::countr_zero(rest));
        d[l] = convert(a[l]) << 16 | convert(b[l]);
    }
}

// cvt.rn.satfinite.e4m3x2.f32 d, a, b and .e4m3x2.f16x2 d, a.
void pack_bytes(Warp& w, const Instr& i) {
    auto* d = w.reg<uint16_t>(i.dst);
    Format format = i.imm & 1 ? e5m2_format : e4m3_format;
    bool from_halves = i.imm & 2;
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto l = static_cast<uint32_t>(std::countr_zero(rest));
        uint32_t packed = w.reg<uint32_t>(i.a)[l];
        double high = from_halves ? half_to_float(static_cast<uint16_t>(packed >> 16)) : w.reg<float>(i.a)[l];
        double low = from_halves ? half_to_float(static_cast<uint16_t>(packed)) : w.reg<float>(i.b)[l];
        if ((i.flags & flag_relu) && high < 0) high = 0;
        if ((i.flags & flag_relu) && low < 0) low = 0;
        d[l] = static_cast<uint16_t>(encode(high, format, Rounding::nearest, true) << 8 |
                                     encode(low, format, Rounding::nearest, true));
    }
}

void unpack_bytes(Warp& w, const Instr& i) {
    auto* d = w.reg<uint32_t>(i.dst);
    auto* a = w.reg<uint16_t>(i.a);
    Format format = i.imm & 1 ? e5m2_format : e4m3_format;
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto l = static_cast<uint32_t>(std::countr_zero(rest));
        uint32_t high = to_half(decode_bits_of(a[l] >> 8, format)), low = to_half(decode_bits_of(a[l] & 255, format));
        d[l] = high << 16 | low;
    }
}

void to_tf32(Warp& w, const Instr& i) {
    auto* d = w.reg<uint32_t>(i.dst);
    auto* a = w.reg<float>(i.a);
    auto rounding = mode_of(i).rounding;
    bool relu = i.flags & flag_relu;
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto l = static_cast<uint32_t>(std::countr_zero(rest));
        double value = relu && a[l] < 0 ? 0 : a[l];
        d[l] = encode(value, tf32_format, rounding) << 13;
    }
}

}  // namespace

void decode_packed(Decoder& d, Type to, Type from, uint8_t flags, Mode mode) {
    bool bytes = to == Type::e4m3x2 || to == Type::e5m2x2;
    if (from == Type::e4m3x2 || from == Type::e5m2x2) {
        if (to != Type::f16x2) return d.unsupported();
        auto a = d.source(1, Type::b16);
        auto dst = d.dest(0, Type::b32);
        auto& instr = d.emit(unpack_bytes);
        finish(instr, dst, a, flags, mode);
        instr.imm = from == Type::e5m2x2;
        return;
    }
    bool halves = from == Type::f16x2;
    if ((from != Type::f32 && !halves) || (halves && !bytes)) return d.unsupported();
    auto a = d.source(1, halves ? Type::b32 : Type::f32);
    auto b = halves ? a : d.source(2, Type::f32);
    auto dst = d.dest(0, bytes ? Type::b16 : Type::b32);
    auto& instr = d.emit(bytes ? pack_bytes : pack_pair);
    finish(instr, dst, a, flags, mode);
    instr.b = b;
    instr.imm = bytes ? (to == Type::e5m2x2) | (halves ? 2 : 0) : to == Type::bf16x2;
}

void decode_tf32(Decoder& d, uint8_t flags, Mode mode) {
    auto a = d.source(1, Type::f32);
    auto dst = d.dest(0, Type::b32);
    finish(d.emit(to_tf32), dst, a, flags, mode);
}

}  // namespace tnr::ptx::convert
