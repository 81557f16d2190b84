// Nothing is captured yet: cuStreamBeginCapture is not there.
#include "gpu_server/emulated_gpu/driver/capture.hpp"

namespace tnr::emulated {

std::shared_ptr<Capture> capture_of(Stream& stream) {
    return stream.capture;
}
CUresult capture_wait(Stream&, Event&, bool&) {
    return CUDA_SUCCESS;
}
CUresult refuse_while_capturing(Stream&) {
    return CUDA_SUCCESS;
}

}  // namespace tnr::emulated
