// The functions of the API that take a stream exist twice: the plain ones, and those with the suffix _ptsz
// that a program compiled for per-thread default streams calls. They differ only in what no stream means.
#pragma once

#include "gpu_server/emulated_gpu/driver/abi.hpp"

namespace tnr::emulated {

inline CUstream per_thread(CUstream stream) {
    return stream ? stream : CU_STREAM_PER_THREAD;
}

}  // namespace tnr::emulated
