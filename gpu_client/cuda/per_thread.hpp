// The _ptsz and _ptds variants of calls: within one, stream 0 means the calling thread's own default stream.
#pragma once

#include "gpu_client/cuda/driver_api.hpp"
#include "gpu_client/cuda/thread_state.hpp"

namespace tnr::cuda {

class PerThreadDefaultStream {
public:
    PerThreadDefaultStream() : before_(thread_state().per_thread_default) { thread_state().per_thread_default = true; }
    ~PerThreadDefaultStream() { thread_state().per_thread_default = before_; }
    PerThreadDefaultStream(const PerThreadDefaultStream&) = delete;
    PerThreadDefaultStream& operator=(const PerThreadDefaultStream&) = delete;

private:
    bool before_;
};

}  // namespace tnr::cuda
