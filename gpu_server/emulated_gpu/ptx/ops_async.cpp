// cp.async, and griddepcontrol. Copies are done at once, so waiting for them is nothing; grids that a program lets overlap
// run one after the other.
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"
#include "gpu_server/emulated_gpu/ptx/memory_operand.hpp"
#include "gpu_server/emulated_gpu/ptx/transaction.hpp"

namespace tnr::ptx {
namespace {

// dst of the copy in a (shared), source in b (global), d: bytes to read (the rest is zero); imm and count the
// offsets' and sizes'.
template <Where To>
void copy(Warp& w, const Instr& i) {
    refresh_ranges(*w.worker);
    auto* to = w.reg<AddressType<To>>(i.a);
    auto *from = w.reg<uint64_t>(i.b), *offsets = w.reg<uint64_t>(i.c);
    auto* bytes = w.reg<uint32_t>(i.d);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto target = static_cast<AddressType<To>>(to[lane] + static_cast<uint64_t>(i.imm));
        uint64_t source = from[lane] + offsets[lane];
        uint32_t read = std::min<uint32_t>(bytes[lane], i.count);
        if ((target | source) & (i.count - 1u)) return memory_fault(w, source, lane, i.count, "cp.async", true);
        auto* p = pointer<To>(w, lane, target, i.count, true);
        if (!p) return memory_fault(w, target, lane, i.count, "cp.async's write", false);
        auto* q = read ? global_pointer(*w.worker, source, read) : nullptr;
        if (read && !q) return memory_fault(w, source, lane, read, "cp.async's read", false);
        if (read) std::memcpy(p, q, read);
        std::memset(p + read, 0, i.count - read);
    }
}

// cp.async.ca.shared.global [to], [from], size{, read size}
void decode_copy(Decoder& d) {
    take_cache_hints(d);
    if ((!d.take("shared") && !d.take("shared::cta")) || !d.take("global")) return d.unsupported();
    take_cache_hints(d);
    auto to = decode_address(d, d.operand(0), Space::shared);
    auto from = decode_address(d, d.operand(1), Space::global);
    auto& size = d.operand(2);
    if (size.kind != ast::Operand::Kind::integer || (size.value != 4 && size.value != 8 && size.value != 16))
        return d.fail("cp.async copies 4, 8 or 16 bytes");
    bool partial =
        d.operand_count() > 3 && (d.type_of(d.operand(3)) == Type::none || size_of(d.type_of(d.operand(3))) == 4);
    auto read = partial ? d.source(3, Type::u32) : d.constant(static_cast<uint64_t>(size.value), 4);
    auto offset = d.constant(static_cast<uint64_t>(from.offset), 8);
    auto& instr = d.emit(to.where == Where::shared32 ? copy<Where::shared32> : copy<Where::shared>);
    instr.a = to.base;
    instr.b = from.base;
    instr.c = offset;
    instr.d = read;
    instr.imm = to.offset;
    instr.count = static_cast<uint16_t>(size.value);
}

}  // namespace

bool decode_async(Decoder& d) {
    auto name = d.inst().name;
    if (name == "griddepcontrol") {
        if (d.take_any_of({"launch_dependents", "wait"}).empty()) d.unsupported();
        return true;
    }
    if (name != "cp") return false;
    bool reduces = d.take("reduce");
    if (!d.take("async")) return false;
    if (d.take("bulk")) return decode_bulk(d, reduces), true;
    if (reduces) return false;
    if (d.take("mbarrier")) return decode_copies_arrive(d), true;
    if (d.take("commit_group") || d.take("wait_all") || d.take("wait_group")) return true;
    decode_copy(d);
    return true;
}

}  // namespace tnr::ptx
