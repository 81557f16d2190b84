// Records that must leave in the order in which they were decided on under their owner's lock. Sending may wait for
// credit, and nothing may wait while it holds a lock, so they are queued under the lock and sent after it.
#pragma once

#include <deque>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/driver_api.hpp"
#include "gpu_client/protocol/record.hpp"

namespace tnr::cuda {

struct Device;

class OrderedSends {
public:
    explicit OrderedSends(Device& device) : device_(device) {}

    // Any lock may be held.
    template <wire::HasFields Record>
    void put(const Record& record) {
        put(Record::op, wire::payload_of(record));
    }
    // Returns once every record put before the call is in the session's stream, whichever thread has sent it: what the
    // caller appends next comes after them. No lock may be held. The result covers only the records that this call has
    // sent.
    CUresult flush() TNR_EXCLUDES(mutex_);

private:
    struct Sendable {
        uint16_t op;
        wire::Bytes payload;
    };
    class Sending;

    void put(uint16_t op, wire::Bytes payload);
    CUresult send_next() TNR_REQUIRES(mutex_);

    Device& device_;  // whose session they are sent with
    Mutex mutex_;
    Condition sent_more_;
    std::deque<Sendable> waiting_ TNR_GUARDED_BY(mutex_);
    uint64_t put_ TNR_GUARDED_BY(mutex_) = 0;  // counts
    uint64_t sent_ TNR_GUARDED_BY(mutex_) = 0;
    bool sending_ TNR_GUARDED_BY(mutex_) = false;  // one thread at a time, to keep the order
};

}  // namespace tnr::cuda
