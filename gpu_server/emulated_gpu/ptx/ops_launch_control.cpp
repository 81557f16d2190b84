// clusterlaunchcontrol: a block takes over the work of a cluster that has not begun, which then never does. The answer is 16
// bytes in shared memory whose layout is ours: whether there was one and its first block's x, then y and z, of 32 bits each.
#include "gpu_server/emulated_gpu/ptx/access.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"
#include "gpu_server/emulated_gpu/ptx/transaction.hpp"

namespace tnr::ptx {
namespace {

struct Answer {
    uint32_t cancelled = 0;
    Dim3 first{0, 0, 0};
};
static_assert(sizeof(Answer) == sizeof(Wide));

// Blocks of a cooperative launch have all begun.
Answer cancel_one(Grid& grid) {
    uint64_t cluster = 0;
    if (grid.launch->cooperative || !take_cluster(grid, cluster)) return {};
    return {1, block_id(*grid.launch, cluster, 0)};
}

// False after a fault.
bool deliver(Warp& w, uint32_t lane, uint64_t to, uint64_t barrier, const Answer& answer) {
    bool misaligned = to % sizeof answer;
    auto* p = misaligned           ? nullptr
              : (to & window_mask) ? generic_pointer(w, lane, to, sizeof answer, true)
                                   : shared_pointer(w, to, sizeof answer);
    if (!p) return memory_fault(w, to, lane, sizeof answer, "clusterlaunchcontrol's write", misaligned), false;
    auto* word = barrier_word(w, lane, barrier);
    if (!word) return false;
    std::memcpy(p, &answer, sizeof answer);
    complete_bytes(*word, sizeof answer);
    return true;
}

// a: where the answer goes; d: the barrier; flags: the same in all blocks of the cluster?
void try_cancel(Warp& w, const Instr& i) {
    refresh_ranges(*w.worker);
    auto *to = w.reg<uint64_t>(i.a), *barriers = w.reg<uint64_t>(i.d);
    uint32_t all_blocks = (1u << w.block->grid->cluster_blocks) - 1;
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto answer = cancel_one(*w.block->grid);
        auto each = [&](uint32_t rank) {
            return deliver(w, lane, in_block(to[lane], rank), in_block(barriers[lane], rank), answer);
        };
        bool done = i.flags ? each_block(all_blocks, each) : deliver(w, lane, to[lane], barriers[lane], answer);
        if (!done) return;
    }
}

void is_cancelled(Warp& w, const Instr& i) {
    auto* answers = w.reg<Answer>(i.a);
    w.set_mask(i.dst, w.active, lanes_where(w.active, [=](uint32_t l) { return answers[l].cancelled != 0; }));
}

template <uint32_t Dim3::*Axis>
void first_block(Warp& w, const Instr& i) {
    auto* answers = w.reg<Answer>(i.a);
    assign_lanes(w.active, w.reg<uint32_t>(i.dst), [=](uint32_t l) { return answers[l].first.*Axis; });
}
constexpr Handler first_block_of[] = {first_block<&Dim3::x>, first_block<&Dim3::y>, first_block<&Dim3::z>};

// clusterlaunchcontrol.try_cancel.async{.shared::cta}.mbarrier::complete_tx::bytes{.multicast::cluster::all}.b128 [to], [barrier]
void decode_try(Decoder& d) {
    auto space = d.take("shared::cta") ? Space::shared : Space::generic;
    bool known = d.take("async") && d.take("mbarrier::complete_tx::bytes") && d.take("b128");
    bool all_blocks = d.take("multicast::cluster::all");
    if (!known) return d.unsupported();
    auto to = whole_address(d, d.operand(0), space), barrier = whole_address(d, d.operand(1), space);
    auto& instr = d.emit(try_cancel);
    instr.a = to;
    instr.d = barrier;
    instr.flags = all_blocks;
}

void emit_query(Decoder& d, Handler handler, RegRef dst, RegRef answer) {
    auto& instr = d.emit(handler);
    instr.dst = dst;
    instr.a = answer;
}

// clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, answer; .get_first_ctaid::x.b32.b128 d, answer;
// .get_first_ctaid.v4.b32.b128 {x, y, z, _}, answer
void decode_query(Decoder& d) {
    static constexpr std::string_view axes[] = {"get_first_ctaid::x", "get_first_ctaid::y", "get_first_ctaid::z"};
    if (d.take("is_canceled") && d.take("pred") && d.take("b128"))
        return emit_query(d, is_cancelled, d.predicate_dest(d.operand(0)), d.source(1, Type::b128));
    size_t axis = 0;
    while (axis < std::size(axes) && !d.take(axes[axis])) ++axis;
    bool all = axis == std::size(axes) && d.take("get_first_ctaid") && d.take("v4");
    if ((axis == std::size(axes) && !all) || !d.take("b32") || !d.take("b128")) return d.unsupported();
    auto answer = d.source(1, Type::b128);
    if (!all) return emit_query(d, first_block_of[axis], d.dest(0, Type::b32), answer);
    if (d.operand(0).parts.size() != 4) return d.fail("expected four registers");
    for (size_t k = 0; k < std::size(axes); ++k)
        emit_query(d, first_block_of[k], d.dest(d.operand(0).parts[k], Type::b32), answer);
}

}  // namespace

bool decode_launch_control(Decoder& d) {
    if (d.inst().name != "clusterlaunchcontrol") return false;
    if (d.take("try_cancel"))
        decode_try(d);
    else if (d.take("query_cancel"))
        decode_query(d);
    else
        d.unsupported();
    return true;
}

}  // namespace tnr::ptx
