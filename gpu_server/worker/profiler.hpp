// What a client that profiles wants to know of its worker: when records were dispatched, when batches came and went, and
// when kernels ran. (gpu_client/cuda/profile.hpp makes a file of it.)
//
// A kernel is timed with two events around its launch, read when they have completed. An event's time is only known
// relative to another event's, so each context has a base: an event in a stream of ours, whose time by our own clock is
// known. It is renewed every second, since the differences are floats.
//
// Off until the client asks, and costs a test per record and launch until then. What is kept until the client asks for
// it is bounded (profile_records.hpp).
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "driver_table.hpp"
#include "gpu_client/protocol/link.hpp"
#include "gpu_client/protocol/profile_records.hpp"

namespace tnr::worker {

class Profiler : public wire::BatchWatcher {
public:
    explicit Profiler(wire::Link& link) : link_(link) {}

    // All of these are for the dispatcher.
    void start();  // a second call does nothing
    // The position of the record being handled; the record that led to start() has 0.
    uint64_t position() const { return position_; }
    struct Report {
        std::vector<wire::ProfiledRecord> records;
        uint64_t dropped = 0;
    };
    // What was seen since the last time.
    Report report();
    // Looks at the kernels if it is time. Returns how long the dispatcher may wait before it calls again, at most
    // `otherwise`.
    std::chrono::milliseconds look_within(std::chrono::milliseconds otherwise);
    // Call it before the context ends.
    void context_ends(CUcontext context);

    // One record's handling.
    class Dispatch {
    public:
        Dispatch(Profiler& profiler, uint16_t op) : profiler_(profiler), op_(op) {
            if (profiler.on_) begun_ns_ = profiler.begin_record(op);
        }
        ~Dispatch() {
            if (begun_ns_ != 0) profiler_.end_record(op_, begun_ns_);
        }
        Dispatch(const Dispatch&) = delete;
        Dispatch& operator=(const Dispatch&) = delete;

    private:
        Profiler& profiler_;
        uint16_t op_;
        uint64_t begun_ns_ = 0;
    };

    struct What {
        uint64_t function, stream, context;  // numbers
    };
    // Around a launch.
    class Launch {
    public:
        Launch(Profiler& profiler, const What& what, CUstream stream, CUcontext context) : profiler_(profiler) {
            if (profiler.on_) timed_ = profiler.begin_launch(what, stream, context);
        }
        CUresult launched(CUresult result) {
            if (timed_) profiler_.end_launch(result);
            return result;
        }

    private:
        Profiler& profiler_;
        bool timed_ = false;
    };

    void batch(Way way, uint64_t sequence, size_t bytes, size_t records) override;  // any thread

private:
    struct Timed {
        What what;
        uint64_t position;
        std::chrono::steady_clock::time_point launched;
        CUstream stream;  // while it is being launched
        CUcontext context;
        CUevent begin, end;
    };
    // Its handles are destroyed with the context.
    struct ContextTimes {
        CUstream stream = nullptr;
        CUevent base = nullptr;
        std::chrono::steady_clock::time_point base_made;
        int patience = 1;
        std::vector<CUevent> spare;
    };
    uint64_t begin_record(uint16_t op);
    void end_record(uint16_t op, uint64_t begun_ns);
    bool begin_launch(const What& what, CUstream stream, CUcontext context);
    void end_launch(CUresult result);
    void launched_in_vain();
    static void renew_base(ContextTimes& times);
    static CUevent take_event(ContextTimes& times);
    void look_at_kernels();
    bool tell(const Timed& timed);
    void tell_times(const Timed& timed, ContextTimes& times);
    void add(const wire::ProfiledRecord& record) TNR_EXCLUDES(mutex_);

    wire::Link& link_;
    bool on_ = false;
    uint64_t position_ = 0;
    std::map<CUcontext, ContextTimes> contexts_;
    std::map<std::pair<uint64_t, uint64_t>, std::deque<Timed>> running_;  // by context and stream: in order
    size_t running_count_ = 0;
    Timed launching_{};
    std::chrono::steady_clock::time_point looked_{};

    Mutex mutex_;  // a leaf
    Report seen_ TNR_GUARDED_BY(mutex_);
};

}  // namespace tnr::worker
