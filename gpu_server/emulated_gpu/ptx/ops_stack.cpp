// alloca, stacksave and stackrestore: local memory of a size that only the running thread knows. It lies at the end of each
// lane's local memory and grows towards the stack; what a function has taken goes back when it returns.
#include <algorithm>

#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"
#include "gpu_server/emulated_gpu/ptx/limits.hpp"

namespace tnr::ptx {
namespace {

// The address is a local one. imm: its alignment.
template <class T>
void allocate(Warp& w, const Instr& i) {
    auto *d = w.reg<T>(i.dst), *sizes = w.reg<T>(i.a);
    uint64_t lowest = w.local_stride - alloca_bytes_max, alignment = static_cast<uint64_t>(i.imm);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto& top = w.alloca_top[lane];
        if (sizes[lane] > top - lowest) return fault(w, Outcome::illegal_address, lane, "stack overflow");
        uint64_t address = (top - sizes[lane]) & ~(alignment - 1);
        if (address < lowest) return fault(w, Outcome::illegal_address, lane, "stack overflow");
        d[lane] = static_cast<T>(top = address);
    }
}

template <class T>
void save(Warp& w, const Instr& i) {
    assign_lanes(w.active, w.reg<T>(i.dst), [top = w.alloca_top](uint32_t l) { return static_cast<T>(top[l]); });
}

// Only what stacksave has given makes sense; anything else is kept inside.
template <class T>
void restore(Warp& w, const Instr& i) {
    auto* saved = w.reg<T>(i.a);
    assign_lanes(w.active, w.alloca_top, [=, most = w.local_stride](uint32_t l) {
        return std::clamp<uint64_t>(saved[l], most - alloca_bytes_max, most);
    });
}

bool take_width(Decoder& d, Type& type) {
    type = d.take_type();
    d.program().uses_alloca = true;
    if (type != Type::u32 && type != Type::u64 && type != Type::b32 && type != Type::b64) return d.unsupported(), false;
    return true;
}

// alloca.u64 address, bytes{, alignment}
void decode_allocate(Decoder& d) {
    Type type;
    if (!take_width(d, type)) return;
    auto bytes = d.source(1, type), dst = d.dest(0, type);
    int64_t alignment = d.operand_count() > 2 ? d.operand(2).value : 8;
    if (alignment < 1 || alignment > int64_t{align_max} || !std::has_single_bit(static_cast<uint64_t>(alignment)))
        return d.fail("not an alignment");
    auto& instr = d.emit(size_of(type) == 8 ? allocate<uint64_t> : allocate<uint32_t>);
    instr.dst = dst;
    instr.a = bytes;
    instr.imm = alignment;
}

}  // namespace

bool decode_stack(Decoder& d) {
    auto name = d.inst().name;
    Type type;
    if (name == "alloca") return decode_allocate(d), true;
    if (name != "stacksave" && name != "stackrestore") return false;
    if (!take_width(d, type)) return true;
    bool wide = size_of(type) == 8;
    if (name == "stacksave") {
        auto dst = d.dest(0, type);
        d.emit(wide ? save<uint64_t> : save<uint32_t>).dst = dst;
    } else {
        auto saved = d.source(0, type);
        d.emit(wide ? restore<uint64_t> : restore<uint32_t>).a = saved;
    }
    return true;
}

}  // namespace tnr::ptx
