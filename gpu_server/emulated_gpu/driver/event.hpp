// Events: markers in streams, with the time at which they were reached.
#pragma once

#include <chrono>

#include "api_client/base/mutex.hpp"
#include "gpu_server/emulated_gpu/driver/context.hpp"

namespace tnr::emulated {

class GraphNode;

class Event : public Object {
public:
    static constexpr Kind kind_of = Kind::event;
    using Clock = std::chrono::steady_clock;

    // One recording: later ones do not change what an earlier wait waits for.
    struct Record {
        Point point;
        std::atomic<Clock::rep> reached{0};  // 0: not yet
    };

    Event(Context& owner, unsigned event_flags) : Object(kind_of), context(owner), flags(event_flags) {}

    Context& context;
    const unsigned flags;

    std::shared_ptr<Record> last();  // null: never recorded
    void record(Stream& stream);

    // While its last recording was into a capture: that capture and the nodes that the event stands for.
    Mutex mutex;
    std::shared_ptr<Capture> capture TNR_GUARDED_BY(mutex);
    std::vector<std::shared_ptr<GraphNode>> captured TNR_GUARDED_BY(mutex);

private:
    std::shared_ptr<Record> last_ TNR_GUARDED_BY(mutex);
};

CUresult record_event(CUevent handle, Stream& stream);

}  // namespace tnr::emulated
