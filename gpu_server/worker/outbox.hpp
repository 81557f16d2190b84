// What the worker says to its client. Any thread.
#pragma once

#include <string_view>

#include "api_client/base/mutex.hpp"
#include "driver_table.hpp"
#include "gpu_client/protocol/link.hpp"
#include "gpu_client/protocol/record.hpp"

namespace tnr::worker {

class Outbox {
public:
    explicit Outbox(wire::Link& link) : link_(link) {}

    // The answer to call `number`; `outputs` as the record's description says.
    void reply(uint16_t op, uint64_t number, CUresult result, const wire::Bytes& outputs = {});
    // A record of the worker's own.
    template <class Record>
    void tell(const Record& record) {
        link_.send_record(Record::op, wire::payload_of(record));
    }
    // A piece of a copy. Waits while the client has no credit left for us, or enough is on its way to it.
    void piece(uint64_t number, uint64_t offset, zmq::message_t&& data) TNR_EXCLUDES(mutex_);
    // An asynchronous call failed. A fatal error makes every later call fail alike: it is told once.
    void failed(uint16_t op, CUresult result, std::string_view detail) TNR_EXCLUDES(mutex_);

    void credit_arrived() TNR_EXCLUDES(mutex_);  // the dispatcher received something

private:
    wire::Link& link_;
    Mutex mutex_;  // also orders the look for credit and its arrival
    Condition credit_;
    CUresult told_ TNR_GUARDED_BY(mutex_) = CUDA_SUCCESS;
};

}  // namespace tnr::worker
