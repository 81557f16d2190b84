// cp.async.bulk: a run of bytes between global and shared memory, done at once. What waits for it is told through an
// mbarrier (transaction.hpp) or, in the other direction, by a group of copies, for which nobody ever has to wait.
#include <cstring>

#include "gpu_server/emulated_gpu/ptx/lanes.hpp"
#include "gpu_server/emulated_gpu/ptx/memory_operand.hpp"
#include "gpu_server/emulated_gpu/ptx/transaction.hpp"

namespace tnr::ptx {
namespace {

constexpr uint32_t unit = 16;  // sizes and addresses are multiples of it

// a, b: where to and from; c: bytes; d: the barrier, if flags say so.
enum Flag : uint8_t { flag_to_shared = 1, flag_from_shared = 2, flag_barrier = 4 };

std::byte* run_of_bytes(Warp& w, uint32_t lane, uint64_t address, uint32_t bytes, bool shared, const char* what) {
    bool misaligned = (address | bytes) % unit;
    std::byte* p = nullptr;
    if (!misaligned) p = shared ? shared_pointer(w, address, bytes) : global_pointer(*w.worker, address, bytes);
    if (!p) memory_fault(w, address, lane, bytes, what, misaligned);
    return p;
}

void copy_run(Warp& w, const Instr& i) {
    refresh_ranges(*w.worker);
    auto *to = w.reg<uint64_t>(i.a), *from = w.reg<uint64_t>(i.b), *barriers = w.reg<uint64_t>(i.d);
    auto* sizes = w.reg<uint32_t>(i.c);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        uint32_t bytes = sizes[lane];
        auto* source = run_of_bytes(w, lane, from[lane], bytes, i.flags & flag_from_shared, "cp.async.bulk's read");
        if (!source) return;
        auto* target = run_of_bytes(w, lane, to[lane], bytes, i.flags & flag_to_shared, "cp.async.bulk's write");
        if (!target) return;
        std::memmove(target, source, bytes);
        if (!(i.flags & flag_barrier)) continue;
        auto* barrier = barrier_word(w, lane, barriers[lane]);
        if (!barrier) return;
        complete_bytes(*barrier, bytes);
    }
}

template <Where W>
void add_offset(Warp& w, const Instr& i) {
    auto* d = w.reg<uint64_t>(i.dst);
    auto* a = w.reg<AddressType<W>>(i.a);
    for_lanes(w.active, [=, offset = static_cast<uint64_t>(i.imm)](uint32_t l) {
        d[l] = static_cast<AddressType<W>>(a[l] + offset);
    });
}

// The next in order: where to, then where from.
Space take_side(Decoder& d) {
    for (auto word : d.inst().modifiers) {
        bool shared = word == "shared::cta" || word == "shared::cluster";
        if ((shared || word == "global") && d.take(word)) return shared ? Space::shared : Space::global;
    }
    d.unsupported();
    return Space::generic;
}

}  // namespace

RegRef whole_address(Decoder& d, const ast::Operand& memory, Space space) {
    auto address = decode_address(d, memory, space);
    if (address.where != Where::shared32 && address.offset == 0) return address.base;
    auto dst = d.temporary(Type::b64);
    auto& instr = d.emit(address.where == Where::shared32 ? add_offset<Where::shared32> : add_offset<Where::generic>);
    instr.dst = dst;
    instr.a = address.base;
    instr.imm = address.offset;
    return dst;
}

// cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [to], [from], bytes, [barrier]{, cache policy}
// cp.async.bulk.global.shared::cta.bulk_group [to], [from], bytes{, cache policy}
void decode_bulk(Decoder& d) {
    if (d.take("commit_group")) return;
    if (d.take("prefetch")) {
        for (auto word : d.inst().modifiers) d.take(word);  // what it names, and where to
        return;
    }
    if (d.take("wait_group")) return void(d.take("read"));
    if (d.take("tensor")) return decode_tensor_copy(d);
    auto to = take_side(d);
    auto from = take_side(d);
    bool barrier = d.take("mbarrier::complete_tx::bytes"), group = d.take("bulk_group");
    d.take("L2::cache_hint");
    if (d.failed()) return;
    if (barrier != (to == Space::shared) || group == barrier || (to == Space::global && from == Space::global))
        return d.unsupported();
    auto target = whole_address(d, d.operand(0), to), source = whole_address(d, d.operand(1), from);
    auto bytes = d.source(2, Type::u32);
    auto word = barrier ? whole_address(d, d.operand(3), Space::shared) : 0;
    auto& instr = d.emit(copy_run);
    instr.a = target;
    instr.b = source;
    instr.c = bytes;
    instr.d = word;
    instr.flags = static_cast<uint8_t>((to == Space::shared ? flag_to_shared : 0) |
                                       (from == Space::shared ? flag_from_shared : 0) | (barrier ? flag_barrier : 0));
}

}  // namespace tnr::ptx
