// What threads note for a profile, and its writer: see profile.hpp.
#include "gpu_client/cuda/profile.hpp"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "cuda_calls.hpp"
#include "gpu_client/cuda/background_thread.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/profile_buffer.hpp"
#include "gpu_client/cuda/profile_text.hpp"
#include "gpu_client/cuda/profile_worker.hpp"
#include "gpu_client/cuda/session.hpp"

namespace tnr::cuda {

using std::chrono::milliseconds;
using Kind = ProfileEvent::Kind;

// What a killed program may lose.
static constexpr milliseconds written_every{250};
// The worker keeps much less than we do: while it has this much to tell it is asked again soon.
static constexpr size_t worker_is_busy = wire::profiled_records_max / 8;
static constexpr milliseconds busy_asked_every{20};
// Exit takes at most so long, when the worker does not answer.
static constexpr milliseconds finish_within{2000};

static const char* wanted_file() {
    const char* path = std::getenv("TNR_PROFILE");
    return path && *path ? path : nullptr;
}

bool profile_wanted() {
    static const bool wanted = wanted_file() != nullptr;
    return wanted;
}

std::atomic<bool> profile_runs{profile_wanted()};

static ProfileBuffer& buffer() {
    static auto* events = new ProfileBuffer;
    return *events;
}

static thread_local uint32_t thread_id = 0;
// The writer's own waits would tell of nothing but the profile.
static thread_local bool is_writer = false;

static uint32_t this_thread() {
    if (thread_id != 0) return thread_id;
    thread_id = static_cast<uint32_t>(::syscall(SYS_gettid));
    char name[17] = "";
    ::prctl(PR_GET_NAME, name);
    buffer().add_thread(thread_id, name);
    return thread_id;
}

void ProfiledSlice::begin(const char* name, const char* why) {
    if (!is_writer) begun_ = buffer().add({Kind::begin, this_thread(), profile_now(), name, why});
}

void ProfiledSlice::finish(int result) {
    begun_ = false;
    buffer().add({Kind::end, this_thread(), profile_now(), nullptr, nullptr, static_cast<uint64_t>(result)});
}

ProfiledWait::ProfiledWait(uint16_t op) {
    if (profiling()) begin("wait", name_of_record(op));
}

void profile_appended(uint64_t position, uint16_t op) {
    if (op == wire::op_cuLaunchKernel)
        buffer().add({Kind::appended, this_thread(), profile_now(), nullptr, nullptr, position});
}

void profile_kernel(uint64_t function, const std::string& name) {
    thread_local uint64_t last = 0;  // programs launch the same one again and again
    if (std::exchange(last, function) != function) buffer().add_kernel(function, name);
}

namespace {

class Batches : public wire::BatchWatcher {
    void batch(Way way, uint64_t sequence, size_t bytes, size_t records) override {
        auto kind = way == Way::out ? Kind::batch_sent : Kind::batch_received;
        buffer().add({kind, this_thread(), profile_now(), nullptr, nullptr, sequence, bytes, records});
    }
};

}  // namespace

wire::BatchWatcher* profiled_batches() {
    static auto* batches = new Batches;
    return profiling() ? batches : nullptr;
}

void take_profiled(std::span<const wire::ProfiledRecord> records) {
    buffer().add_worker(records);
}

static void write(ProfileFile&& file) {
    is_writer = true;
    ProfileText text;
    WorkerClock clock;
    uint64_t lost = 0;  // did not fit into the file
    for (bool stopped = false; !stopped;) {
        auto rest = written_every;
        // The worker's part first: of a kernel that it tells of, the launch is then in the buffer.
        uint64_t worker_dropped = 0;
        if (auto* open = session(); open && !open->lost()) worker_dropped = ask_worker(*open, clock);
        auto contents = buffer().take();
        if (contents.worker.size() > worker_is_busy || worker_dropped > 0) rest = busy_asked_every;
        contents.dropped += worker_dropped + std::exchange(lost, 0);
        size_t events = contents.events.size() + contents.worker.size();
        text.add(std::move(contents), clock);
        if (!file.add(text.take())) lost = events;
        stopped = buffer().wait(rest);
    }
    if (auto* open = session(); open && !open->lost()) ask_worker(*open, clock);
    profile_runs = false;
    text.add(buffer().take(), clock);
    text.close();
    file.add(text.take());
    buffer().finished();
}

void start_profile() {
    if (!profiling()) return;
    auto file = ProfileFile::create(wanted_file());
    if (!file) {
        profile_runs = false;
        return log_error(file.error());
    }
    log(LogLevel::debug, "the profile is %s", file->path().c_str());
    start_background_thread([file = std::make_shared<ProfileFile>(std::move(*file))] { write(std::move(*file)); });
}

void finish_profile() {
    if (!profiling()) return;
    buffer().stop();
    buffer().wait_until_finished(finish_within);
}

void abandon_profile() {
    profile_runs = false;
}

}  // namespace tnr::cuda
