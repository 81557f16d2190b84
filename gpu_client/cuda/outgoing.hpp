// Data sent to the GPU without being copied first: ZeroMQ reads the program's own memory, and may read it again after
// the connection has broken, until the worker has said that the data has arrived.
#pragma once

#include <atomic>
#include <zmq.hpp>

#include "gpu_client/cuda/host_memory.hpp"

namespace tnr::cuda {

class ClientSession;

// Counts the frames that still read the memory of one copy. Deletes itself once the copy has called wait() or let_go()
// and the last frame has been received.
class Outgoing {
public:
    // `range`: the pinned memory that stays in use until then; null if the copy waits.
    static Outgoing* begin(ClientSession& session, const PinnedRange* range);
    zmq::message_t frame(const void* data, size_t bytes);
    // After the last frame(): blocks until all frames have been received, or gives up after the session is lost.
    void wait();
    // After the last frame() of a copy that does not wait.
    void let_go();

private:
    explicit Outgoing(ClientSession& session) : session_(session) {}
    static void received(void* data, void* self);
    void drop();

    ClientSession& session_;
    std::atomic<int> left_{1};
    std::atomic<int>* in_flight_ = nullptr;
};

}  // namespace tnr::cuda
