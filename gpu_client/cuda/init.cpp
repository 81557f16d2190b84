// cuInit, and opening the session with a worker.
#include <cstdlib>
#include <mutex>
#include <zmq.hpp>

#include "gpu_client/cuda/async_errors.hpp"
#include "gpu_client/cuda/device_memory.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/events.hpp"
#include "gpu_client/cuda/fork_and_exit.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_functions.hpp"
#include "gpu_client/cuda/pool.hpp"
#include "gpu_client/cuda/session.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "gpu_client/protocol/fatal_errors.hpp"

namespace tnr::cuda {

static std::atomic<Session*> the_session{nullptr};

Session* session() {
    return the_session.load(std::memory_order_acquire);
}

static void listen_to_news(Session& session) {
    session.news.completed = [](wire::Completed what, uint64_t number, uint64_t position, CUresult result) {
        // Anything less only says that what was watched is gone by now.
        if (wire::ends_context(result)) async_call_failed(0, result, "");
        if (what == wire::Completed::event)
            event_completed(number, position);
        else
            stream_completed(number, position);
    };
    session.news.failed = async_call_failed;
    session.news.run_host_function = run_host_function_soon;
}

// The worker keeps the devices in the order in which the pool described them.
static Result<> take_ranges(const SessionOffer& offer) {
    for (auto* device : devices()) {
        auto index = static_cast<size_t>(device->on_wire);
        if (index >= offer.devices.size())
            return Error{Error::Kind::remote, "the pool offers fewer GPUs than it has described"};
        auto& described = offer.devices[index];
        device->description.granularity_bytes = described.granularity_bytes;
        device->memory->take_range(described.range_address, described.range_bytes, described.granularity_bytes);
    }
    return Ok{};
}

static Result<> open_now() {
    auto offer = ask_for_session();
    if (!offer) return offer.error();
    if (auto taken = take_ranges(*offer); !taken) return taken.error();
    static auto* context = new zmq::context_t(1);  // never ended: that would wait for late calls
    auto channel = wire::Channel::connect(*context, offer->endpoint, offer->keys, offer->session);
    if (!channel) return channel.error();
    remember_endpoint(offer->endpoint);
    auto* opened = new Session(std::move(*channel));
    listen_to_news(*opened);
    opened->start();
    the_session.store(opened, std::memory_order_release);
    log(LogLevel::debug, "session %s at %s", offer->session.c_str(), offer->endpoint.c_str());
    return Ok{};
}

CUresult open_session() {
    static auto* mutex = new std::mutex;
    std::lock_guard lock(*mutex);
    if (session()) return CUDA_SUCCESS;
    auto opened = open_now();
    if (opened) return CUDA_SUCCESS;
    log_error(opened.error());
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" CUresult CUDAAPI cuInit(unsigned int flags) {
    return guarded_always("cuInit", [&]() -> CUresult {
        if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
        auto state = library_state.load();
        if (state == LibraryState::ready) return CUDA_SUCCESS;
        if (state != LibraryState::uninitialized) return refusal();
        watch_fork_and_exit();
        if (auto result = describe_devices(); result != CUDA_SUCCESS) return result;
        auto before = LibraryState::uninitialized;
        library_state.compare_exchange_strong(before, LibraryState::ready);
        return refusal();
    });
}
