// The state of a running grid. A host thread is a Worker; it owns the blocks it runs; a Block's warps
// take turns; a Warp's 32 lanes each have their own pc and call frame, and the scheduler (scheduler.cpp)
// runs, at any time, the group of lanes that stand at the same place. Convergence is only ever a matter
// of speed.
//
// Address windows: a device address is a host address, except that shared, local and parameter memory
// have windows of their own (top byte 1, 2, 3), so that a generic pointer tells which memory it means.
// In the window of shared memory bits 24 to 31 name the block: 0 for the own, else 1 + the rank in the cluster.
#pragma once

#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "gpu_server/emulated_gpu/ptx/child_grids.hpp"
#include "gpu_server/emulated_gpu/ptx/lane_loops.hpp"
#include "gpu_server/emulated_gpu/ptx/program.hpp"
#include "gpu_server/emulated_gpu/ptx/ptx.hpp"

namespace tnr::ptx {

inline constexpr uint32_t no_join = ~0u;
inline constexpr uint64_t shared_window = uint64_t{1} << 56;
inline constexpr uint64_t local_window = uint64_t{2} << 56;
inline constexpr uint64_t param_window = uint64_t{3} << 56;
inline constexpr uint64_t window_mask = uint64_t{0xff} << 56;
inline constexpr uint32_t block_shift = 24;
// The same place, given as an address of shared memory without its window, in the block with that rank.
inline constexpr uint64_t in_block(uint64_t address, uint32_t rank) {
    return (address & ((uint64_t{1} << block_shift) - 1)) | uint64_t{rank + 1} << block_shift;
}
// Hardware since compute capability 8.0 hands out shared memory in these; a block may touch all that it was given.
inline constexpr uint32_t shared_bytes_unit = 128;
// Shared memory of a block that belongs to the system, behind the program's own; cooperative_groups keeps its tiles'
// barriers there. Only kernels of modules that name it get it.
inline constexpr uint32_t reserved_shared_bytes = 1024;

using Clock = std::chrono::steady_clock;

struct Block;
struct Worker;
struct Grid;

// One function's registers for the lanes that called it together.
struct Frame {
    Frame* caller = nullptr;
    const Function* function = nullptr;
    uint32_t return_pc = 0;
    uint32_t call = 0;  // Program::calls
    uint32_t depth = 0;
    uint32_t lanes = 0;                    // still inside
    uint64_t local_base = 0;               // its part of each lane's local memory
    uint64_t chain_bytes = 0;              // of registers, its callers' included
    uint64_t capacity = 0;                 // bytes of `registers`
    uint64_t alloca_top[warp_lanes] = {};  // at the call, if the module has alloca
    std::unique_ptr<std::byte[]> storage;
    std::byte* registers = nullptr;
};

// Why the running group stops: bits of Warp::event.
enum Event : uint32_t { event_reschedule = 1, event_yield = 2, event_fault = 4 };

struct Warp {
    std::byte* bases[3] = {};    // by enum Base
    uint32_t active = 0;         // lanes that execute the current instruction
    uint32_t group = 0;          // lanes that stand at pc
    uint32_t pc = 0;             // already the next one while a handler runs
    uint32_t join_pc = no_join;  // where lanes wait that this group would join
    uint32_t event = 0;
    int32_t budget = 0;     // backward branches until others get a turn
    bool polled = false;    // since the last backward branch: memory was read as spin loops do
    bool spinning = false;  // the last turn ended in such a loop
    bool released = false;  // from a barrier, and nothing has run since
    uint32_t brief_turns = 0;
    Frame* frame = nullptr;

    Block* block = nullptr;
    Worker* worker = nullptr;
    const Program* program = nullptr;
    uint32_t index = 0;                   // in the block
    uint32_t exists = 0;                  // lanes that there are
    uint32_t live = 0;                    // and have not exited
    uint32_t at_barrier = 0;              // wait for the block
    uint32_t at_sync = 0;                 // wait for other lanes of this warp
    uint32_t at_cluster = 0;              // wait for the cluster
    uint32_t cluster_arrived = 0;         // have come to the cluster's barrier, in the phase that is not over
    uint32_t asleep = 0;                  // wait for wake_at
    Clock::time_point wake_at;            // of all that are asleep: PTX lets a warp's sleepers wake together
    uint32_t sync_mask[warp_lanes] = {};  // for which
    uint32_t rotate_from = 0;             // whose turn it is after a yield
    bool rotate = false;
    uint32_t lane_pc[warp_lanes] = {};
    Frame* lane_frame[warp_lanes] = {};
    std::byte* local = nullptr;  // all lanes' local memory
    uint64_t local_stride = 0;
    uint64_t alloca_top[warp_lanes] = {};  // the lowest local address that alloca has given away
    uint64_t instructions = 0;

