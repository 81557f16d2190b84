// What is known of work that may still use the program's memory, beside a server (with_server.py).
#include "gpu_client/cuda/page_transfers.hpp"

#include "gpu_client/cuda/contexts.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "tests/gpu_client/cuda/costs.hpp"

using namespace tnr::cuda;
using namespace std::chrono_literals;

namespace {

class OneStream {
public:
    OneStream() {
        OK(cuInit(0));
        OK(cuDevicePrimaryCtxRetain(&context_, 0));
        OK(cuCtxSetCurrent(context_));
        OK(cuMemAlloc_v2(&memory_, 4));
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    }
    ~OneStream() { cuDevicePrimaryCtxReset_v2(0); }
    OneStream(const OneStream&) = delete;
    OneStream& operator=(const OneStream&) = delete;

    Work submit() {
        StreamRef ref;
        Context* context = nullptr;
        OK(cuMemsetD32Async(memory_, 1, 1, stream));
        OK(resolve_stream(stream, ref));
        OK(context_of_stream(ref, context));
        return work_of(*context, ref);
    }
    CUstream stream = nullptr;

private:
    CUcontext context_ = nullptr;
    CUdeviceptr memory_ = 0;
};

}  // namespace

TEST_CASE("work whose end was told is complete, also when its stream is gone") {
    OneStream one;
    Work work = one.submit();
    REQUIRE(wait_for(work, 30s) == Waited::complete);
    OK(cuStreamDestroy_v2(one.stream));
    CHECK(is_complete(work));
    CHECK(wait_for(work, 30s) == Waited::complete);
}

TEST_CASE("work of a stream that was captured when it was asked, and is gone since, is asked for once more") {
    OneStream one;
    Work work = one.submit();
    OK(cuStreamBeginCapture_v2(one.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(wait_for(work, 100ms) == Waited::going_on);
    OK(cuStreamDestroy_v2(one.stream));
    auto waited = wait_for(work, 30s);
    if (waited == Waited::going_on) waited = wait_for(work, 30s);
    CHECK(waited == Waited::complete);
}
