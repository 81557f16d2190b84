// See host_functions.hpp.
#include "gpu_client/cuda/host_functions.hpp"

#include <deque>
#include <map>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/background_thread.hpp"
#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/streams.hpp"

namespace tnr::cuda {

namespace {
struct HostFunctions {
    Mutex mutex;
    Condition wake;
    bool started TNR_GUARDED_BY(mutex) = false;
    uint64_t last_ticket TNR_GUARDED_BY(mutex) = 0;
    struct Waiting {
        std::function<void()> run;
        ClientSession* session;  // of its stream
    };
    std::map<uint64_t, Waiting> waiting TNR_GUARDED_BY(mutex);  // by ticket
    std::deque<uint64_t> reached TNR_GUARDED_BY(mutex);
};
HostFunctions& host_functions() {
    static auto* all = new HostFunctions;
    return *all;
}
}  // namespace

// One thread for all: CUDA promises streams no concurrency among their host functions.
static void run_host_functions() {
    auto& all = host_functions();
    while (true) {
        UniqueLock lock(all.mutex);
        all.wake.wait(all.mutex, [&]() TNR_REQUIRES(all.mutex) { return !all.reached.empty(); });
        uint64_t ticket = all.reached.front();
        all.reached.pop_front();
        auto node = all.waiting.extract(ticket);
        lock.unlock();
        if (node.empty()) continue;  // not one of ours
        note_completion_heard();
        auto& reached = node.mapped();
        reached.run();
        reached.session->send_at_once(wire::HostFunctionDone{ticket});
        reached.session->expect_news(-1);
    }
}

void run_host_function_soon(uint64_t ticket) {
    auto& all = host_functions();
    LockGuard lock(all.mutex);
    all.reached.push_back(ticket);
    all.wake.notify_one();
}

CUresult run_in_stream(CUstream in, std::function<void()> run) {
    StreamRef stream;
    if (auto result = resolve_stream(in, stream); result != CUDA_SUCCESS) return result;
    Context* context = nullptr;
    if (auto result = context_of_stream(stream, context); result != CUDA_SUCCESS) return result;
    auto& session = *context->session.load();
    auto& all = host_functions();
    uint64_t ticket = 0;
    {
        LockGuard lock(all.mutex);
        if (!std::exchange(all.started, true)) start_background_thread(run_host_functions);
        ticket = ++all.last_ticket;
        all.waiting[ticket] = {std::move(run), &session};
    }
    RemoteCall call(wire::LaunchHostFunction<>{stream.number, ticket});
    call.use(stream);
    auto result = call.send();
    if (result == CUDA_SUCCESS) {
        session.expect_news(+1);
        return result;
    }
    LockGuard lock(all.mutex);
    all.waiting.erase(ticket);
    return result;
}

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
    return guarded("cuLaunchHostFunc", [&]() -> CUresult {
        if (!function) return CUDA_ERROR_INVALID_VALUE;
        return run_in_stream(stream, [=] { function(data); });
    });
}

CUresult CUDAAPI cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* data, unsigned int flags) {
    return guarded("cuStreamAddCallback", [&]() -> CUresult {
        if (!callback || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        return run_in_stream(stream, [=] { callback(stream, CUDA_SUCCESS, data); });
    });
}

}  // extern "C"
