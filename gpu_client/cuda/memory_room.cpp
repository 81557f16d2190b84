// How DeviceMemory comes by room: the grant that it asks for, and what was freed, once the GPU has passed it.
#include <algorithm>

#include "gpu_client/cuda/async_errors.hpp"
#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/device_memory.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "gpu_client/protocol/fatal_errors.hpp"

namespace tnr::cuda {

// A grant is asked for in steps of at least this, so that growing costs few round trips.
static constexpr uint64_t grant_step = uint64_t{1} << 30;
// With this much in quarantine a synchronisation is cheaper than asking for yet more memory.
static constexpr uint64_t quarantine_max = uint64_t{1} << 30;
// The GPU is asked again how far it is once this much more is in quarantine than when it was asked last; or an eighth
// of the grant if that is more, so at most eight questions per turnover of a large GPU's memory.
static constexpr uint64_t drain_step_min = uint64_t{64} << 20;
static constexpr uint64_t drain_share = 8;

// ---- the grant ----

void DeviceMemory::ask_ahead() {
    {
        LockGuard lock(mutex_);
        if (granted_ != 0) return;
    }
    if (ahead_asked_.exchange(true)) return;
    ahead_done_ = false;
    auto* ahead = new Ahead;  // freed when it is answered
    ahead->question = wire::question_of(wire::MemoryGrant<>{device_.number, grant_step});
    ahead->pending.when_done = [this, ahead](Pending& pending) {
        wire::MemoryGrant<>::Reply granted;
        wire::Reader in(pending.answer);
        if (pending.result == CUDA_SUCCESS && wire::read(in, granted)) ahead_granted_ = granted.bytes;
        ahead_done_ = true;
        delete ahead;
    };
    session().request(0, wire::op_memory_grant, ahead->question, ahead->pending);
    session().append(0, wire::op_memory_returned, {wire::packed(wire::MemoryReturned<>{device_.number, 0})});
}

CUresult DeviceMemory::take_grant(uint64_t bytes) {
    while (true) {
        bool taken = false;
        uint64_t more_room = 0;
        {
            LockGuard lock(mutex_);
            more_room = more_room_;
            taken = room() >= bytes;
            if (taken) created_ += bytes;
        }
        // The worker must unmap what made room before it hears what the room is for.
        if (taken) return sends_.flush();
        if (session().lost()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
        if (!make_space(bytes, more_room)) return CUDA_ERROR_OUT_OF_MEMORY;
    }
}

void DeviceMemory::return_grant(uint64_t bytes) {
    LockGuard lock(mutex_);
    ++more_room_;
    created_ -= bytes;
}

void DeviceMemory::graphs_took(int64_t bytes, uint64_t granted) {
    LockGuard lock(mutex_);
    granted_ += granted;
    if (bytes < 0) ++more_room_;
    created_ += static_cast<uint64_t>(bytes);
}

// ---- when the grant or the addresses are used up ----

// Tries one thing after the other, cheapest first. False: there is no more memory, and none has come back since
// `more_room` was read.
bool DeviceMemory::make_space(uint64_t needed, uint64_t more_room) {
    if (take_ahead()) return true;
    if (use_spares(needed)) return true;
    uint64_t quarantined = 0, lacking = needed;
    {
        LockGuard lock(mutex_);
        quarantined = quarantine_.bytes();
        if (needed > room()) lacking = needed - room();
    }
    if (quarantined >= std::max(needed, quarantine_max) && force_sync()) return true;
    if (ask_for(std::max(lacking, grant_step))) return true;
    if (lacking < grant_step && ask_for(lacking)) return true;
    if (force_sync()) return true;
    LockGuard lock(mutex_);
    return more_room_ != more_room;
}

bool DeviceMemory::use_spares(uint64_t needed) {
    bool enough = false;
    {
        LockGuard lock(mutex_);
        if (spare_.empty()) return false;
        unmap_spares();
        enough = room() >= needed;
    }
    (void)sends_.flush();
    return enough;
}

bool DeviceMemory::take_ahead() {
    if (!ahead_asked_) return false;
    if (!ahead_done_) session().wait_until([this] { return ahead_done_.load(); });
    uint64_t more = ahead_granted_.exchange(0);
    LockGuard lock(mutex_);
    granted_ += more;
    if (more != 0) ++more_room_;
    return more != 0;
}

bool DeviceMemory::ask_for(uint64_t bytes) {
    RemoteCall call(wire::MemoryGrant<>{device_.number, bytes});
    call.on(device_);
    wire::MemoryGrant<>::Reply reply;
    if (call.send() != CUDA_SUCCESS || !call.read(reply)) return false;
    {
        LockGuard lock(mutex_);
        granted_ += reply.bytes;
        more_room_ += reply.bytes != 0;  // also for another thread, which was granted nothing after us
    }
    log(LogLevel::debug, "device %d: asked for %llu MiB more, was granted %llu", device_.ordinal,
        static_cast<unsigned long long>(bytes >> 20), static_cast<unsigned long long>(reply.bytes >> 20));
    return reply.bytes != 0;
}

// Waits for the GPU so that quarantined memory may be reused. False if that frees nothing.
bool DeviceMemory::force_sync() {
    std::vector<uint64_t> waiting;
    size_t before = 0;
    {
        LockGuard lock(mutex_);
        if (quarantine_.empty()) return false;
        before = quarantine_.size();
        waiting = quarantine_.contexts();
    }
    contexts().each([&](Context& context, uint64_t handle) {
        if (context.active && (reached_from_ >> context.device & 1) != 0) waiting.push_back(handle);
    });
    for (uint64_t handle : waiting)
        if (auto* context = contexts().find(handle)) (void)synchronize_(*context);
    LockGuard lock(mutex_);
    leave_quarantine();
    return quarantine_.size() < before;
}

// ---- what was freed ----

// A question that nobody waits for: how far is the context? Frees itself when it is answered.
struct DeviceMemory::Drain {
    Pending pending;
    wire::Bytes question = wire::question_of(wire::SynchronizeContext{});
    uint64_t context = 0, position = 0;
};

bool DeviceMemory::drain_is_due() const {
    return draining_ == 0 && quarantine_.bytes() >= drained_bytes_ + std::max(drain_step_min, granted_ / drain_share);
}

void DeviceMemory::drain(uint64_t handle) {
    auto* context = contexts().find(handle);
    uint64_t none = 0;
    if (!context || usable(context) != CUDA_SUCCESS || captures_in(*context) ||
        !draining_.compare_exchange_strong(none, handle))
        return;
    auto* question = new Drain;
    question->context = handle;
    question->position = session().position();
    question->pending.as_news = true;
    question->pending.when_done = [this, question](Pending& pending) {
        if (wire::ends_context(pending.result)) async_call_failed(wire::op_cuCtxSynchronize, pending.result, "");
        if (pending.result == CUDA_SUCCESS) {
            if (auto* there = contexts().find(question->context)) raise_to(there->synced, question->position);
            context_synced(question->context, question->position);
        }
        draining_ = 0;
        delete question;
    };
    context->session.load()->request(context->number, wire::op_cuCtxSynchronize, question->question, question->pending);
}

// How far the contexts of other devices that may use this memory have come.
uint64_t DeviceMemory::passed_by_others() const {
    uint64_t passed = UINT64_MAX;
    if (reached_from_ == 0) return passed;
    contexts().each([&](Context& context, uint64_t) {
        bool may_reach = context.active && (reached_from_ >> context.device & 1) != 0;
        if (may_reach && context.synced < context.last_use) passed = std::min<uint64_t>(passed, context.synced);
    });
    return passed;
}

void DeviceMemory::leave_quarantine() {
    for (auto& allocation : quarantine_.leave(passed_by_others())) give_back(allocation);
    drained_bytes_ = std::min(drained_bytes_, quarantine_.bytes());
}

void DeviceMemory::context_synced(uint64_t context, uint64_t position) {
    LockGuard lock(mutex_);
    quarantine_.context_passed(context, position);
    leave_quarantine();
}

void DeviceMemory::stream_synced(uint64_t stream, uint64_t position) {
    LockGuard lock(mutex_);
    quarantine_.stream_passed(stream, position);
    leave_quarantine();
}

// ---- giving back ----

void DeviceMemory::trim_after_work() {
    (void)force_sync();
    trim();
}

void DeviceMemory::trim_if_idle() {
    bool idle = true;
    contexts().each([&](Context& context, uint64_t) { idle &= !context.active || context.synced >= context.last_use; });
    if (idle) trim();
}

uint64_t DeviceMemory::freed_bytes(uint64_t pool) const {
    auto at_work = [](uint64_t handle, uint64_t stream) {
        auto* context = contexts().find(handle);
        StreamRef in;
        if (stream > wire::first_minted_stream) in.object = streams().at(stream - 1 - wire::first_minted_stream);
        return context && synced_position(in, *context) < last_use(in, *context);
    };
    LockGuard lock(mutex_);
    return quarantine_.bytes_of_pool(pool, at_work);
}

void DeviceMemory::trim() {
    {
        LockGuard lock(mutex_);
        unmap_spares();
    }
    (void)sends_.flush();
}

void DeviceMemory::give_up_idle(uint64_t wanted) {
    if (ahead_done_) (void)take_ahead();
    wanted = whole_granules(wanted);
    for (bool waited = false;; waited = true) {
        {
            LockGuard lock(mutex_);
            unmap_spares();
            const uint64_t bytes = std::min(room() / granularity_ * granularity_, wanted);
            const bool enough = bytes == wanted || waited;
            granted_ -= enough ? bytes : 0;
            if (enough) sends_.put(wire::MemoryReturned<>{device_.number, bytes});
            if (enough) break;
        }
        (void)force_sync();
    }
    (void)sends_.flush();
}

}  // namespace tnr::cuda
