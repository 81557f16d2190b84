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

    // Answers call `number`; `outputs` holds the fields of the record's Reply. Where nobody waits for the call
    // (`number` 0), all that the client hears is that it failed.
    void answer(uint16_t op, uint64_t number, CUresult result, const wire::Bytes& outputs = {}) TNR_EXCLUDES(mutex_);
    // Sends a record that answers no call.
    template <class Record>
    void tell(const Record& record) {
        link_.send_record(Record::op, wire::payload_of(record));
    }
    // Sends a piece of a copy. Blocks while the client has no credit left for us, or enough is on its way to it.
    void piece(uint64_t number, uint64_t offset, zmq::message_t&& data) TNR_EXCLUDES(mutex_);
    // Reports that an asynchronous call failed. A fatal error makes every later call fail alike, so it is told once.
    void failed(uint16_t op, CUresult result, std::string_view detail) TNR_EXCLUDES(mutex_);

    void credit_arrived() TNR_EXCLUDES(mutex_);  // call it when the dispatcher has received something

private:
    wire::Link& link_;
    Mutex mutex_;  // also orders looking for credit and its arrival
    Condition credit_;
    CUresult told_ TNR_GUARDED_BY(mutex_) = CUDA_SUCCESS;
};

}  // namespace tnr::worker
