// See link.hpp.
#include "gpu_client/protocol/link.hpp"

namespace tnr::wire {

void Link::send(Bytes& frame, Frames&& bulk) {
    std::lock_guard lock(send_mutex_);
    send_locked(frame, std::move(bulk));
}

void Link::send_locked(Bytes& frame, Frames&& bulk) {
    size_t bytes = frame.size();
    for (auto& part : bulk) bytes += part.size();
    BatchHeader header{next_sequence_++, 0, static_cast<uint32_t>(frame.size() - sizeof(BatchHeader)),
                       static_cast<uint32_t>(bulk.size())};
    {
        std::lock_guard lock(book_mutex_);
        header.acknowledged = worked_off_;
        owed_bytes_ = 0;
        sent_.push_back({header.sequence, bytes});
        in_flight_ += bytes;
    }
    bytes_sent_ += bytes;
    std::memcpy(frame.data(), &header, sizeof header);

    Frames frames;
    frames.reserve(1 + bulk.size());
    frames.emplace_back(frame.data(), frame.size());
    for (auto& part : bulk) frames.push_back(std::move(part));
    channel_->send(std::move(frames));
    begin(frame);
}

void Link::take_acknowledgement(uint64_t acknowledged) {
    std::lock_guard lock(book_mutex_);
    while (!sent_.empty() && sent_.front().sequence <= acknowledged) {
        in_flight_ -= sent_.front().bytes;
        sent_.pop_front();
    }
}

Link::Event Link::receive(Batch& batch, std::chrono::milliseconds timeout) {
    batch.frames.clear();
    batch.records = {};
    switch (channel_->receive(batch.frames, timeout)) {
        case Channel::Event::timeout:
            return Event::timeout;
        case Channel::Event::woken:
            return Event::woken;
        case Channel::Event::disconnected:
            return Event::disconnected;
        case Channel::Event::message:
            break;
    }
    auto& first = batch.frames.front();
    std::span<const std::byte> bytes{first.data<std::byte>(), first.size()};
    if (!parse_batch(bytes, batch.frames.size() - 1, batch.header, batch.records)) return Event::malformed;
    batch.bytes = 0;
    for (auto& part : batch.frames) batch.bytes += part.size();
    bytes_received_ += batch.bytes;
    take_acknowledgement(batch.header.acknowledged);
    std::lock_guard lock(book_mutex_);
    received_.push_back({batch.header.sequence, batch.bytes, false});
    return Event::batch;
}

void Link::worked_off(uint64_t sequence, size_t bytes) {
    bool due = false;
    {
        std::lock_guard lock(book_mutex_);
        for (auto& entry : received_)
            if (entry.sequence == sequence) entry.done = true;
        while (!received_.empty() && received_.front().done) {
            worked_off_ = received_.front().sequence;
            received_.pop_front();
        }
        owed_bytes_ += bytes;
        due = owed_bytes_ >= acknowledge_every_bytes;
    }
    if (!due) return;
    Bytes empty;
    begin(empty);
    std::lock_guard lock(send_mutex_);
    send_locked(empty, {});
}

}  // namespace tnr::wire
