// Failures of calls that nobody waited for. As in CUDA, a later waiting call returns them; those that end a context
// stay.
#pragma once

#include <string_view>

#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

// The worker told that a call which was sent async has failed.
void async_call_failed(uint16_t op, CUresult result, std::string_view detail);
// What the waiting call that just got `result` in `context` must return.
CUresult with_async_errors(CUresult result, Context* context);
// The context is gone or new: so are its errors.
void forget_async_errors(Context& context);

}  // namespace tnr::cuda
