// See frame_buffers.hpp.
#include "gpu_client/protocol/frame_buffers.hpp"

#include <memory>

namespace tnr::wire {

// Below this ZeroMQ copies a message once more on its way out anyway, and its own allocation is the cheaper one.
static constexpr size_t lent_bytes_min = 8 << 10;
// Kept for the next batches: a receipt frees a megabyte of them at a time.
static constexpr size_t spare_buffers_max = 16;
static constexpr size_t spare_buffer_bytes_max = 256 << 10;

zmq::message_t FrameBuffers::message_from(Bytes& frame) {
    if (frame.size() < lent_bytes_min) {
        zmq::message_t message(frame.data(), frame.size());
        frame.resize(sizeof(BatchHeader));
        return message;
    }
    std::unique_ptr<Bytes> buffer;
    {
        LockGuard lock(mutex_);
        if (!spare_.empty()) {
            buffer.reset(spare_.back());
            spare_.pop_back();
        }
    }
    if (!buffer) {
        buffer = std::make_unique<Bytes>();
        buffer->reserve(frame.capacity());
    }
    buffer->resize(sizeof(BatchHeader));
    std::swap(frame, *buffer);
    zmq::message_t message(buffer->data(), buffer->size(), let_go, buffer.get());
    (void)buffer.release();  // the message's now
    return message;
}

void FrameBuffers::let_go(void*, void* buffer) {
    frame_buffers().take_back(static_cast<Bytes*>(buffer));
}

void FrameBuffers::take_back(Bytes* buffer) {
    std::unique_ptr<Bytes> owned(buffer);
    LockGuard lock(mutex_);
    if (spare_.size() >= spare_buffers_max || buffer->capacity() > spare_buffer_bytes_max) return;
    spare_.push_back(owned.release());
}

FrameBuffers& frame_buffers() {
    static auto* buffers = new FrameBuffers;
    return *buffers;
}

}  // namespace tnr::wire