    template <class T>
    T* reg(RegRef ref) const {
        return reinterpret_cast<T*>(bases[ref & 3] + (ref & ~3u));
    }
    // The same register in another lane's frame: collective operations cross frames.
    template <class T>
    T* reg_of(uint32_t lane, RegRef ref) const {
        auto* base = (ref & 3) == base_frame ? lane_frame[lane]->registers : bases[ref & 3];
        return reinterpret_cast<T*>(base + (ref & ~3u));
    }
    uint32_t& mask(RegRef ref) const { return *reg<uint32_t>(ref); }
    void set_mask(RegRef ref, uint32_t lanes, uint32_t bits) const {
        auto& m = mask(ref);
        m = (m & ~lanes) | (bits & lanes);
    }
    void park(uint32_t lanes, uint32_t at) {
        assign_lanes(lanes, lane_pc, [at](uint32_t) { return at; });
    }
};

struct Barrier {
    std::vector<uint32_t> arrived, waiting;  // lanes, per warp
    uint32_t expected = 0;                   // threads; 0: all of the block
    uint32_t arrivals = 0;                   // lanes
    uint32_t extra = 0;                      // bar.arrive beyond those
    uint32_t trues = 0;                      // of bar.red
};

// The blocks of a cluster, by rank; null when one has ended. One worker runs them all.
using Cluster = std::vector<Block*>;

struct Block {
    Grid* grid = nullptr;
    Worker* worker = nullptr;
    Dim3 id;
    std::shared_ptr<Cluster> cluster;
    uint32_t rank = 0;  // in the cluster
    uint32_t threads = 0;
    uint32_t live_threads = 0;
    std::vector<std::unique_ptr<Warp>> warps;
    std::vector<Barrier> barriers;
    std::vector<std::byte> shared;
    std::byte* shared_base = nullptr;  // in `shared`, aligned
    std::byte* local = nullptr;
    size_t local_bytes = 0;
    bool spinning = false;  // in the last round no warp did more than poll memory or sleep
    bool waits_for_cluster =
        false;  // in the last round none could run until other blocks come to the cluster's barrier
    // When a warp wakes, if in the last round none could run; else in the past.
    Clock::time_point idle_until;
    ~Block();
};

// What all workers of one launch share.
struct Grid {
    explicit Grid(uint32_t depth) : children(depth) {}
    const Launch* launch = nullptr;
    const Kernel* kernel = nullptr;
    const Program* program = nullptr;
    const Function* function = nullptr;
    std::vector<std::byte> relocated;
    uint32_t static_shared = 0, reserved_shared_at = 0, shared_bytes = 0;
    uint64_t local_stride = 0;
    uint64_t clusters = 0;
    uint32_t cluster_blocks = 1;
    std::atomic<uint64_t> next_cluster{0};
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> instructions{0};
    alignas(16) unsigned char workspace[64] = {};  // of cooperative_groups' grid barrier, through %envreg1 and 2
    ChildGrids children;
    Mutex mutex;                          // also held while a kernel prints, so that lines stay whole
    Report report TNR_GUARDED_BY(mutex);  // the first fault wins
};

struct Worker {
    Grid* grid = nullptr;
    unsigned index = 0, count = 1;
    std::vector<std::unique_ptr<Frame>> frames;  // all
    std::vector<Frame*> free_frames;
    static constexpr size_t ranges_max = 4;  // more arrays than that per loop are rare
    Memory::Range ranges[ranges_max];
    size_t next_range = 0;
    uint64_t generation = 0, heap_generation = 0;
};

// The next cluster that has not begun; false when there is none. Not for cooperative launches (grid.cpp).
bool take_cluster(Grid& grid, uint64_t& cluster);
// Where the block with this rank in the cluster lies in the grid.
Dim3 block_id(const Launch& launch, uint64_t cluster, uint32_t rank);

// Records the first fault of the grid and stops it. `lane` names the thread in the report.
void fault(Warp& warp, Outcome outcome, uint32_t lane, const std::string& what);
// "line 12: " of the instruction being executed.
uint32_t current_line(const Warp& warp);

// nullptr after a fault: calls nested too deeply.
Frame* push_frame(Warp& warp, const Function& function, Frame* caller, uint32_t lanes);
void leave_frame(Warp& warp, Frame* frame, uint32_t lanes);

// Scheduling (scheduler.cpp).
void start_warp(Warp& warp, const Function& function);
void run_warp(Warp& warp);  // until it yields, waits or ends
void exit_lanes(Warp& warp, uint32_t lanes);
inline uint32_t runnable(const Warp& warp) {
    return warp.live & ~warp.at_barrier & ~warp.at_sync & ~warp.at_cluster & ~warp.asleep;
}
inline void wake_when_due(Warp& warp) {
    if (warp.asleep && Clock::now() >= warp.wake_at) warp.asleep = 0;
}
// After lanes exited or arrived: releases barriers that are complete (barrier.cpp).
void check_barriers(Block& block);
// Likewise the cluster's barrier (cluster.cpp).
void check_cluster(Block& block);
// After lanes of a warp exited: completes collectives that waited for them (collective.cpp).
void check_collectives(Warp& warp);

// Makes the group's lanes stand at warp.pc; the scheduler decides anew who runs.
inline void reschedule(Warp& warp) {
    warp.park(warp.group, warp.pc);
    warp.event |= event_reschedule;
}

// At a backward branch or call, after warp.pc was set for the whole group: gives others a turn now and
// then, and soon when this looks like a spin loop, whose end may depend on them.
inline constexpr int32_t turn_branches = 4096;
inline constexpr int32_t poll_cost_branches = 256;
inline void back_edge(Warp& warp) {
    warp.budget -= warp.polled ? poll_cost_branches : 1;
    warp.spinning = warp.polled;
    warp.polled = false;
    if (warp.budget > 0) return;
    reschedule(warp);
    warp.event |= event_yield;
}

}  // namespace tnr::ptx
