// See frame_buffers.hpp.
#include "gpu_client/protocol/frame_buffers.hpp"

namespace tnr::wire {

// Below this ZeroMQ copies a message once more on its way out anyway, and its own allocation is the cheaper one.
static constexpr size_t lent_bytes_min = 8 << 10;
// Kept for the next batches: a receipt frees a megabyte of them at a time.
static constexpr size_t spare_batches_max = 16;
static constexpr size_t spare_batch_bytes = 256 << 10;
// From here on the C library may take an allocation from the kernel.
static constexpr size_t pooled_copy_bytes_min = 128 << 10;
// Twice what a waiting copy leaves behind on a short line (cuda/copies.cpp).
static constexpr size_t spare_pieces_max = 8;

std::unique_ptr<Bytes> FrameBuffers::take_locked(Spare& from) {
    if (from.empty()) return nullptr;
    std::unique_ptr<Bytes> buffer(from.back());
    from.pop_back();
    return buffer;
}

zmq::message_t FrameBuffers::lend(std::unique_ptr<Bytes> buffer) {
    zmq::message_t message(buffer->data(), buffer->size(), let_go, buffer.get());
    (void)buffer.release();  // the message's now
    return message;
}

zmq::message_t FrameBuffers::message_from(Bytes& frame) {
    if (frame.size() < lent_bytes_min) {
        zmq::message_t message(frame.data(), frame.size());
        frame.resize(sizeof(BatchHeader));
        return message;
    }
    std::unique_ptr<Bytes> buffer;
    {
        LockGuard lock(mutex_);
        buffer = take_locked(batches_);
    }
    if (!buffer) {
        buffer = std::make_unique<Bytes>();
        buffer->reserve(spare_batch_bytes);  // grown by doubling it would end up beyond what is kept
    }
    buffer->resize(sizeof(BatchHeader));
    std::swap(frame, *buffer);
    return lend(std::move(buffer));
}

zmq::message_t FrameBuffers::copy_of(std::span<const std::byte> data) {
    if (data.size() < pooled_copy_bytes_min || data.size() > piece_bytes_max)
        return zmq::message_t(data.data(), data.size());
    std::unique_ptr<Bytes> buffer;
    {
        LockGuard lock(mutex_);
        buffer = take_locked(pieces_);
    }
    if (!buffer) {
        buffer = std::make_unique<Bytes>();
        buffer->reserve(piece_bytes_max);
    }
    buffer->assign(data.begin(), data.end());
    return lend(std::move(buffer));
}

void FrameBuffers::let_go(void*, void* buffer) {
    frame_buffers().take_back(static_cast<Bytes*>(buffer));
}

void FrameBuffers::take_back(Bytes* buffer) {
    std::unique_ptr<Bytes> owned(buffer);
    LockGuard lock(mutex_);
    if (buffer->capacity() <= spare_batch_bytes) {
        if (batches_.size() < spare_batches_max) batches_.push_back(owned.release());
    } else if (buffer->capacity() == piece_bytes_max) {
        if (pieces_.size() < spare_pieces_max) pieces_.push_back(owned.release());
    }
}

FrameBuffers& frame_buffers() {
    static auto* buffers = new FrameBuffers;
    return *buffers;
}

}  // namespace tnr::wire
