// See own_stream.hpp.
#include "gpu_server/worker/own_stream.hpp"

#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {

CUresult make_own_stream(CUstream& stream) {
    int least = 0, greatest = 0;
    if (auto result = driver().cuCtxGetStreamPriorityRange(&least, &greatest); result != CUDA_SUCCESS) return result;
    return driver().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest);
}

}  // namespace tnr::worker
