// See profiler.hpp.
#include "gpu_server/worker/profiler.hpp"

#include <algorithm>
#include <utility>

#include "gpu_client/protocol/ops.hpp"
#include "gpu_server/worker/decoder.hpp"
#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// How often events are queried while kernels run.
static constexpr auto look_every = 10ms;
// Up to here, a float of milliseconds resolves tenths of microseconds.
static constexpr auto base_lasts = 1s;
// How long we wait for a base's event, which is the first thing in its stream. If it takes longer, the GPU or its
// machine is busy and the time would be too uncertain: the next look at kernels tries again, with a little more
// patience.
static constexpr auto base_takes_at_most = 1ms;
static constexpr int patience_max = 20;

static uint64_t now_ns() {
    return static_cast<uint64_t>(Clock::now().time_since_epoch().count());
}

void Profiler::start() {
    if (std::exchange(on_, true)) return;
    link_.watch(this);
}

// ---- records and batches

void Profiler::add(const wire::ProfiledRecord& record) {
    LockGuard lock(mutex_);
    if (seen_.records.size() < wire::profiled_records_max)
        seen_.records.push_back(record);
    else
        ++seen_.dropped;
}

void Profiler::batch(Way way, uint64_t sequence, size_t bytes, size_t records) {
    auto kind = way == Way::in ? wire::ProfiledKind::batch_received : wire::ProfiledKind::batch_sent;
    add({kind, 0, static_cast<uint32_t>(records), sequence, now_ns(), 0, bytes, 0});
}

// Positions are counted as the client does: changes of context and what overtakes the stream have none.
uint64_t Profiler::begin_record(uint16_t op) {
    if (op != wire::op_set_context && op != wire::op_host_function_done) ++position_;
    return now_ns();
}

void Profiler::end_record(uint16_t op, uint64_t begun_ns) {
    add({wire::ProfiledKind::dispatched, op, 0, position_, begun_ns, now_ns() - begun_ns, 0, 0});
}

// ---- kernels

CUevent Profiler::take_event(ContextTimes& times) {
    CUevent event = nullptr;
    if (times.spare.empty()) {
        driver().cuEventCreate(&event, CU_EVENT_DEFAULT);
    } else {
        event = times.spare.back();
        times.spare.pop_back();
    }
    return event;
}

