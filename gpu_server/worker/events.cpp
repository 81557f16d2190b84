// See events.hpp.
#include "gpu_server/worker/events.hpp"

#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {

CUresult make_event(SharedEvent& event, unsigned flags) {
    CUevent made = nullptr;
    auto result = driver().cuEventCreate(&made, flags);
    if (result == CUDA_SUCCESS) event = SharedEvent(made, [](CUevent last) { driver().cuEventDestroy_v2(last); });
    return result;
}

CUresult mark(SharedEvent& event, CUstream stream) {
    auto result = make_event(event, CU_EVENT_DISABLE_TIMING);
    return result == CUDA_SUCCESS ? driver().cuEventRecord(event.get(), stream) : result;
}

bool is_reached(const SharedEvent& event) {
    return driver().cuEventQuery(event.get()) != CUDA_ERROR_NOT_READY;
}

}  // namespace tnr::worker
