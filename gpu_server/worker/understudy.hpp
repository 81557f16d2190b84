// Receives in the dispatcher's place while that one stays inside the driver.
//
// NVIDIA's driver waits for the GPU in calls that do not look like it: loading code, a kernel's first launch. The GPU may
// be standing at a host function of the client's, which has long ended, or at a copy that waits for the client's credit;
// but who would hear of that is in that very call. So another thread looks after the connection meanwhile, as long as
// streams stand. It hears that functions are done and that credit has come, and keeps the rest for the dispatcher, in order.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>

#include "gpu_client/protocol/link.hpp"
#include "gpu_server/worker/host_functions.hpp"
#include "gpu_server/worker/outbox.hpp"
#include "gpu_server/worker/standing.hpp"

namespace tnr::worker {

// Tells the functions whose end a batch brings. That never queues behind other records: a driver call may already wait for it.
void hear_ends(HostFunctions& functions, const wire::Batch& batch);

// The dispatcher's; all of them must live as long as the process.
class Understudy {
public:
    Understudy(wire::Link& link, Outbox& outbox, HostFunctions& functions, Standing& standing)
        : link_(link), outbox_(outbox), functions_(functions), standing_(standing) {}

    // Call it before the driver is given what streams will stand at: from then on there is a thread that may step in.
    void stream_will_stand();
    // Whether streams may stand at all. The driver may then keep whoever calls it; so what the dispatcher can leave to another
    // thread, it does. Any thread.
    bool may_step_in() const { return may_step_in_; }
    // A record has its turn: the dispatcher is not stuck.
    void moves_on() { turn_.store(turn_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
    // As the link's.
    wire::Link::Event receive(wire::Batch& batch, std::chrono::milliseconds timeout);

private:
    enum class Receiver : uint8_t { nobody, dispatcher, understudy };
    struct Heard {
        wire::Link::Event event;
        wire::Batch batch;
    };
    void watch();
    void step_in();
    void take_back();

    wire::Link& link_;
    Outbox& outbox_;
    HostFunctions& functions_;
    Standing& standing_;
    std::once_flag started_;
    std::atomic<bool> may_step_in_{false};
    std::atomic<uint64_t> turn_{0};
    std::atomic<Receiver> receiver_{Receiver::nobody};
    std::atomic<bool> wanted_back_{false};
    std::deque<Heard> heard_;  // the receiver's, whoever it is
};

}  // namespace tnr::worker
