// See memory_info.hpp. The worker is asked once; after that, what we map and give back is all that changes, as long as
// this process is alone on the GPU. The server says when it is not: its word is on its way before the other process has
// a worker, and is read before every answer.
#include "gpu_client/cuda/memory_info.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/memory_pools.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/stats.hpp"

using namespace tnr;
using namespace tnr::cuda;

namespace {

using Clock = std::chrono::steady_clock;

// A driver takes memory for itself in ways that we do not see, such as for the first launch of a kernel that is loaded
// lazily: an answer older than this is asked for again.
constexpr std::chrono::seconds answer_lasts{1};

uint64_t calls_taking_memory() {
    static const auto ops = [] {
        std::vector<uint16_t> found;
        for (auto& call : wire::calls)
            if (call.notes & wire::call_takes_memory) found.push_back(call.op);
        return found;
    }();
    uint64_t sum = 0;
    for (auto op : ops) sum += stats().sent[op].load(std::memory_order_relaxed);
    return sum;
}

// What the worker said of one device, and the state of things then.
struct Answer {
    uint64_t free = 0, total = 0, backed = 0;
    uint64_t calls = 0, changes = 0;
    Clock::time_point at;
};
struct Answers {
    Mutex mutex;
    std::map<int, Answer> by_device TNR_GUARDED_BY(mutex);
};
Answers& answers() {
    static auto* all = new Answers;
    return *all;
}
std::atomic<uint64_t> changes{0};  // how often memory_shared() was called

bool holds(const Answer& answer) {
    return answer.changes == changes && answer.calls == calls_taking_memory() &&
           Clock::now() - answer.at < answer_lasts;
}

// Kept only if nothing changed while it was asked for and nobody else can change anything.
CUresult ask_worker(DeviceMemory& memory, int device, Answer& answer) {
    answer.calls = calls_taking_memory();
    answer.changes = changes;
    answer.backed = memory.usage().backed;
    RemoteCall call(wire::MemoryInfo{});
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::MemoryInfo::Reply reply;
    if (auto result = call.take(reply); result != CUDA_SUCCESS) return result;
    answer.free = reply.free;
    answer.total = reply.total;
    answer.at = Clock::now();
    bool unchanged = reply.shared == 0 && memory.usage().backed == answer.backed;
    LockGuard lock(answers().mutex);
    if (unchanged && holds(answer))
        answers().by_device[device] = answer;
    else
        answers().by_device.erase(device);
    return CUDA_SUCCESS;
}

bool find_answer(const Context& context, Answer& answer) {
    auto& session = *context.session.load();
    session.drain();
    LockGuard lock(answers().mutex);
    auto found = answers().by_device.find(context.device);
    if (session.lost() || found == answers().by_device.end() || !holds(found->second)) return false;
    answer = found->second;
    return true;
}

}  // namespace

void tnr::cuda::memory_shared() {
    ++changes;
}

void tnr::cuda::driver_took_memory() {
    ++changes;
}

extern "C" CUresult CUDAAPI cuMemGetInfo_v2(size_t* free, size_t* total) {
    return guarded("cuMemGetInfo", [&]() -> CUresult {
        Context* context = nullptr;
        if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
        auto& memory = *find_device(context->device)->memory;
        Answer answer;
        if (!find_answer(*context, answer))
            if (auto result = ask_worker(memory, context->device, answer); result != CUDA_SUCCESS) return result;
        auto usage = memory.usage();
        uint64_t driver_free = answer.free + answer.backed - std::min(answer.free + answer.backed, usage.backed);
        uint64_t left = std::min(answer.total, driver_free + usage.free);
        left -= std::min(left, unused_in_pools(context->device));
        if (free) *free = left;
        if (total) *total = answer.total;
        return CUDA_SUCCESS;
    });
}
