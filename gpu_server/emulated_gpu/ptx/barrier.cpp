// bar and barrier: threads of a block wait for each other. Arrivals are counted by lane, so parts of a warp
// may arrive from different places; a warp all of whose live lanes have come counts as 32, as hardware
// counts warps. Threads that have exited are not waited for.
#include "gpu_server/emulated_gpu/ptx/cluster.hpp"
#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"

namespace tnr::ptx {
namespace {

constexpr uint32_t barriers_per_block = 16;  // as on all hardware

enum Flag : uint8_t { flag_waits = 1, flag_has_count = 2 };
enum class Reduction : uint8_t { none, popc, all, any };

bool complete(const Block& block, const Barrier& barrier) {
    if (barrier.arrivals == 0 && barrier.extra == 0) return false;
    if (barrier.expected == 0) return barrier.arrivals >= block.live_threads;
    uint32_t count = barrier.extra;
    for (size_t k = 0; k < block.warps.size(); ++k) {
        uint32_t arrived = barrier.arrived[k], live = block.warps[k]->live;
        if (!arrived) continue;
        count += (live & ~arrived) == 0 ? warp_lanes : static_cast<uint32_t>(std::popcount(arrived));
    }
    return count >= barrier.expected;
}

// What `lanes`, which waited at one instruction, get from it.
void give_result(Warp& w, const Instr& instr, const Barrier& barrier, uint32_t lanes) {
    auto reduction = static_cast<Reduction>(instr.count);
    if (reduction == Reduction::none) return;
    bool result = reduction == Reduction::all ? barrier.trues == barrier.arrivals : barrier.trues > 0;
    for (; lanes; lanes &= lanes - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
        if (reduction == Reduction::popc) {
            w.reg_of<uint32_t>(lane, instr.dst)[lane] = barrier.trues;
        } else {
            auto& mask = *w.reg_of<uint32_t>(lane, instr.dst);
            mask = result ? mask | 1u << lane : mask & ~(1u << lane);
        }
    }
}

// Lanes that waited stand at their barrier instructions; they take their results, if any, and go on.
void release(Block& block, Barrier& barrier) {
    for (size_t k = 0; k < block.warps.size(); ++k) {
        auto& w = *block.warps[k];
        uint32_t rest = std::exchange(barrier.waiting[k], 0);
        w.at_barrier &= ~rest;
        w.released |= rest != 0;
        while (rest) {
            uint32_t pc = w.lane_pc[std::countr_zero(rest)];
            uint32_t lanes = lanes_where(rest, [pcs = w.lane_pc, pc](uint32_t l) { return pcs[l] == pc; });
            give_result(w, w.program->code[pc], barrier, lanes);
            w.park(lanes, pc + 1);
            rest &= ~lanes;
        }
        barrier.arrived[k] = 0;
    }
    barrier.expected = barrier.arrivals = barrier.extra = barrier.trues = 0;
}

Barrier* barrier_of(Warp& w, const Instr& i, uint32_t lane) {
    uint32_t id = w.reg<uint32_t>(i.a)[lane];
    auto& all = w.block->barriers;
    if (id >= barriers_per_block) {
        fault(w, Outcome::illegal_instruction, lane, "barrier " + std::to_string(id) + " of 16");
        return nullptr;
    }
    while (all.size() <= id) all.emplace_back();
    auto& barrier = all[id];
    barrier.arrived.resize(w.block->warps.size());
    barrier.waiting.resize(w.block->warps.size());
    return &barrier;
}

void arrive(Warp& w, const Instr& i) {
    auto lane = static_cast<uint32_t>(std::countr_zero(w.active));
    auto* barrier = barrier_of(w, i, lane);
    if (!barrier) return;
    if (i.flags & flag_has_count) barrier->expected = w.reg<uint32_t>(i.b)[lane];
    if (i.count != 0) {
        barrier->trues += static_cast<uint32_t>(std::popcount(w.mask(i.c) & w.active));
    }
    auto& arrived = barrier->arrived[w.index];
    if (arrived & w.active)
        barrier->extra += warp_lanes;  // bar.arrive once more before anyone waited
    else
        barrier->arrivals += static_cast<uint32_t>(std::popcount(w.active));
    arrived |= w.active;
    reschedule(w);
    if (i.flags & flag_waits) {
        w.park(w.active, w.pc - 1);
        w.at_barrier |= w.active;
        barrier->waiting[w.index] |= w.active;
    }
    if (complete(*w.block, *barrier)) release(*w.block, *barrier);
}

// bar.sync a{, b};  bar.arrive a, b;  bar.red.popc.u32 d, a{, b}, p;
void decode_barrier_instruction(Decoder& d) {
    d.take("cta");
    auto verb = d.take_any_of({"sync", "arrive", "red"});
    d.take("aligned");
    auto reduction = Reduction::none;
    size_t at = 0, operands = d.operand_count();
    if (verb == "red") {
        auto op = d.take_any_of({"popc", "and", "or"});
        auto type = d.take_type();
        reduction = op == "popc" ? Reduction::popc : op == "and" ? Reduction::all : Reduction::any;
        if (op.empty() || type != (op == "popc" ? Type::u32 : Type::pred)) return d.unsupported();
        ++at, --operands;
    }
    if (verb.empty()) return d.unsupported();
    auto id = d.source(at++, Type::u32);
    bool has_count = at < operands;
    auto count = has_count ? d.source(at++, Type::u32) : 0;
    auto truth = verb == "red" ? d.predicate(d.operand(at)) : 0;
    auto dst = reduction == Reduction::none   ? 0
               : reduction == Reduction::popc ? d.dest(0, Type::u32)
                                              : d.predicate_dest(d.operand(0));
    auto& instr = d.emit(arrive);
    instr.dst = dst;
    instr.a = id;
    instr.b = count;
    instr.c = truth;
    instr.count = static_cast<uint16_t>(reduction);
    instr.flags = static_cast<uint8_t>((verb != "arrive" ? flag_waits : 0) | (has_count ? flag_has_count : 0));
}

// A read-modify-write of a word of our own: it orders like a fence, and thread sanitizers understand it.
void fence(Warp&, const Instr&) {
    static std::atomic<uint32_t> word{0};
    word.fetch_add(1, std::memory_order_seq_cst);
}

void decode_fence(Decoder& d) {
    if (d.take_any_of({"cta", "gl", "gpu", "sys", "cluster", "sc", "acq_rel", "acquire", "release", "proxy"}).empty())
        return d.unsupported();
    for (auto modifier : d.inst().modifiers) d.take(modifier);  // scopes and proxies: one memory here
    d.emit(fence);
}

}  // namespace

void check_barriers(Block& block) {
    for (auto& barrier : block.barriers)
        if (complete(block, barrier)) release(block, barrier);
}

bool decode_barrier(Decoder& d) {
    auto name = d.inst().name;
    if (name == "membar" || name == "fence") return decode_fence(d), true;
    if (name != "bar" && name != "barrier") return false;
    for (auto modifier : d.inst().modifiers)
        if (modifier == "warp") return false;  // a collective of one warp
    if (d.take("cluster")) return decode_cluster_barrier(d), true;
    decode_barrier_instruction(d);
    return true;
}

}  // namespace tnr::ptx
