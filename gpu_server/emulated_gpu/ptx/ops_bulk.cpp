// cp.async.bulk and cp.reduce.async.bulk: a run of bytes between global and shared memory, done at once. What waits for it is
// told through an mbarrier (transaction.hpp) or, in the other direction, by a group of copies, for which nobody ever has to
// wait. A multicast goes to the same place in several blocks of the cluster, the news of it to a barrier in each.
#include <algorithm>
#include <cstring>
#include <utility>

#include "gpu_server/emulated_gpu/ptx/atomic_update.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"
#include "gpu_server/emulated_gpu/ptx/limits.hpp"
#include "gpu_server/emulated_gpu/ptx/memory_operand.hpp"
#include "gpu_server/emulated_gpu/ptx/transaction.hpp"

namespace tnr::ptx {
namespace {

constexpr uint32_t unit = 16;  // sizes and addresses are multiples of it

// a, b: where to and from; c: bytes; d: the barrier, if flags say so; dst: which blocks, or which bytes of each unit; imm: an
// Update, of elements of `count` bytes, or null.
enum Flag : uint8_t {
    flag_to_shared = 1,
    flag_from_shared = 2,
    flag_barrier = 4,
    flag_multicast = 8,
    flag_byte_mask = 16
};

// A run of no bytes may be anywhere: CUB copies an empty range from null.
std::byte* run_of_bytes(Warp& w, uint32_t lane, uint64_t address, uint32_t bytes, bool shared, const char* what) {
    static std::byte nothing;
    bool misaligned = (address | bytes) % unit;
    if (!misaligned && bytes == 0) return &nothing;
    std::byte* p = nullptr;
    if (!misaligned) p = shared ? shared_pointer(w, address, bytes) : global_pointer(*w.worker, address, bytes);
    if (!p) memory_fault(w, address, lane, bytes, what, misaligned);
    return p;
}

void change_run(Warp& w, const Instr& i, uint32_t lane, std::byte* to, const std::byte* from, uint32_t bytes) {
    if (auto update = reinterpret_cast<Update>(i.imm)) {
        for (uint32_t at = 0; at < bytes; at += i.count) update(to + at, from + at);
    } else if (i.flags & flag_byte_mask) {
        auto mask = w.reg<uint16_t>(i.dst)[lane];
        for (uint32_t at = 0; at < bytes; ++at)
            if (mask >> at % unit & 1) to[at] = from[at];
    } else {
        std::memmove(to, from, bytes);
    }
}

// To one place. False after a fault.
bool deliver(Warp& w, const Instr& i, uint32_t lane, uint64_t to, uint64_t barrier, const std::byte* from,
             uint32_t bytes) {
    auto* target = run_of_bytes(w, lane, to, bytes, i.flags & flag_to_shared, "cp.async.bulk's write");
    if (!target) return false;
    change_run(w, i, lane, target, from, bytes);
    if (!(i.flags & flag_barrier)) return true;
    auto* word = barrier_word(w, lane, barrier);
    if (word) complete_bytes(*word, bytes);
    return word;
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
        if (i.flags & flag_multicast) {
            auto each = [&](uint32_t rank) {
                return deliver(w, i, lane, in_block(to[lane], rank), in_block(barriers[lane], rank), source, bytes);
            };
            if (!each_block(w.reg<uint16_t>(i.dst)[lane], each)) return;
        } else if (!deliver(w, i, lane, to[lane], barriers[lane], source, bytes)) {
            return;
        }
    }
}

// What of a run in global memory is memory, where up to `left` and `right` bytes at its ends need not be. Null: nothing.
struct Inside {
    std::byte* begin = nullptr;
    uint32_t skipped = 0, bytes = 0;
};
Inside inside_memory(Worker& worker, uint64_t address, uint32_t bytes, uint32_t left, uint32_t right) {
    for (auto [begin, end] : {std::pair{0u, 0u}, {left, 0u}, {0u, right}, {left, right}})
        if (auto* p = global_pointer(worker, address + begin, bytes - begin - end))
            return {p, begin, bytes - begin - end};
    return {};
}

// To shared memory of the block. Up to 15 bytes at either end of what it reads, as the registers dst and imm say, may lie
// outside of memory; those that do not are copied (CUB counts on that), and all count.
void copy_inside(Warp& w, const Instr& i) {
    refresh_ranges(*w.worker);
    auto *to = w.reg<uint64_t>(i.a), *from = w.reg<uint64_t>(i.b), *barriers = w.reg<uint64_t>(i.d);
    auto *sizes = w.reg<uint32_t>(i.c), *lefts = w.reg<uint32_t>(i.dst);
    auto* rights = w.reg<uint32_t>(static_cast<RegRef>(i.imm));
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        uint32_t bytes = sizes[lane], left = lefts[lane], right = rights[lane];
        if (left >= unit || right >= unit || left + right > bytes)
            return fault(w, Outcome::illegal_instruction, lane, "cp.async.bulk ignores more bytes than it may");
        auto* target = run_of_bytes(w, lane, to[lane], bytes, true, "cp.async.bulk's write");
        if (!target) return;
        const bool misaligned = from[lane] % unit != 0;
        auto source = misaligned ? Inside{} : inside_memory(*w.worker, from[lane], bytes, left, right);
        if (!source.begin && (misaligned || bytes != 0))
            return memory_fault(w, from[lane], lane, bytes, "cp.async.bulk's read", misaligned);
        if (source.begin) std::memmove(target + source.skipped, source.begin, source.bytes);
        auto* word = barrier_word(w, lane, barriers[lane]);
        if (!word) return;
        complete_bytes(*word, bytes);
    }
}

