// Batches over a channel: numbers them, acknowledges the other side's, and keeps within the credit window.
// Both ends of a session use the same class.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>

#include "gpu_client/protocol/channel.hpp"
#include "gpu_client/protocol/wire.hpp"

namespace tnr::wire {

// A batch as it arrived. `records` views into `frames[0]`; bulk frames are frames[1…].
struct Batch {
    BatchHeader header{};
    std::span<const std::byte> records;
    Frames frames;
    size_t bytes = 0;
};

class Link {
public:
    enum class Event { batch, timeout, woken, disconnected, malformed };

    explicit Link(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}

    // Room for the header at the front of frame 0: start every batch's buffer with it.
    static void begin(Bytes& frame) { frame.resize(sizeof(BatchHeader)); }
    // Sends `frame` (begun with begin(), records behind) and its bulk frames. Any thread; batches go out in the order
    // of the calls' lock. `frame` is left begun and empty, with its capacity.
    void send(Bytes& frame, Frames&& bulk);
    // Bytes sent and not yet acknowledged. A sender that finds window_bytes exceeded receives until it is not.
    size_t in_flight() const { return in_flight_.load(std::memory_order_acquire); }
    bool has_credit() const { return in_flight() < window_bytes; }

    // One thread at a time. Events other than `batch` leave `batch` empty. An empty batch (credit only) is an event
    // too.
    Event receive(Batch& batch, std::chrono::milliseconds timeout);
    // The batch has been worked off and its memory is free again: its bytes count as acknowledged. Batches may finish
    // in any order (a later one never acknowledges an earlier). Any thread. Sends the acknowledgement by itself when it
    // is due.
    void worked_off(uint64_t sequence, size_t bytes);

    void wake() { channel_->wake(); }
    uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
    uint64_t bytes_received() const { return bytes_received_.load(std::memory_order_relaxed); }

private:
    struct Sent {
        uint64_t sequence;
        size_t bytes;
    };
    struct Received {
        uint64_t sequence;
        size_t bytes;
        bool done;
    };
    void take_acknowledgement(uint64_t acknowledged);
    void send_locked(Bytes& frame, Frames&& bulk);

    std::unique_ptr<Channel> channel_;
    std::mutex send_mutex_;  // numbering and sending are one step
    uint64_t next_sequence_ = 1;
    std::mutex book_mutex_;  // guards the rest; taken inside send_mutex_, never the other way round
    std::deque<Sent> sent_;
    std::deque<Received> received_;
    uint64_t worked_off_ = 0;
    size_t owed_bytes_ = 0;
    std::atomic<size_t> in_flight_{0};
    std::atomic<uint64_t> bytes_sent_{0}, bytes_received_{0};
};

}  // namespace tnr::wire
