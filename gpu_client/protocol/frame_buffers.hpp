// Buffers of batches and of copied pieces, used again and again. A batch is written into a plain buffer, and that buffer
// becomes ZeroMQ's message: one of ZeroMQ's own would be one more copy of every record and an allocation for each batch. And
// what is as large as a piece the C library takes from the kernel and gives back each time: its page faults cost a third of
// what it costs to send it.
//
// Any thread: ZeroMQ lets go of a message on its own threads.
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
    // The message holds what `frame` held, and `frame` a buffer with nothing but room for a batch's header.
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
