// Buffers of batches, used again and again. A batch is written into a plain buffer, and that buffer becomes ZeroMQ's
// message: one of ZeroMQ's own would be one more copy of every record and an allocation for each batch.
//
// Any thread: ZeroMQ lets go of a message on its own threads.
#pragma once

#include <vector>
#include <zmq.hpp>

#include "api_client/base/mutex.hpp"
#include "gpu_client/protocol/wire.hpp"

namespace tnr::wire {

class FrameBuffers {
public:
    // The message holds what `frame` held, and `frame` a buffer with nothing but room for a batch's header.
    zmq::message_t message_from(Bytes& frame) TNR_EXCLUDES(mutex_);

private:
    static void let_go(void* data, void* buffer);
    void take_back(Bytes* buffer) TNR_EXCLUDES(mutex_);

    Mutex mutex_;
    std::vector<Bytes*> spare_ TNR_GUARDED_BY(mutex_);
};

// The process's. Never destroyed: messages may outlive whoever sent them.
FrameBuffers& frame_buffers();

}  // namespace tnr::wire
