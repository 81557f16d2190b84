// Control flow: bra, brx, call, ret, exit, trap, nanosleep. Where only part of the group takes a branch the
// lanes are parked at their places and the scheduler decides.
#include <algorithm>

#include "gpu_server/emulated_gpu/ptx/builtin.hpp"
#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"

namespace tnr::ptx {

Handler end_of_function_handler();

namespace {

uint32_t first_lane(uint32_t lanes) {
    return static_cast<uint32_t>(std::countr_zero(lanes));
}

void branch(Warp& w, const Instr& i) {
    auto target = static_cast<uint32_t>(i.imm);
    bool back = target < w.pc;
    if (w.active == w.group) {
        w.pc = target;
        if (back) back_edge(w);
        return;
    }
    if (back) {
        // The turn is counted here too, or a loop in which lanes keep leaving would never end it.
        w.budget -= w.polled ? poll_cost_branches : 1;
        w.spinning = std::exchange(w.polled, false);
        if (w.budget <= 0) w.event |= event_yield;
    }
    // The lanes that stand lower in the code go on, as the scheduler would have it; the others wait to be joined.
    uint32_t stay = w.group & ~w.active, lower = std::min(target, w.pc), higher = std::max(target, w.pc);
    if (w.event || lower >= w.join_pc) {
        reschedule(w);
        w.park(w.active, target);
        return;
    }
    if (lower == higher) return;
    w.park(back ? stay : w.active, higher);
    w.group = back ? w.active : stay;
    w.pc = lower;
    w.join_pc = std::min(w.join_pc, higher);
}

void branch_indexed(Warp& w, const Instr& i) {
    auto& targets = w.program->targets[i.table];
    auto* index = w.reg<uint32_t>(i.a);
    reschedule(w);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = first_lane(rest);
        if (index[lane] >= targets.size())
            return fault(w, Outcome::illegal_instruction, lane, "brx.idx beyond its list of targets");
        w.lane_pc[lane] = targets[index[lane]];
    }
    if (--w.budget <= 0) w.event |= event_yield;
}

std::byte* local_of(const Warp& w, uint32_t lane) {
    return w.local + lane * w.local_stride;
}

void copy_ranges(Warp& w, uint32_t lanes, uint64_t to_base, const std::vector<ByteRange>& to, uint64_t from_base,
                 const std::vector<ByteRange>& from) {
    for (size_t k = 0; k < std::min(to.size(), from.size()); ++k) {
        auto bytes = std::min(to[k].size, from[k].size);
        for (uint32_t rest = lanes; rest; rest &= rest - 1) {
            auto* local = local_of(w, first_lane(rest));
            std::memcpy(local + to_base + to[k].offset, local + from_base + from[k].offset, bytes);
        }
    }
}

Frame* enter(Warp& w, const Instr& i, uint32_t function, uint32_t lanes) {
    auto& callee = w.program->functions[function];
    auto* frame = push_frame(w, callee, w.frame, lanes);
    if (!frame) return nullptr;
    frame->return_pc = w.pc;
    frame->call = i.table;
    copy_ranges(w, lanes, frame->local_base, callee.parameters, w.frame->local_base,
                w.program->calls[i.table].arguments);
    return frame;
}

void call_builtin_handler(Warp& w, const Instr& i) {
    call_builtin(w, w.program->calls[i.table]);
}

void call_direct(Warp& w, const Instr& i) {
    auto function = w.program->calls[i.table].function;
    auto* frame = enter(w, i, function, w.active);
    if (!frame) return;
    auto entry = w.program->functions[function].entry_pc;
    uint32_t stay = w.group & ~w.active;
    w.park(stay, w.pc);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) w.lane_frame[first_lane(rest)] = frame;
    w.group = w.active;
    w.frame = frame;
    w.bases[base_frame] = frame->registers;
    w.pc = entry;
    w.join_pc = no_join;  // nobody else is in this frame
    back_edge(w);
}

void call_indirect(Warp& w, const Instr& i) {
    auto* target = w.reg<uint64_t>(i.a);
    uint32_t left = w.active;
    reschedule(w);
    while (left) {
        auto leader = first_lane(left);
        uint64_t code = target[leader];
        auto index = code & ~window_mask;
        bool valid = (code & window_mask) == code_window && index < w.program->functions.size();
        if (!valid || w.program->functions[index].entry_pc == ~0u)
            return fault(w, Outcome::illegal_instruction, leader, "call through a pointer that is no function");
        uint32_t same = 0;
        for (uint32_t rest = left; rest; rest &= rest - 1)
            if (target[first_lane(rest)] == code) same |= 1u << first_lane(rest);
        auto* frame = enter(w, i, static_cast<uint32_t>(index), same);
        if (!frame) return;
        for (uint32_t rest = same; rest; rest &= rest - 1) {
            w.lane_frame[first_lane(rest)] = frame;
            w.lane_pc[first_lane(rest)] = frame->function->entry_pc;
        }
        left &= ~same;
    }
    if (--w.budget <= 0) w.event |= event_yield;
}

