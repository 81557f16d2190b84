// What threads note for a profile: see profile.hpp.
#include "gpu_client/cuda/profile.hpp"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "cuda_calls.hpp"
#include "gpu_client/cuda/profile_buffer.hpp"
#include "gpu_client/cuda/profile_text.hpp"

namespace tnr::cuda {

using EventKind = ProfileEvent::Kind;

const char* wanted_profile() {
    static const char* const path = std::getenv("TNR_PROFILE");
    return path && *path ? path : nullptr;
}

std::atomic<bool> profile_runs{wanted_profile() != nullptr};

static thread_local uint32_t thread_id = 0;
static thread_local bool left_out = false;

void leave_out_of_profile() {
    left_out = true;
}

static uint32_t this_thread() {
    if (thread_id != 0) return thread_id;
    thread_id = static_cast<uint32_t>(::syscall(SYS_gettid));
    char name[17] = "";
    ::prctl(PR_GET_NAME, name);
    profile_buffer().add_thread(thread_id, name);
    return thread_id;
}

void ProfiledSlice::begin(const char* name, const char* why) {
    if (!left_out) begun_ = profile_buffer().add({EventKind::begin, this_thread(), profile_now(), name, why});
}

void ProfiledSlice::finish(int result) {
    begun_ = false;
    profile_buffer().add(
        {EventKind::end, this_thread(), profile_now(), nullptr, nullptr, static_cast<uint64_t>(result)});
}

ProfiledWait::ProfiledWait(uint16_t op) {
    if (profiling()) begin("wait", name_of_record(op));
}

void profile_appended(uint64_t position, uint16_t op) {
    if (op == wire::op_cuLaunchKernel)
        profile_buffer().add({EventKind::appended, this_thread(), profile_now(), nullptr, nullptr, position});
}

void profile_kernel(uint64_t function, const std::string& name) {
    thread_local uint64_t last = 0;  // programs launch the same one again and again
    if (std::exchange(last, function) != function) profile_buffer().add_kernel(function, name);
}

namespace {

class Batches : public wire::BatchWatcher {
    void batch(Way way, uint64_t sequence, size_t bytes, size_t records) override {
        auto kind = way == Way::out ? EventKind::batch_sent : EventKind::batch_received;
        profile_buffer().add({kind, this_thread(), profile_now(), nullptr, nullptr, sequence, bytes, records});
    }
};

}  // namespace

wire::BatchWatcher* profiled_batches() {
    static auto* batches = new Batches;
    return profiling() ? batches : nullptr;
}

void abandon_profile() {
    profile_runs = false;
}

}  // namespace tnr::cuda
