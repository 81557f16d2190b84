// See outgoing.hpp.
#include "gpu_client/cuda/outgoing.hpp"

#include "gpu_client/cuda/client_session.hpp"

namespace tnr::cuda {

Outgoing* Outgoing::begin(ClientSession& session, const PinnedRange* range) {
    auto* outgoing = new Outgoing(session);
    if (range) {
        outgoing->in_flight_ = range->in_flight;
        range->in_flight->fetch_add(1);
    }
    return outgoing;
}

zmq::message_t Outgoing::frame(const void* data, size_t bytes) {
    left_.fetch_add(1);
    return zmq::message_t(const_cast<void*>(data), bytes, received, this);
}

// On any thread, when the worker has received the frame and ZeroMQ has finished with it.
void Outgoing::received(void*, void* self) {
    static_cast<Outgoing*>(self)->drop();
}

void Outgoing::drop() {
    auto* in_flight = in_flight_;
    auto& session = session_;
    int left = left_.fetch_sub(1) - 1;
    if (left == 0) {
        if (in_flight) in_flight->fetch_sub(1);
        delete this;
    }
    if (left <= 1) session.memory_freed();  // someone may wait for it
}

void Outgoing::wait() {
    session_.wait_for_memory([this] { return left_.load() == 1; });
    drop();
}

void Outgoing::let_go() {
    drop();
}

}  // namespace tnr::cuda
