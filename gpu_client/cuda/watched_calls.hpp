// What the generated exported functions pass through while somebody watches: TNR_LOG=trace prints each call with its
// arguments (trace.hpp), TNR_PROFILE notes when it began and ended (profile.hpp).
//
// While nobody watches, an exported function cuX is a test and a jump to tnr_cuX, which does the work.
#pragma once

#include <initializer_list>

#include "gpu_client/cuda/profile.hpp"
#include "gpu_client/cuda/trace.hpp"

namespace tnr::cuda {

// Set from the environment when the library is loaded; the child of a fork clears it. Not atomic: only one thread runs
// at those times, and every call reads it.
extern bool calls_watched;

inline bool calls_are_watched() {
    return __builtin_expect(calls_watched, false);
}

class WatchedCall {
public:
    explicit WatchedCall(const char* name) : name_(name), slice_(name) {}
    // Returns `result`. An out-parameter is read now, after the call.
    CUresult ended(CUresult result, std::initializer_list<Argument> arguments);

private:
    const char* name_;
    ProfiledSlice slice_;
};

}  // namespace tnr::cuda
