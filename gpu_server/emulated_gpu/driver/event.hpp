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
    // Behind all that the context's streams hold.
    void record_all();
    // A record that something else than a stream reaches.
    void set_last(std::shared_ptr<Record> record);

    Mutex mutex;
    // Was its last recording into a capture? Then that capture, while it lasts, and the nodes that the event stands for.
    bool was_captured TNR_GUARDED_BY(mutex) = false;
    std::weak_ptr<Capture> capture TNR_GUARDED_BY(mutex);
    std::vector<std::pair<GraphNode*, CUgraphEdgeData>> captured TNR_GUARDED_BY(mutex);

private:
    void set_last_locked(std::shared_ptr<Record> record) TNR_REQUIRES(mutex);

    std::shared_ptr<Record> last_ TNR_GUARDED_BY(mutex);
};

// `data` is that of the edges to what waits for the event, should the stream be captured.
CUresult record_event(CUevent handle, Stream& stream, const CUgraphEdgeData& data = {});

}  // namespace tnr::emulated
