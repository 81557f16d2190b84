// Data on its way to the GPU without having been copied: ZeroMQ reads the program's own memory, and may do so again when
// the connection breaks, until the worker has said that the data has arrived.
#pragma once

#include <atomic>
#include <zmq.hpp>

#include "gpu_client/cuda/host_memory.hpp"

namespace tnr::cuda {

class ClientSession;

// Counts the frames that still read the memory of one copy. Lives until the last of them is received; owned by them and by
// the copy that waits for them.
class Outgoing {
public:
    // `range`: pinned memory that stays in use; null when the copy waits.
    static Outgoing* begin(ClientSession& session, const PinnedRange* range);
    zmq::message_t frame(const void* data, size_t bytes);
    // The copy has handed out its last frame, and waits for them (or gives them up when the session is lost).
    void wait();
    // It does not wait.
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
