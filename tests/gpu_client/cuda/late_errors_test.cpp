// Whose failure it is when a call that nobody waited for has failed. Seen from inside the client library, beside a server.
#include "cuda_calls.hpp"
#include "gpu_client/cuda/async_errors.hpp"
#include "tests/gpu_client/cuda/costs.hpp"

using namespace tnr::cuda;

// Its code is loaded when it is first used, which the program does not see.
TEST_CASE("code that is loaded after another call has failed is loaded, and a wait tells of the failure once",
          "[remoting]") {
    OK(cuInit(0));
    CUcontext context = nullptr;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuCtxSynchronize());
    CUlibrary library = nullptr;
    OK(cuLibraryLoadData(&library, ".version 8.1\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }",
                         nullptr, nullptr, 0, nullptr, nullptr, 0));
    async_call_failed(tnr::wire::op_cuMemsetD2D8Async, CUDA_ERROR_INVALID_VALUE, "");
    CUkernel kernel = nullptr;
    OK(cuLibraryGetKernel(&kernel, library, "nothing"));
    OK(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    CHECK(cuCtxSynchronize() == CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSynchronize());
    OK(cuLibraryUnload(library));
    OK(cuDevicePrimaryCtxRelease_v2(0));
}
