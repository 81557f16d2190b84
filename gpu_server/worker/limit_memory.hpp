// Memory that a driver holds because of what a program has set with cuCtxSetLimit: the heap that kernels' malloc takes
// from, the buffer of their printf. The driver takes it for itself, at the set or at a launch after it, so it is charged
// when it is set. The client's own grant has no part in it: the client counts that itself. The supervisor grants this
// apart, and has it back when the limit is lowered or its context ends.
//
// What a context holds without being told to is not charged, and neither are stacks: a driver sizes those by what it
// launches.
//
// Belongs to the dispatcher, or to what it holds all records back for.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "driver_table.hpp"
#include "gpu_server/worker/supervisor_link.hpp"

namespace tnr::worker {

class LimitMemory {
public:
    explicit LimitMemory(SupervisorLink& supervisor) : supervisor_(supervisor) {}

    // Sets a limit of `context`, which is current and is on `device`. Waits for the supervisor when that takes more
    // memory.
    CUresult set(CUcontext context, uint32_t device, CUlimit limit, uint64_t value);
    // The context is gone, or has its defaults again.
    void forget(CUcontext context);
    // All in all.
    uint64_t charged(uint32_t device) const;

private:
    struct Charge {
        uint32_t device = 0;
        uint64_t uncharged = 0;  // what the limit was at first
        uint64_t bytes = 0;
    };
    CUresult set_charged(Charge& charge, CUlimit limit, uint64_t value);

    SupervisorLink& supervisor_;
    std::map<std::pair<CUcontext, CUlimit>, Charge> charges_;
};

}  // namespace tnr::worker
