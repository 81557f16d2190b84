// What the worker says to its client. Any thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string_view>

#include "driver_table.hpp"
#include "gpu_client/protocol/link.hpp"
#include "gpu_client/protocol/ops.hpp"

namespace tnr::worker {

class Outbox {
public:
    explicit Outbox(wire::Link& link) : link_(link) {}

    // The answer to call `number`; `outputs` as the record's description says.
    void reply(uint16_t op, uint64_t number, CUresult result, const wire::Bytes& outputs = {});
    // A record of the worker's own.
    void tell(uint16_t op, const wire::Bytes& payload);
    // A piece of a copy. Waits while the client has no credit left for us.
    void piece(uint64_t number, uint64_t offset, zmq::message_t&& data);
    // An asynchronous call failed. A fatal error makes every later call fail alike: it is told once.
    void failed(uint16_t op, CUresult result, std::string_view detail);

    void credit_arrived();  // the dispatcher received something

private:
    wire::Link& link_;
    std::mutex mutex_;
    std::condition_variable credit_;
    CUresult told_ = CUDA_SUCCESS;
};

// After these a context is of no more use; the driver answers every call in it alike.
bool is_fatal(CUresult result);

}  // namespace tnr::worker
