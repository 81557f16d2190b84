// Which lanes run. A warp's lanes that stand at the same pc in the same frame form a group. Of several
// groups the one deepest in calls and then lowest in the code runs: compilers lay out a join after the
// branches that lead to it, so the lanes behind catch up with those that wait. When a group has used up
// its turn (it may be spinning on what another lane must do), the next one runs first for once.
//
// The first turn after a barrier is brief: it ends at the first backward branch. Hardware lets the warps of a block go on
// together, and programs count on it: they read shared memory after a barrier and write it again in the next round of a loop.
#include <algorithm>

#include "gpu_server/emulated_gpu/ptx/limits.hpp"
#include "gpu_server/emulated_gpu/ptx/machine.hpp"

namespace tnr::ptx {
namespace {

// A group whose turns all end that way must not keep out its warp's other lanes for ever.
constexpr uint32_t brief_turns_before_rotating = 64;

// True when lane a's group should run rather than lane b's.
bool before(const Warp& w, uint32_t a, uint32_t b) {
    auto depth_a = w.lane_frame[a]->depth, depth_b = w.lane_frame[b]->depth;
    return depth_a != depth_b ? depth_a > depth_b : w.lane_pc[a] < w.lane_pc[b];
}

uint32_t choose_leader(Warp& w, uint32_t candidates) {
    if (std::exchange(w.rotate, false)) {
        uint32_t others = candidates & ~w.group;
        uint32_t later = others & ~((1u << w.rotate_from) - 1);
        if (later) return static_cast<uint32_t>(std::countr_zero(later));
        if (others) return static_cast<uint32_t>(std::countr_zero(others));
    }
    auto leader = static_cast<uint32_t>(std::countr_zero(candidates));
    for (uint32_t rest = candidates & (candidates - 1); rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        if (before(w, lane, leader)) leader = lane;
    }
    return leader;
}

uint32_t standing_at(const Warp& w, uint32_t lanes, const Frame* frame, uint32_t pc) {
    return lanes_where(lanes, [frames = w.lane_frame, pcs = w.lane_pc, frame, pc](uint32_t l) {
        return (frames[l] == frame) & (pcs[l] == pc);
    });
}

bool pick_group(Warp& w) {
    wake_when_due(w);
    uint32_t candidates = runnable(w);
    if (!candidates) return false;
    auto leader = static_cast<uint32_t>(std::countr_zero(candidates));
    w.join_pc = no_join;
    if (standing_at(w, candidates, w.lane_frame[leader], w.lane_pc[leader]) == candidates) {
        w.group = candidates;
        w.rotate = false;
    } else {
        leader = choose_leader(w, candidates);
        w.group = standing_at(w, candidates, w.lane_frame[leader], w.lane_pc[leader]);
        for (uint32_t rest = candidates & ~w.group; rest; rest &= rest - 1) {
            auto lane = static_cast<uint32_t>(std::countr_zero(rest));
            if (w.lane_frame[lane] == w.lane_frame[leader] && w.lane_pc[lane] > w.lane_pc[leader])
                w.join_pc = std::min(w.join_pc, w.lane_pc[lane]);
        }
    }
    w.pc = w.lane_pc[leader];
    w.frame = w.lane_frame[leader];
    w.bases[base_frame] = w.frame->registers;
    return true;
}

void run_group(Warp& w) {
    const Instr* code = w.program->code.data();
    uint64_t count = 0;
    w.event = 0;
    do {
        const Instr& instr = code[w.pc++];
        ++count;
        w.active = w.group;
        if (instr.guard_kind != Guard::none) {
            uint32_t mask = w.mask(instr.guard);
            w.active &= instr.guard_kind == Guard::if_true ? mask : ~mask;
            if (!w.active) continue;
        }
        instr.run(w, instr);
    } while (w.event == 0 && w.pc < w.join_pc);
    w.instructions += count;
    if (w.event == 0) w.park(w.group, w.pc);
}

}  // namespace

void start_warp(Warp& w, const Function& function) {
    w.live = w.exists;
    w.at_barrier = w.at_sync = w.at_cluster = w.cluster_arrived = w.asleep = w.group = 0;
    w.rotate = w.released = false;
    std::fill_n(w.alloca_top, warp_lanes, w.local_stride);
    auto* frame = push_frame(w, function, nullptr, w.exists);
    for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
        w.lane_frame[lane] = frame;
        w.lane_pc[lane] = function.entry_pc;
    }
}

void run_warp(Warp& w) {
    w.budget = turn_branches;
    w.spinning = false;
    bool brief = false;
    while (pick_group(w)) {
        if (std::exchange(w.released, false)) {
            brief = true;
            w.budget = 1;
        }
        run_group(w);
        if (w.event & event_fault) return;
        if (w.event & event_yield) {
            w.rotate = !brief || ++w.brief_turns % brief_turns_before_rotating == 0;
            w.rotate_from = (static_cast<uint32_t>(std::countr_zero(w.group)) + 1) % warp_lanes;
            return;
        }
    }
    // Sleeping lanes are polling something, however rarely.
    w.spinning = w.asleep != 0;
}

void exit_lanes(Warp& w, uint32_t lanes) {
    w.live &= ~lanes;
    w.block->live_threads -= static_cast<uint32_t>(std::popcount(lanes));
    for (auto* frame = w.frame; frame;) {
        auto* caller = frame->caller;
        leave_frame(w, frame, lanes);
        frame = caller;
    }
    check_collectives(w);
    check_barriers(*w.block);
    check_cluster(*w.block);
}

Frame* push_frame(Warp& w, const Function& function, Frame* caller, uint32_t lanes) {
    uint64_t local_base = caller ? caller->local_base + caller->function->local_bytes : 0;
    uint32_t depth = caller ? caller->depth + 1 : 0;
    uint64_t chain_bytes = (caller ? caller->chain_bytes : 0) + function.frame_bytes;
    uint64_t stack_bytes = w.local_stride - (w.program->uses_alloca ? alloca_bytes_max : 0);
    if (depth > call_depth_max || chain_bytes > frame_bytes_max || local_base + function.local_bytes > stack_bytes) {
        fault(w, Outcome::illegal_address, static_cast<uint32_t>(std::countr_zero(lanes)), "stack overflow");
        return nullptr;
    }
    auto& pool = w.worker->free_frames;
    Frame* frame = nullptr;
    for (size_t i = pool.size(); i-- > 0;) {
        if (pool[i]->capacity < function.frame_bytes) continue;
        frame = pool[i];
        pool[i] = pool.back();
        pool.pop_back();
        break;
    }
    if (!frame) {
        constexpr uint64_t alignment = 64;
        frame = w.worker->frames.emplace_back(std::make_unique<Frame>()).get();
        frame->capacity = function.frame_bytes;
        frame->storage = std::make_unique<std::byte[]>(function.frame_bytes + 2 * alignment);
        auto address = reinterpret_cast<uint64_t>(frame->storage.get());
        frame->registers = frame->storage.get() + (alignment - address % alignment) % alignment;
    }
    frame->caller = caller;
    frame->function = &function;
    frame->depth = depth;
    frame->chain_bytes = chain_bytes;
    frame->lanes = lanes;
    frame->local_base = local_base;
    if (w.program->uses_alloca) std::copy_n(w.alloca_top, warp_lanes, frame->alloca_top);
    return frame;
}

void leave_frame(Warp& w, Frame* frame, uint32_t lanes) {
    frame->lanes &= ~lanes;
    if (frame->lanes == 0) w.worker->free_frames.push_back(frame);
}

}  // namespace tnr::ptx
