// See profile_writer.hpp.
#include "gpu_client/cuda/profile_writer.hpp"

#include <memory>
#include <utility>

#include "gpu_client/cuda/background_thread.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/profile.hpp"
#include "gpu_client/cuda/profile_buffer.hpp"
#include "gpu_client/cuda/profile_text.hpp"
#include "gpu_client/cuda/profile_worker.hpp"

namespace tnr::cuda {

using std::chrono::milliseconds;

// What a killed program may lose.
static constexpr milliseconds written_every{250};
// The worker keeps much less than we do: while it has this much to tell it is asked again soon.
static constexpr size_t worker_is_busy = wire::profiled_records_max / 8;
static constexpr milliseconds busy_asked_every{20};
// Exit takes at most so long, when the worker does not answer.
static constexpr milliseconds finish_within{2000};

static void write(ProfileFile&& file) {
    leave_out_of_profile();  // our own waits would tell of nothing but the profile
    ProfileText text;
    WorkerClock clock;
    uint64_t lost = 0;  // did not fit into the file
    for (bool stopped = false; !stopped;) {
        auto rest = written_every;
        // The worker's part first: of a kernel that it tells of, the launch is then in the buffer.
        uint64_t worker_dropped = 0;
        for (auto* session : open_sessions())
            if (!session->lost()) worker_dropped += ask_worker(*session, clock);
        auto contents = profile_buffer().take();
        if (contents.worker.size() > worker_is_busy || worker_dropped > 0) rest = busy_asked_every;
        contents.dropped += worker_dropped + std::exchange(lost, 0);
        size_t events = contents.events.size() + contents.worker.size();
        text.add(std::move(contents), clock);
        if (!file.add(text.take())) lost = events;
        stopped = profile_buffer().wait(rest);
    }
    for (auto* session : open_sessions())
        if (!session->lost()) ask_worker(*session, clock);
    profile_runs = false;
    text.add(profile_buffer().take(), clock);
    text.close();
    file.add(text.take());
    profile_buffer().finished();
}

void start_profile() {
    if (!profiling()) return;
    auto file = ProfileFile::create(wanted_profile());
    if (!file) {
        profile_runs = false;
        return log_error(file.error());
    }
    log(LogLevel::debug, "the profile is %s", file->path().c_str());
    start_background_thread([file = std::make_shared<ProfileFile>(std::move(*file))] { write(std::move(*file)); });
}

void finish_profile() {
    if (!profiling()) return;
    profile_buffer().stop();
    profile_buffer().wait_until_finished(finish_within);
}

}  // namespace tnr::cuda