void leave(Warp& w, const Instr&) {
    auto* frame = w.frame;
    if (!frame->caller) {
        exit_lanes(w, w.active);
        w.park(w.group & ~w.active, w.pc);
        w.event |= event_reschedule;
        return;
    }
    auto& call = w.program->calls[frame->call];
    copy_ranges(w, w.active, frame->caller->local_base, call.results, frame->local_base, frame->function->returns);
    auto* caller = frame->caller;
    uint32_t back_at = frame->return_pc;
    w.park(w.group & ~w.active, w.pc);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        w.lane_frame[first_lane(rest)] = caller;
        w.lane_pc[first_lane(rest)] = back_at;
        if (w.program->uses_alloca) w.alloca_top[first_lane(rest)] = frame->alloca_top[first_lane(rest)];
    }
    leave_frame(w, frame, w.active);
    if (runnable(w) != w.active) {
        w.event |= event_reschedule;
        return;
    }
    w.group = w.active;
    w.frame = caller;
    w.bases[base_frame] = caller->registers;
    w.pc = back_at;
    w.join_pc = no_join;
}

void exit_thread(Warp& w, const Instr&) {
    w.park(w.group & ~w.active, w.pc);
    exit_lanes(w, w.active);
    w.event |= event_reschedule;
}

void trap(Warp& w, const Instr&) {
    fault(w, Outcome::trap, first_lane(w.active), "trap");
}

// The ISA bounds a sleep by twice what was asked for and by 1 ms; the shortest wish of the group counts for all.
constexpr uint32_t sleep_ns_max = 1'000'000;

void sleep(Warp& w, const Instr& i) {
    auto* wish = w.reg<uint32_t>(i.a);
    uint32_t shortest = sleep_ns_max;
    for (uint32_t rest = w.active; rest; rest &= rest - 1) shortest = std::min(shortest, wish[first_lane(rest)]);
    auto wake_at = Clock::now() + std::chrono::nanoseconds(shortest);
    w.wake_at = w.asleep ? std::min(w.wake_at, wake_at) : wake_at;
    w.asleep |= w.active;
    w.polled = true;  // a loop around a sleep waits for somebody, even one of 0 ns
    reschedule(w);
}

void add_ranges(Decoder& d, const ast::Operand& list, std::vector<ByteRange>& ranges) {
    for (auto& part : list.parts) {
        if (part.kind != ast::Operand::Kind::variable)
            return d.fail("arguments must be .param variables for the emulated GPU");
        ranges.push_back(d.local_range(part.index));
    }
}

// call (results), f, (arguments), prototype; every part but f may be missing.
void decode_call(Decoder& d) {
    using Kind = ast::Operand::Kind;
    d.take("uni");
    Call call;
    size_t at = 0;
    if (d.operand(0).kind == Kind::list) add_ranges(d, d.operand(at++), call.results);
    auto& callee = d.operand(at++);
    if (at < d.operand_count() && d.operand(at).kind == Kind::list) add_ranges(d, d.operand(at++), call.arguments);
    if (d.failed()) return;
    Handler handler = call_direct;
    RegRef pointer = 0;
    if (callee.kind == Kind::function) {
        call.function = callee.index;
        auto& target = d.unit().functions[callee.index];
        if (target.is_entry) return d.fail("an entry cannot be called");
        // Any other that is not defined here is another unit's; link() has seen to it that there is one.
        if (!target.defined && builtin_named(target.name) != Builtin::none) {
            call.builtin = builtin_named(target.name);
            if (!builtin_fits(call)) return d.fail("'" + std::string(target.name) + "' takes other arguments");
            handler = call_builtin_handler;
        } else if (!target.defined && is_of_old_device_runtime(target.name)) {
            return emit_absent(d, "'" + std::string(target.name) + "' of the device runtime before CUDA 12");
        }
        d.function().callees.push_back(callee.index);
    } else if (callee.kind == Kind::reg) {
        pointer = d.source(callee, Type::u64);
        d.function().calls_indirectly = true;
        handler = call_indirect;
    } else {
        return d.fail("'" + std::string(callee.name) + "' is no function");
    }
    auto& calls = d.program().calls;
    calls.push_back(std::move(call));
    auto& instr = d.emit(handler);
    instr.a = pointer;
    instr.table = static_cast<uint32_t>(calls.size() - 1);
}

void decode_bra(Decoder& d) {
    d.take("uni");
    auto& target = d.operand(0);
    if (target.kind != ast::Operand::Kind::label) return d.fail("expected a label");
    d.emit(branch);
    d.fix_target(target.name);
}

void decode_brx(Decoder& d) {
    d.take("uni");
    if (!d.take("idx")) return d.unsupported();
    auto index = d.source(0, Type::u32);
    auto* list = d.find_label(d.operand(1).name, d.inst().scope);
    if (!list || list->targets.empty()) return d.fail("expected a .branchtargets list");
    auto table = d.add_targets(list->targets);
    auto& instr = d.emit(branch_indexed);
    instr.a = index;
    instr.table = table;
}

void decode_nanosleep(Decoder& d) {
    if (!d.take("u32")) return d.unsupported();
    auto wish = d.source(0, Type::u32);
    d.emit(sleep).a = wish;
}

}  // namespace

Handler end_of_function_handler() {
    return leave;
}

bool decode_control(Decoder& d) {
    auto name = d.inst().name;
    if (name == "bra")
        decode_bra(d);
    else if (name == "brx")
        decode_brx(d);
    else if (name == "call")
        decode_call(d);
    else if (name == "ret")
        d.take("uni"), d.emit(leave);
    else if (name == "exit")
        d.emit(exit_thread);
    else if (name == "trap" || name == "brkpt")
        d.emit(trap);
    else if (name == "pmevent" || name == "setmaxnreg")
        for (auto modifier : d.inst().modifiers) d.take(modifier);  // for profilers, and registers cost nothing here
    else if (name == "nanosleep")
        decode_nanosleep(d);
    else
        return false;
    return true;
}

}  // namespace tnr::ptx
