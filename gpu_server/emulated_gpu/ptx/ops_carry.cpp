// Arithmetic on long numbers: add.cc addc sub.cc subc mad.cc madc. The carry flag is a predicate of its
// own in each frame: calls do not keep it, as on hardware.
//
// A difference a - b is a + ~b + 1, and the flag its carry: set when nothing was borrowed. PTX's documentation calls the
// flag the borrow, which is the same as long as only subc reads it; nvcc's division of 128 bits has addc read it, too.
#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"

namespace tnr::ptx {
namespace {

enum Flag : uint8_t { flag_in = 1, flag_out = 2, flag_subtract = 4 };

// d = a + b (+ carry), or a + ~b + 1 (or + carry); d: the flag's register.
template <class T>
void add_carry(Warp& w, const Instr& i) {
    auto *d = w.reg<T>(i.dst), *a = w.reg<T>(i.a), *b = w.reg<T>(i.b);
    bool subtract = i.flags & flag_subtract;
    uint32_t in = i.flags & flag_in ? w.mask(i.d) : subtract ? ~uint32_t{0} : 0, out = 0;
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto l = static_cast<uint32_t>(std::countr_zero(rest));
        T x = a[l], y = subtract ? static_cast<T>(~b[l]) : b[l], sum;
        bool over = __builtin_add_overflow(x, y, &sum);
        over |= __builtin_add_overflow(sum, static_cast<T>(in >> l & 1), &sum);
        d[l] = sum;
        out |= static_cast<uint32_t>(over) << l;
    }
    if (i.flags & flag_out) w.set_mask(i.d, w.active, out);
}

template <class T, class Wide, bool Hi>
void multiply_add(Warp& w, const Instr& i) {
    auto *d = w.reg<T>(i.dst), *a = w.reg<T>(i.a), *b = w.reg<T>(i.b), *c = w.reg<T>(i.c);
    using U = std::make_unsigned_t<T>;
    uint32_t in = i.flags & flag_in ? w.mask(i.d) : 0, out = 0;
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto l = static_cast<uint32_t>(std::countr_zero(rest));
        Wide product = static_cast<Wide>(a[l]) * static_cast<Wide>(b[l]);
        auto part = static_cast<U>(Hi ? product >> (8 * sizeof(T)) : product), sum = U{0};
        bool over = __builtin_add_overflow(part, static_cast<U>(c[l]), &sum);
        over |= __builtin_add_overflow(sum, static_cast<U>(in >> l & 1), &sum);
        d[l] = static_cast<T>(sum);
        out |= static_cast<uint32_t>(over) << l;
    }
    if (i.flags & flag_out) w.set_mask(i.d, w.active, out);
}

Handler product_handler(Type type, bool hi) {
    switch (type) {
        case Type::u32:
            return hi ? multiply_add<uint32_t, uint64_t, true> : multiply_add<uint32_t, uint64_t, false>;
        case Type::s32:
            return hi ? multiply_add<int32_t, int64_t, true> : multiply_add<int32_t, int64_t, false>;
        case Type::u64:
            return hi ? multiply_add<uint64_t, unsigned __int128, true>
                      : multiply_add<uint64_t, unsigned __int128, false>;
        case Type::s64:
            return hi ? multiply_add<int64_t, __int128, true> : multiply_add<int64_t, __int128, false>;
        default:
            return nullptr;
    }
}

}  // namespace

bool decode_carry(Decoder& d) {
    auto name = d.inst().name;
    bool out = d.take("cc");
    bool in = name == "addc" || name == "subc" || name == "madc";
    bool product = name == "madc" || (name == "mad" && out);
    bool sum = name == "addc" || name == "subc" || ((name == "add" || name == "sub") && out);
    if (!product && !sum) return false;
    bool hi = product && d.take("hi");
    if (product && !hi && !d.take("lo")) return d.unsupported(), true;
    auto type = d.take_type();
    bool wide = size_of(type) == 8;
    if ((size_of(type) != 4 && !wide) || is_float(type)) return d.unsupported(), true;
    auto handler = product ? product_handler(type, hi) : wide ? add_carry<uint64_t> : add_carry<uint32_t>;
    if (!handler) return d.unsupported(), true;
    auto a = d.source(1, type), b = d.source(2, type), c = product ? d.source(3, type) : 0;
    auto dst = d.dest(0, type);
    auto flag = d.carry_flag();
    auto& instr = d.emit(handler);
    instr.dst = dst;
    instr.a = a;
    instr.b = b;
    instr.c = c;
    instr.d = flag;
    instr.flags = static_cast<uint8_t>((in ? flag_in : 0) | (out ? flag_out : 0) |
                                       (name.substr(0, 3) == "sub" ? flag_subtract : 0));
    return true;
}

}  // namespace tnr::ptx
