// Tells the client, unasked, when an event has completed.
//
// A driver tells of completion only by letting a thread wait inside it, so each watch has a thread. One thread for all
// events of a stream would not do: it could wait for a later event while an earlier one completes, which the program
// may need to see before it lets the stream go on. The number of threads is limited; the watches beyond it are polled.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "api_client/base/mutex.hpp"
#include "gpu_client/protocol/session_records.hpp"
#include "gpu_server/worker/context_uses.hpp"
#include "gpu_server/worker/events.hpp"
#include "gpu_server/worker/tasks.hpp"

namespace tnr::worker {

struct Watch {
    wire::Completable what;
    uint64_t number;    // of the client's event or stream
    uint64_t position;  // the client's name for the point in the stream
    SharedEvent event;
    CUcontext context;
    ContextUses::Use use;
};

// Any thread.
class Watches {
public:
    // Programs that ask for completion have one event in flight per stream, seldom more.
    static constexpr size_t threads_max = 64;

    // `completed` is called once for each watch, on any thread, with the watch's context current.
    explicit Watches(std::function<void(const Watch&, CUresult)> completed) : completed_(std::move(completed)) {}
    void add(Watch watch) TNR_EXCLUDES(mutex_);

private:
    struct Entry {
        Watch watch;
        std::atomic<bool> told{false};
    };
    void tell(Entry& entry, CUresult result) TNR_EXCLUDES(mutex_);
    void patrol() TNR_EXCLUDES(mutex_);

    std::function<void(const Watch&, CUresult)> completed_;
    WaitingThreads waiting_{threads_max};
    Mutex mutex_;
    Condition crowded_;
    std::list<std::shared_ptr<Entry>> untold_ TNR_GUARDED_BY(mutex_);
    bool patrols_ TNR_GUARDED_BY(mutex_) = false;
};

}  // namespace tnr::worker
