// Choices: selp by a predicate, slct by a sign.
#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/half.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"

namespace tnr::ptx {
namespace {

template <class T>
void selp(Warp& w, const Instr& i) {
    auto* d = w.reg<T>(i.dst);
    auto* a = w.reg<T>(i.a);
    auto* b = w.reg<T>(i.b);
    uint32_t choice = w.mask(i.c);
    assign_lanes(w.active, d, [=](uint32_t l) { return choice >> l & 1 ? a[l] : b[l]; });
}

// slct: a where c >= 0.
template <class T, class C>
void slct(Warp& w, const Instr& i) {
    auto* d = w.reg<T>(i.dst);
    auto* a = w.reg<T>(i.a);
    auto* b = w.reg<T>(i.b);
    auto* c = w.reg<C>(i.c);
    bool ftz = i.flags;
    for_lanes(w.active, [=](uint32_t l) {
        C choice = c[l];
        if constexpr (std::is_same_v<C, float>) choice = ftz ? flushed(choice) : choice;
        d[l] = choice >= 0 ? a[l] : b[l];
    });
}

Instr& emit_choice(Decoder& d, Handler handler, Type type, RegRef choice) {
    auto a = d.source(1, type), b = d.source(2, type), dst = d.dest(0, type);
    auto& instr = d.emit(handler);
    instr.dst = dst;
    instr.a = a;
    instr.b = b;
    instr.c = choice;
    return instr;
}

void decode_selp(Decoder& d) {
    auto type = d.take_type();
    Handler handler = size_of(type) == 2   ? fitted<selp<uint16_t>>()
                      : size_of(type) == 4 ? fitted<selp<uint32_t>>()
                      : size_of(type) == 8 ? fitted<selp<uint64_t>>()
                                           : nullptr;
    if (!handler) return d.unsupported();
    emit_choice(d, handler, type, d.predicate(d.operand(3)));
}

template <class T>
Handler slct_by(Type type) {
    return type == Type::s32 ? Handler{slct<T, int32_t>} : type == Type::f32 ? Handler{slct<T, float>} : nullptr;
}

void decode_slct(Decoder& d) {
    bool ftz = d.take("ftz");
    auto type = d.take_type(), by = d.take_type();
    Handler handler = size_of(type) == 2   ? slct_by<uint16_t>(by)
                      : size_of(type) == 4 ? slct_by<uint32_t>(by)
                      : size_of(type) == 8 ? slct_by<uint64_t>(by)
                                           : nullptr;
    if (!handler) return d.unsupported();
    emit_choice(d, handler, type, d.source(3, by)).flags = ftz;
}

}  // namespace

bool decode_select(Decoder& d) {
    auto name = d.inst().name;
    if (name == "selp")
        decode_selp(d);
    else if (name == "slct")
        decode_slct(d);
    else
        return false;
    return true;
}

}  // namespace tnr::ptx
