// Receives in the dispatcher's place while that one stays inside the driver.
//
// NVIDIA's driver waits for the GPU in calls that do not look like it: loading code, a kernel's first launch. The GPU may
// be standing at a host function of the client's, which has long ended; but who would hear of that is in that very call.
// So another thread looks after the connection meanwhile, as long as host functions run. It hears that they are done, and
// keeps the rest for the dispatcher, in order.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>

#include "gpu_client/protocol/link.hpp"
#include "gpu_server/worker/host_functions.hpp"

namespace tnr::worker {

// Tells the functions whose end a batch brings. That never queues behind other records: a driver call may already wait for it.
void hear_ends(HostFunctions& functions, const wire::Batch& batch);

// The dispatcher's; both must live as long as the process.
class Understudy {
public:
    Understudy(wire::Link& link, HostFunctions& functions) : link_(link), functions_(functions) {}

    // Call it before the driver is given a host function: from then on there is a thread that may step in.
    void host_function_comes();
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
    HostFunctions& functions_;
    std::once_flag started_;
    std::atomic<uint64_t> turn_{0};
    std::atomic<Receiver> receiver_{Receiver::nobody};
    std::atomic<bool> wanted_back_{false};
    std::deque<Heard> heard_;  // the receiver's, whoever it is
};

}  // namespace tnr::worker
