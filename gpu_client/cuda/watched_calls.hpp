// What the generated exported functions pass through while somebody watches: TNR_LOG=trace prints each call with its
// arguments (trace.hpp), TNR_PROFILE notes when it began and ended (profile.hpp).
//
// An exported function cuX that nobody watches is a test and a jump to tnr_cuX, which does the work.
#pragma once

#include <initializer_list>

#include "gpu_client/cuda/profile.hpp"
#include "gpu_client/cuda/trace.hpp"

namespace tnr::cuda {

// Set from the environment when the library is loaded; the child of a fork clears it. No atomic, as only one thread runs then,
// and each call has to pass by.
extern bool calls_watched;

inline bool calls_are_watched() {
    return __builtin_expect(calls_watched, false);
}

class WatchedCall {
public:
    explicit WatchedCall(const char* name) : name_(name), slice_(name) {}
    // Returns `result`. An out-parameter is read now, behind the call.
    CUresult ended(CUresult result, std::initializer_list<Argument> arguments);

private:
    const char* name_;
    ProfiledSlice slice_;
};

}  // namespace tnr::cuda