// Its time by our clock lies between recording it and seeing that it has happened: a few microseconds.
void Profiler::renew_base(ContextTimes& times) {
    if (!times.stream && driver().cuStreamCreate(&times.stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return;
    auto event = take_event(times);
    auto begun = Clock::now();
    if (!event || driver().cuEventRecord(event, times.stream) != CUDA_SUCCESS) return;
    while (driver().cuEventQuery(event) != CUDA_SUCCESS) {
        if (Clock::now() - begun < times.patience * base_takes_at_most) continue;
        times.patience = std::min(times.patience + 1, patience_max);
        times.spare.push_back(event);
        return;
    }
    if (times.base) times.spare.push_back(times.base);
    times.base = event;
    times.base_made = begun + (Clock::now() - begun) / 2;
}

static bool is_capturing(CUstream stream) {
    auto status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!driver().cuStreamIsCapturing) return false;
    auto result = driver().cuStreamIsCapturing(stream, &status);
    if (result == CUDA_ERROR_NOT_SUPPORTED) return false;  // then neither is capturing
    return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// The context is current. False: this launch is not timed.
bool Profiler::begin_launch(const What& what, CUstream stream, CUcontext context) {
    if (!context || is_capturing(stream)) return false;  // a graph's kernels run later, and again and again
    if (running_count_ >= wire::timed_launches_max) look_at_kernels();
    auto& times = contexts_[context];
    if (running_count_ >= wire::timed_launches_max) {
        LockGuard lock(mutex_);
        ++seen_.dropped;
        return false;
    }
    launching_ = {what, position_, Clock::now(), stream, context, take_event(times), take_event(times)};
    if (driver().cuEventRecord(launching_.begin, stream) == CUDA_SUCCESS) return true;
    launched_in_vain();
    return false;
}

void Profiler::launched_in_vain() {
    auto& spare = contexts_[launching_.context].spare;
    for (auto event : {launching_.begin, launching_.end})
        if (event) spare.push_back(event);
    launching_ = {};
}

void Profiler::end_launch(CUresult result) {
    bool runs = result == CUDA_SUCCESS && driver().cuEventRecord(launching_.end, launching_.stream) == CUDA_SUCCESS;
    if (!runs) return launched_in_vain();
    running_[{launching_.what.context, launching_.what.stream}].push_back(std::exchange(launching_, {}));
    ++running_count_;
}

// False: the kernel still runs, or the context has no base yet.
bool Profiler::tell(const Timed& timed) {
    auto done = driver().cuEventQuery(timed.end);
    if (done == CUDA_ERROR_NOT_READY) return false;
    if (done != CUDA_SUCCESS) return true;  // the context has failed
    auto& times = contexts_[timed.context];
    if (!times.base || Clock::now() - times.base_made > base_lasts) renew_base(times);
    if (!times.base) return false;
    tell_times(timed, times);
    return true;
}

static std::chrono::nanoseconds nanoseconds(float milliseconds) {
    return std::chrono::nanoseconds(static_cast<int64_t>(double{milliseconds} * 1e6));
}

void Profiler::tell_times(const Timed& timed, ContextTimes& times) {
    float since_base_ms = 0, took_ms = 0;  // the first one may be negative
    bool known = driver().cuEventElapsedTime(&since_base_ms, times.base, timed.begin) == CUDA_SUCCESS &&
                 driver().cuEventElapsedTime(&took_ms, timed.begin, timed.end) == CUDA_SUCCESS;
    if (!known) return;
    auto took = nanoseconds(took_ms);
    // No kernel begins before its launch or ends after it was seen done: if the times say so, the base is wrong.
    auto begin = times.base_made + nanoseconds(since_base_ms);
    auto late = begin + took - Clock::now();
    if (late.count() > 0) times.base_made -= late, begin -= late;
    auto early = timed.launched - begin;
    if (early.count() > 0) times.base_made += early, begin += early;
    add({wire::ProfiledKind::kernel, 0, static_cast<uint32_t>(timed.what.context), timed.position,
         static_cast<uint64_t>(begin.time_since_epoch().count()), static_cast<uint64_t>(took.count()),
         timed.what.stream, timed.what.function});
}

void Profiler::look_at_kernels() {
    looked_ = Clock::now();
    CUcontext before = nullptr;
    driver().cuCtxGetCurrent(&before);
    for (auto& [where, kernels] : running_) {
        if (!kernels.empty()) driver().cuCtxSetCurrent(kernels.front().context);
        while (!kernels.empty() && tell(kernels.front())) {
            auto& spare = contexts_[kernels.front().context].spare;
            spare.insert(spare.end(), {kernels.front().begin, kernels.front().end});
            kernels.pop_front();
            --running_count_;
        }
    }
    std::erase_if(running_, [](auto& entry) { return entry.second.empty(); });
    driver().cuCtxSetCurrent(before);
}

std::chrono::milliseconds Profiler::look_within(std::chrono::milliseconds otherwise) {
    if (running_count_ == 0) return otherwise;
    if (Clock::now() - looked_ >= look_every) look_at_kernels();
    return running_count_ == 0 ? otherwise : std::min<std::chrono::milliseconds>(otherwise, look_every);
}

void Profiler::context_ends(CUcontext context) {
    auto found = contexts_.find(context);
    if (found == contexts_.end()) return;
    look_at_kernels();
    for (auto& [where, kernels] : running_)
        running_count_ -= std::erase_if(kernels, [&](const Timed& timed) { return timed.context == context; });
    contexts_.erase(found);
}

Profiler::Report Profiler::report() {
    for (auto& [context, times] : contexts_)
        if (!times.base) times.patience = patience_max;  // it may be the last time that somebody asks
    look_at_kernels();
    LockGuard lock(mutex_);
    return std::exchange(seen_, {});
}

}  // namespace tnr::worker
