// See async_errors.hpp.
#include "gpu_client/cuda/async_errors.hpp"

#include "cuda_calls.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/protocol/fatal_errors.hpp"

namespace tnr::cuda {

static std::atomic<int> unreported{0};  // the first non-fatal failure that no call has returned yet

static const char* name_of(uint16_t op) {
    auto* call = wire::find_call(op);
    return call ? call->name : "a call";
}

void async_call_failed(uint16_t op, CUresult result, std::string_view detail) {
    auto first_line = detail.substr(0, detail.find('\n'));
    log(LogLevel::info, "%s failed after it had returned: error %d %.*s", name_of(op), static_cast<int>(result),
        static_cast<int>(first_line.size()), first_line.data());
    if (wire::call_is(op, wire::call_destroys)) return;
    if (first_line.size() < detail.size())
        log_once(LogLevel::warning, std::string(detail.substr(first_line.size() + 1)));
    if (wire::ends_context(result)) {
        // The record does not say where; the contexts of a process share their worker's fate anyway.
        contexts().each([&](Context& context, uint64_t) {
            if (context.active) context.sticky = result;
        });
        return;
    }
    int none = 0;
    unreported.compare_exchange_strong(none, result);
}

CUresult with_async_errors(CUresult result, Context* context) {
    if (context && wire::ends_context(result)) context->sticky = result;
    if (context && context->sticky != 0) return static_cast<CUresult>(context->sticky.load());
    if (result != CUDA_SUCCESS) return result;
    if (unreported.load(std::memory_order_relaxed) == 0) return result;
    return static_cast<CUresult>(unreported.exchange(0));
}

void forget_async_errors(Context& context) {
    context.sticky = 0;
    unreported = 0;
}

}  // namespace tnr::cuda
