// Failures of calls that nobody waited for. As in CUDA, a later waiting call returns them; a failure that ends a
// context is returned from then on.
#pragma once

#include <string_view>

#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

// Records the worker's report that an asynchronous call has failed.
void async_call_failed(uint16_t op, CUresult result, std::string_view detail);
// What the waiting call that just got `result` in `context` must return.
CUresult with_async_errors(CUresult result, Context* context);
// Forgets the context's error, and any failure that no call has returned yet: the context has ended, or begins anew.
void forget_async_errors(Context& context);

}  // namespace tnr::cuda
