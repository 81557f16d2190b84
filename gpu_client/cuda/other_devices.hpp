// Work on memory of another device than the one whose stream it is put into. Addresses are unified, so copies take any
// device's memory whatever context is current. But what we map may be used by its own device alone, unless the program
// has opened it to others: so a copy to or from the host takes a detour through the memory's own device, in the order
// of the stream that it was put into.
#pragma once

#include "gpu_client/cuda/streams.hpp"

namespace tnr::cuda {

// The context in which a command must run that uses this address: `here` if its device may, else one of a device that
// may. Null: there is none.
Context* context_for_memory(uint64_t address, Context& here);

class Detour {
public:
    // Where stream() is another than `from`, what is put into it runs behind all that `from` holds now.
    CUresult begin(uint64_t address, const StreamRef& from);
    const StreamRef& stream() const { return stream_; }
    Context& context() const { return *context_; }
    // What `from` gets next runs behind what has been put into stream().
    CUresult end();

private:
    bool elsewhere_ = false;
    StreamRef from_, stream_;
    Context* here_ = nullptr;
    Context* context_ = nullptr;
};

}  // namespace tnr::cuda
