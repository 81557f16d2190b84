// cuInit, and opening the session with a worker.
#include <algorithm>
#include <cstdlib>
#include <vector>
#include <zmq.hpp>

#include "api_client/base/turn.hpp"
#include "gpu_client/cuda/address_ranges.hpp"
#include "gpu_client/cuda/async_errors.hpp"
#include "gpu_client/cuda/background_thread.hpp"
#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/contexts.hpp"
#include "gpu_client/cuda/device_memory.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/events.hpp"
#include "gpu_client/cuda/fork_and_exit.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_functions.hpp"
#include "gpu_client/cuda/memory_info.hpp"
#include "gpu_client/cuda/pool.hpp"
#include "gpu_client/cuda/profile.hpp"
#include "gpu_client/cuda/profile_worker.hpp"
#include "gpu_client/cuda/profile_writer.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "gpu_client/cuda/user_objects.hpp"
#include "gpu_client/protocol/address_zone.hpp"
#include "gpu_client/protocol/fatal_errors.hpp"

namespace tnr::cuda {

std::vector<ClientSession*> open_sessions() {
    std::vector<ClientSession*> found;
    for (auto* device : devices())
        if (auto* session = device->session.load();
            session && std::find(found.begin(), found.end(), session) == found.end())
            found.push_back(session);
    return found;
}

static void listen_to_news(ClientSession& session) {
    session.news.completed = [](const wire::Completed& told) {
        auto result = static_cast<CUresult>(told.result);
        // Anything less only says that what was watched is gone by now.
        if (wire::ends_context(result)) async_call_failed(0, result, "");
        if (told.what == wire::Completable::event)
            event_completed(told.number, told.position);
        else
            stream_completed(told.number, told.position);
    };
    session.news.failed = [](const wire::Failed& told) {
        async_call_failed(told.call, static_cast<CUresult>(told.result), told.detail);
    };
    session.news.run_host_function = run_host_function_soon;
    session.news.run_graph_function = [&session](const wire::RunGraphFunction& told) {
        run_graph_function_soon(session, told.ticket, told.run);
    };
    session.news.seen_data = take_seen_data;
    session.news.user_object_gone = user_object_gone;
    session.news.memory_shared = memory_shared;
    session.news.memory_wanted = [&session](uint32_t number, uint64_t bytes) {
        for (auto* device : devices())
            if (device->session.load() == &session && device->number == number)
                start_background_thread([device, bytes] {  // it may wait, and whoever receives must not
                    if (library_state == LibraryState::ready) device->memory->give_up_idle(bytes);
                });
    };
}

// How often another place for a range is proposed to a worker. Both processes leave nearly all of the zone free.
static constexpr int proposals_max = 8;
// How long a worker whose ranges did not suit is given to end.
static constexpr std::chrono::milliseconds unsuited_farewell_timeout{500};

// One device's range of addresses, held in this process from the first moment on.
struct DeviceRange {
    Device* device = nullptr;
    uint64_t address = 0;  // 0: where the worker has it, this process has something else
    uint64_t bytes = 0;
};

// The worker keeps the devices in the order in which the pool described them. It has reserved a range for each before
// it knew us; usually these are free here as well, and nothing needs to be moved.
static Result<std::vector<DeviceRange>> hold_ranges(const SessionOffer& offer) {
    std::vector<DeviceRange> ranges;
    for (auto* device : devices()) {
        auto index = static_cast<size_t>(device->number);
        if (index >= offer.devices.size())
            return Error{Error::Kind::remote, "the pool offers fewer GPUs than it has described"};
        auto& described = offer.devices[index];
        device->description.granularity_bytes = described.granularity_bytes;
        bool held = hold_addresses(described.range_address, described.range_bytes);
        ranges.push_back({device, held ? described.range_address : 0, described.range_bytes});
    }
    return ranges;
}

static CUresult propose(ClientSession& session, const DeviceRange& range) {
    auto question = wire::question_of(wire::MoveRange<>{range.device->number, range.address, range.bytes});
    Pending pending;
    session.request(0, wire::op_move_range, question, pending);
    session.wait(pending);
    return pending.result;
}

// Finds a place that is free here and there. Where addresses are scarce, a smaller one does.
static Result<> move_range(ClientSession& session, DeviceRange& range) {
    const uint64_t unit = range.device->description.granularity_bytes;
    const uint64_t all = range.bytes, least = std::min(all, range.device->description.memory_bytes);
    CUresult refusal = CUDA_ERROR_OUT_OF_MEMORY;
    for (int attempt = 0; attempt < proposals_max && !session.lost(); ++attempt) {
        for (uint64_t bytes = all; bytes >= least && range.address == 0; bytes = bytes / 2 & ~(unit - 1)) {
            range.bytes = bytes;
            range.address = hold_addresses_somewhere(bytes, std::max(wire::address_alignment, unit));
        }
        if (range.address == 0)
            return Error{Error::Kind::internal, "this program leaves no room for the GPU's addresses",
                         "they need " + std::to_string(least >> 30) + " GiB in one piece"};
        refusal = propose(session, range);
        if (refusal == CUDA_SUCCESS) {
            log(LogLevel::info, "device %d: its addresses were taken in this program and are now at %#llx",
                range.device->ordinal, static_cast<unsigned long long>(range.address));
            return Ok{};
        }
        let_go_of_addresses(std::exchange(range.address, 0), range.bytes);
    }
    return Error{Error::Kind::remote,
                 "no place for the GPU's addresses is free in both this program and its worker (error " +
                     std::to_string(static_cast<int>(refusal)) + ")",
                 "if the server is older than this library, update it"};
}

static Result<> agree_on_ranges(ClientSession& session, std::vector<DeviceRange>& ranges) {
    for (auto& range : ranges)
        if (range.address == 0)
            if (auto moved = move_range(session, range); !moved) return moved;
    for (auto& range : ranges)
        range.device->memory->take_range(range.address, range.bytes, range.device->description.granularity_bytes);
    return Ok{};
}

static void let_go(const std::vector<DeviceRange>& ranges) {
    for (auto& range : ranges)
        if (range.address != 0) let_go_of_addresses(range.address, range.bytes);
}

static Result<ClientSession*> connect(const SessionOffer& offer) {
    // Never ended: that would wait for late calls.
    static auto* context = new zmq::context_t(static_cast<int>(1 + offer.lanes));
    auto lanes = std::min(offer.lanes, static_cast<size_t>(context->get(zmq::ctxopt::io_threads)) - 1);
    auto channel = wire::Channel::connect(*context, offer.endpoint, offer.keys, offer.session, lanes);
    if (!channel) return channel.error();
    if (offer.asks_port) (*channel)->tell_port();
    remember_endpoint(offer.endpoint);
    auto* opened = new ClientSession(std::move(*channel));
    listen_to_news(*opened);
    opened->start();
    return opened;
}

static Result<> open_now() {
    auto offer = ask_for_session();
    if (!offer) return offer.error();
    auto ranges = hold_ranges(*offer);
    if (!ranges) return ranges.error();
    auto opened = connect(*offer);
    if (!opened) {
        let_go(*ranges);
        return opened.error();
    }
    if (auto agreed = agree_on_ranges(**opened, *ranges); !agreed) {
        let_go(*ranges);
        (*opened)->say_goodbye(unsuited_farewell_timeout);
        return agreed;
    }
    profile_session(**opened);
    for (auto* device : devices()) device->session = *opened;  // one server has them all
    log(LogLevel::debug, "session %s at %s", offer->session.c_str(), offer->endpoint.c_str());
    return Ok{};
}

CUresult open_session(Device& device) {
    if (device.session) return CUDA_SUCCESS;
    static auto* opening = new Turn;
    TakenTurn turn(*opening);
    if (device.session) return CUDA_SUCCESS;
    auto opened = open_now();
    if (opened) return CUDA_SUCCESS;
    log_error(opened.error());
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

}  // namespace tnr::cuda

using namespace tnr::cuda;

static void make_memories() {
    static auto* once = new std::once_flag;
    std::call_once(*once, [] {
        for (auto* device : devices()) device->memory = new DeviceMemory(*device, synchronize_context);
    });
}

extern "C" CUresult CUDAAPI cuInit(unsigned int flags) {
    return guarded_always("cuInit", [&]() -> CUresult {
        if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
        auto state = library_state.load();
        if (state == LibraryState::ready) return CUDA_SUCCESS;
        if (state != LibraryState::uninitialized) return refusal();
        watch_fork_and_exit();
        start_profile();
        if (auto result = describe_devices(); result != CUDA_SUCCESS) return result;
        make_memories();
        auto before = LibraryState::uninitialized;
        library_state.compare_exchange_strong(before, LibraryState::ready);
        return refusal();
    });
}
