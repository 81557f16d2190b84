// See profile_buffer.hpp.
#include "gpu_client/cuda/profile_buffer.hpp"

#include <utility>

namespace tnr::cuda {

bool ProfileBuffer::add(const ProfileEvent& event) {
    using Kind = ProfileEvent::Kind;
    LockGuard lock(mutex_);
    size_t wanted = now_.events.size() + open_slices_ + (event.kind == Kind::begin ? 2 : 1);
    if (event.kind != Kind::end && wanted > events_max) {
        ++now_.dropped;
        return false;
    }
    if (event.kind == Kind::begin) ++open_slices_;
    if (event.kind == Kind::end) --open_slices_;
    now_.events.push_back(event);
    if (now_.events.size() == events_max / 2) changed_.notify_all();
    return true;
}

// A worker keeps at most profiled_records_max and is asked again only once these have been taken. One that sends more
// is not trusted.
void ProfileBuffer::add_worker(std::span<const wire::ProfiledRecord> records) {
    LockGuard lock(mutex_);
    if (now_.worker.size() + records.size() > 2 * wire::profiled_records_max)
        now_.dropped += records.size();
    else
        now_.worker.insert(now_.worker.end(), records.begin(), records.end());
}

void ProfileBuffer::add_kernel(uint64_t function, const std::string& name) {
    LockGuard lock(mutex_);
    now_.kernels[function] = name;
}

void ProfileBuffer::add_thread(uint32_t thread, const std::string& name) {
    LockGuard lock(mutex_);
    now_.threads[thread] = name;
}

ProfileBuffer::Contents ProfileBuffer::take() {
    LockGuard lock(mutex_);
    return std::exchange(now_, {});
}

bool ProfileBuffer::wait(std::chrono::milliseconds at_most) {
    LockGuard lock(mutex_);
    changed_.wait_for(mutex_, at_most,
                      [this]() TNR_REQUIRES(mutex_) { return stopped_ || now_.events.size() >= events_max / 2; });
    return stopped_;
}

void ProfileBuffer::stop() {
    LockGuard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
}

void ProfileBuffer::finished() {
    LockGuard lock(mutex_);
    finished_ = true;
    changed_.notify_all();
}

void ProfileBuffer::wait_until_finished(std::chrono::milliseconds at_most) {
    LockGuard lock(mutex_);
    changed_.wait_for(mutex_, at_most, [this]() TNR_REQUIRES(mutex_) { return finished_; });
}

ProfileBuffer& profile_buffer() {
    static auto* buffer = new ProfileBuffer;
    return *buffer;
}

uint64_t profile_now() {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace tnr::cuda
