// See busy_time.hpp.
#include "gpu_server/worker/busy_time.hpp"

#include <algorithm>
#include <set>

#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {

void BusyTime::touched(Clock::time_point now) {
    if (!asleep_) return;
    asleep_ = false;
    looked_ = now;
    next_ = now + look_after_min;
}

std::chrono::milliseconds BusyTime::look_within(std::chrono::milliseconds otherwise, bool steady) {
    if (asleep_) return otherwise;
    auto now = Clock::now();
    if (now >= next_ && steady) {
        int devices = devices_at_work();
        auto counted = std::min<Clock::duration>(now - looked_, counted_max) * devices;
        busy_us_ += static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(counted).count());
        looked_ = now;
        asleep_ = devices == 0;
        if (asleep_) return otherwise;
    }
    if (now >= next_) {
        std::uniform_int_distribution<int64_t> between(look_after_min.count(), look_after_max.count());
        next_ = now + std::chrono::milliseconds(between(random_));
    }
    return std::min(otherwise, std::chrono::ceil<std::chrono::milliseconds>(next_ - now));
}

// Asking about a stream spoils a capture that is under way on it; about the default one, a capture on any that waits for it.
static bool may_ask(CUstream stream) {
    auto capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    return !driver().cuStreamIsCapturing || (driver().cuStreamIsCapturing(stream, &capturing) == CUDA_SUCCESS &&
                                             capturing == CU_STREAM_CAPTURE_STATUS_NONE);
}

static bool at_work(CUstream stream) {
    return may_ask(stream) && driver().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
}

// Its context is current.
bool BusyTime::context_at_work(uint64_t number, size_t& left) {
    if (at_work(CU_STREAM_LEGACY)) return true;
    for (auto& [id, stream] : handles_.streams) {
        if (stream.context != number) continue;
        if (left == 0) return false;
        --left;
        if (at_work(stream.handle)) return true;
    }
    return false;
}

int BusyTime::devices_at_work() {
    std::set<CUdevice> devices;
    size_t left = streams_looked_at_max;
    for (auto& [number, context] : handles_.contexts) {
        CUdevice device = 0;
        if (driver().cuCtxSetCurrent(context) != CUDA_SUCCESS) continue;
        if (driver().cuCtxGetDevice(&device) != CUDA_SUCCESS || devices.count(device)) continue;
        if (context_at_work(number, left)) devices.insert(device);
    }
    driver().cuCtxSetCurrent(handles_.current);
    return static_cast<int>(devices.size());
}

}  // namespace tnr::worker
