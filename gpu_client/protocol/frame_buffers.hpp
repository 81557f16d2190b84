// Reused buffers for batches and copied pieces. A batch is written into a plain buffer, which then becomes ZeroMQ's
// message: a buffer of ZeroMQ's own would cost one more copy of every record and an allocation per batch. And the C
// library takes a buffer as large as a piece from the kernel and gives it back each time: the page faults cost a third
// of what sending it costs.
//
// Any thread: ZeroMQ releases messages on its own threads.
#pragma once

#include <memory>
#include <span>
#include <vector>
#include <zmq.hpp>

#include "api_client/base/mutex.hpp"
#include "gpu_client/protocol/wire.hpp"

namespace tnr::wire {

class FrameBuffers {
public:
    // Turns the content of `frame` into a message. `frame` is left with nothing but room for a batch's header.
    zmq::message_t message_from(Bytes& frame) TNR_EXCLUDES(mutex_);
    // The message holds a copy of `data`.
    zmq::message_t copy_of(std::span<const std::byte> data) TNR_EXCLUDES(mutex_);

private:
    using Spare = std::vector<Bytes*>;
    static std::unique_ptr<Bytes> take_locked(Spare& from);
    static zmq::message_t lend(std::unique_ptr<Bytes> buffer);
    static void let_go(void* data, void* buffer);
    void take_back(Bytes* buffer) TNR_EXCLUDES(mutex_);

    Mutex mutex_;
    Spare batches_ TNR_GUARDED_BY(mutex_);
    Spare pieces_ TNR_GUARDED_BY(mutex_);
};

// The process's. Never destroyed: messages may outlive whoever sent them.
FrameBuffers& frame_buffers();

}  // namespace tnr::wire
