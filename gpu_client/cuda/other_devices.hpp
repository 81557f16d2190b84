// Work on memory of a device other than the stream's. Addresses are unified, so copies take any device's memory
// whatever context is current. But memory that we map may be used by its own device only, unless the program has opened
// it to others. So a copy to or from the host takes a detour through the memory's own device, in the order of the
// stream it was submitted to.
#pragma once

#include "gpu_client/cuda/streams.hpp"

namespace tnr::cuda {

// The context in which a command that uses this address must run: `here` if its device may use it, else one of a device
// that may. Null if there is none.
Context* context_for_memory(uint64_t address, Context& here);
// False where one of the addresses is of another device's pool that is not open to the device `here`, to or from which
// the copy is.
bool pools_let_copy(uint64_t to, uint64_t from, const Context& here);
// A graph's copies and fills, and copies from and to arrays, run in one context, so its device must be able to use the
// memory: opens all memory of the address's device to it, for as long as the process lives. False where that is not
// possible.
bool open_to_device_of(const Context& here, uint64_t address);

class Detour {
public:
    // For an array the address is 0: there is no detour to one.
    // If stream() is not `from`, work submitted to it runs after everything that `from` holds now.
    CUresult begin(uint64_t address, const StreamRef& from);
    const StreamRef& stream() const { return stream_; }
    Context& context() const { return *context_; }
    // Work submitted to `from` next runs after what has been submitted to stream().
    CUresult end();

private:
    bool elsewhere_ = false;
    StreamRef from_, stream_;
    Context* here_ = nullptr;
    Context* context_ = nullptr;
};

}  // namespace tnr::cuda
