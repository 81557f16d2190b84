// The GPU memory of the variables of loaded code, charged to the session. The driver takes it for itself, for each context
// that uses the code and when that is first used; which that will be nobody knows at the load. So a load is charged on
// each device, for each of the client's contexts there (for one if there is none yet), and so is a new context for all
// that is loaded. As with limits (limit_memory.hpp), the supervisor grants this apart from the client's own grant.
//
// Belongs to the dispatcher, or to what it holds all records back for. What may wait for the supervisor is not for the
// dispatcher's thread.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "driver_table.hpp"
#include "gpu_server/worker/supervisor_link.hpp"

namespace tnr::worker {

class CodeMemory {
public:
    CodeMemory(SupervisorLink& supervisor, size_t devices) : supervisor_(supervisor), of_(devices) {}

    // Whether load() or enter() would not wait, as enough is granted already.
    bool has_room_to_load(uint64_t bytes) const;
    bool has_room_to_enter(uint32_t device) const;

    // False: there is not as much. May wait.
    bool load(uint64_t library, uint64_t bytes);
    bool enter(CUcontext context, uint32_t device);
    // The library, or the context, is gone.
    void unload(uint64_t library);
    void leave(CUcontext context);

    uint64_t charged(uint32_t device) const { return of_[device].granted; }

private:
    struct OfDevice {
        uint64_t contexts = 0;
        uint64_t granted = 0;
    };
    bool charge();  // what is missing, on each device
    void give_back();

    SupervisorLink& supervisor_;
    std::vector<OfDevice> of_;
    std::unordered_map<uint64_t, uint64_t> libraries_;  // bytes of those that have any
    std::map<CUcontext, uint32_t> contexts_;            // with their devices
    uint64_t bytes_ = 0;                                // of all libraries
};

}  // namespace tnr::worker
