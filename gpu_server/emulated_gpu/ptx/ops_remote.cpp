// st.async and red.async: to the shared memory of a block of the cluster, and the bytes are counted at a barrier there. Both
// are done at once; one worker runs all blocks of a cluster, so nobody is in between.
#include <algorithm>
#include <cstring>

#include "gpu_server/emulated_gpu/ptx/access.hpp"
#include "gpu_server/emulated_gpu/ptx/atomic_update.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"
#include "gpu_server/emulated_gpu/ptx/transaction.hpp"

namespace tnr::ptx {
namespace {

// a: the address; d: the barrier's; table, count: the values, each of `flags` bytes; imm: an Update, or null.

std::byte* remote(Warp& w, uint32_t lane, uint64_t address, uint32_t bytes) {
    bool misaligned = address & (bytes - 1);
    auto* p = misaligned                ? nullptr
              : (address & window_mask) ? generic_pointer(w, lane, address, bytes, true)
                                        : shared_pointer(w, address, bytes);
    if (!p) memory_fault(w, address, lane, bytes, "asynchronous access", misaligned);
    return p;
}

void change_remote(Warp& w, const Instr& i) {
    auto *addresses = w.reg<uint64_t>(i.a), *barriers = w.reg<uint64_t>(i.d);
    auto reduce = reinterpret_cast<Update>(i.imm);
    uint32_t bytes = i.flags, all = bytes * i.count;
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto* p = remote(w, lane, addresses[lane], all);
        auto* barrier = p ? barrier_word(w, lane, barriers[lane]) : nullptr;
        if (!barrier) return;
        for (uint32_t e = 0; e < i.count; ++e, p += bytes) {
            auto* reg = w.reg<std::byte>(w.program->registers[i.table + e]) + lane * bytes;
            reduce ? reduce(p, reg) : void(std::memcpy(p, reg, bytes));
        }
        complete_bytes(*barrier, all);
    }
}

}  // namespace

std::string_view take_reduction(Decoder& d) {
    for (auto op : reductions)
        if (d.take(op)) return op;
    return {};
}

bool is_remote(const Decoder& d) {
    auto& words = d.inst().modifiers;
    return std::find(words.begin(), words.end(), "mbarrier::complete_tx::bytes") != words.end();
}

// st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [to], {a, b}, [barrier]
// red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [to], a, [barrier]
void decode_remote(Decoder& d, bool reduces) {
    d.take("weak") || d.take("relaxed");
    d.take("cluster");
    d.take("shared::cluster");
    if (!d.take("mbarrier::complete_tx::bytes")) return d.unsupported();
    auto op = reduces ? take_reduction(d) : std::string_view{};
    uint32_t width = reduces ? 1 : d.take("v2") ? 2 : d.take("v4") ? 4 : 1;
    auto type = d.take_type();
    auto reduce = reduces ? update_of(op, type) : nullptr;
    if ((size_of(type) != 4 && size_of(type) != 8) || (reduces && !reduce)) return d.unsupported();
    auto address = whole_address(d, d.operand(0), Space::shared);
    auto& values = d.operand(1);
    bool vector = values.kind == ast::Operand::Kind::vector;
    if ((vector ? values.parts.size() : 1) != width) return d.fail("the operand does not fit the vector's width");
    std::vector<RegRef> refs;
    for (uint32_t e = 0; e < width; ++e) refs.push_back(d.source(vector ? values.parts[e] : values, type));
    auto barrier = whole_address(d, d.operand(2), Space::shared);
    auto table = d.add_table(refs);
    auto& instr = d.emit(change_remote);
    instr.a = address;
    instr.d = barrier;
    instr.table = table;
    instr.count = static_cast<uint16_t>(width);
    instr.flags = static_cast<uint8_t>(size_of(type));
    instr.imm = reinterpret_cast<int64_t>(reduce);
}

}  // namespace tnr::ptx
