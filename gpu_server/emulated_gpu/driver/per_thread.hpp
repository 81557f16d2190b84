// The functions of the API that take a stream exist twice: the plain ones, and those with the suffix _ptsz
// that a program compiled for per-thread default streams calls. They differ only in what no stream means.
#pragma once

#include "gpu_server/emulated_gpu/driver/abi.hpp"

namespace tnr::emulated {

inline CUstream per_thread(CUstream stream) {
    return stream ? stream : CU_STREAM_PER_THREAD;
}

// Both flavours of an exported function. The parameters are in parentheses; the expression finds the stream in `stream`.
// One that has no stream of its own: cuName and cuName_ptds.
#define TNR_NOW(name, parameters, expression)   \
    CUresult name parameters {                  \
        CUstream stream = CU_STREAM_LEGACY;     \
        return expression;                      \
    }                                           \
    CUresult name##_ptds parameters {           \
        CUstream stream = CU_STREAM_PER_THREAD; \
        return expression;                      \
    }
// One that takes a stream: cuName and cuName_ptsz.
#define TNR_LATER(name, parameters, expression) \
    CUresult name parameters {                  \
        return expression;                      \
    }                                           \
    CUresult name##_ptsz parameters {           \
        stream = per_thread(stream);            \
        return expression;                      \
    }

}  // namespace tnr::emulated