// Zeros. a: to; c: how many, of type S.
template <class S>
void fill_shared(Warp& w, const Instr& i) {
    auto* to = w.reg<uint64_t>(i.a);
    auto* sizes = w.reg<S>(i.c);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        uint64_t bytes = sizes[lane], begin = to[lane] & ~window_mask;
        bool other = (to[lane] & window_mask) != 0 && (to[lane] & window_mask) != shared_window;
        bool fits = !other && bytes <= shared_bytes_max && (begin | bytes) % 8 == 0;
        auto* p = fits ? shared_pointer(w, begin, static_cast<uint32_t>(bytes)) : nullptr;
        if (!p) return memory_fault(w, to[lane], lane, static_cast<uint32_t>(bytes), "st.bulk", !fits && !other);
        std::memset(p, 0, bytes);
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

// The reduction that the modifiers name.
Update take_update(Decoder& d, Type& type) {
    auto op = take_reduction(d);
    d.take("noftz");
    type = d.take_type();
    auto update = update_of(op, type);
    if (!update) d.unsupported();
    return update;
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

// st.bulk{.weak}{.shared::cta} [to], bytes, 0
void decode_fill(Decoder& d) {
    d.take("weak");
    auto space = d.take("shared::cta") ? Space::shared : Space::generic;
    auto& value = d.operand(2);
    if (value.kind != ast::Operand::Kind::integer || value.value != 0) return d.unsupported();
    auto to = whole_address(d, d.operand(0), space);
    auto& size = d.operand(1);
    bool wide = size_of(d.type_of(size)) == 8;
    auto bytes = d.source(size, wide ? Type::u64 : Type::u32);
    auto& instr = d.emit(wide ? fill_shared<uint64_t> : fill_shared<uint32_t>);
    instr.a = to;
    instr.c = bytes;
}

// After the modifiers: [to], [from], bytes, left, right, [barrier]{, cache policy}
void decode_copy_inside(Decoder& d) {
    auto target = whole_address(d, d.operand(0), Space::shared), source = whole_address(d, d.operand(1), Space::global);
    auto bytes = d.source(2, Type::u32), left = d.source(3, Type::u32), right = d.source(4, Type::u32);
    auto word = whole_address(d, d.operand(5), Space::shared);
    auto& instr = d.emit(copy_inside);
    instr.a = target;
    instr.b = source;
    instr.c = bytes;
    instr.d = word;
    instr.dst = left;
    instr.imm = right;
}

// cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob
//     [to], [from], bytes, left, right, [barrier]{, cache policy}
// cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes{.multicast::cluster}
//     [to], [from], bytes, [barrier]{, blocks}{, cache policy}
// cp.async.bulk.global.shared::cta.bulk_group{.cp_mask} [to], [from], bytes{, cache policy}{, mask}
// cp.reduce.async.bulk... alike, with .add.s32 and the like
void decode_bulk(Decoder& d, bool reduces) {
    if (d.take("commit_group")) return;
    if (d.take("prefetch")) {
        for (auto word : d.inst().modifiers) d.take(word);  // what it names, and where to
        return;
    }
    if (d.take("wait_group")) return void(d.take("read"));
    if (d.take("tensor")) return decode_tensor_copy(d, reduces);
    const bool ordered = d.take("relaxed");
    if (ordered)
        d.take_any_of({"cta", "cluster", "gpu", "sys"});
    else
        d.take("weak");
    auto& words = d.inst().modifiers;
    const bool to_cluster = std::find(words.begin(), words.end(), "shared::cluster") != words.end();
    auto to = take_side(d);
    auto from = take_side(d);
    bool barrier = d.take("mbarrier::complete_tx::bytes"), group = d.take("bulk_group");
    bool multicast = d.take("multicast::cluster"), masked = d.take("cp_mask");
    bool inside = d.take("ignore_oob");
    d.take("L2::cache_hint");
    if (ordered) d.take("b128");
    if (d.failed()) return;
    bool to_global = to == Space::global, from_global = from == Space::global;
    if (barrier == to_global || group == barrier || (to_global && from_global) || (multicast && !from_global) ||
        (masked && !to_global) || (reduces && (from_global || masked)) ||
        (inside && (!from_global || to_cluster || multicast)))
        return d.unsupported();
    if (inside) return decode_copy_inside(d);
    Type type = Type::b8;
    Update update = reduces ? take_update(d, type) : nullptr;
    auto target = whole_address(d, d.operand(0), to), source = whole_address(d, d.operand(1), from);
    auto bytes = d.source(2, Type::u32);
    auto word = barrier ? whole_address(d, d.operand(3), Space::shared) : 0;
    auto mask = multicast ? d.source(4, Type::u16) : masked ? d.source(d.operand_count() - 1, Type::u16) : 0;
    auto& instr = d.emit(copy_run);
    instr.a = target;
    instr.b = source;
    instr.c = bytes;
    instr.d = word;
    instr.dst = mask;
    instr.imm = reinterpret_cast<int64_t>(update);
    instr.count = static_cast<uint16_t>(size_of(type));
    instr.flags = static_cast<uint8_t>((to_global ? 0 : flag_to_shared) | (from_global ? 0 : flag_from_shared) |
                                       (barrier ? flag_barrier : 0) | (multicast ? flag_multicast : 0) |
                                       (masked ? flag_byte_mask : 0));
}

}  // namespace tnr::ptx
