// Batches over a channel: numbers them, acknowledges the other side's, keeps within the credit window, and survives
// broken connections. Both ends of a session use the same class.
//
// What was sent is kept until the other side says that it has arrived (`received` in every batch's header). Each
// connection begins with the client's hello and the worker's welcome, which say how far either side had come; then both
// send the rest again, in order. A batch whose number is not the next one is dropped: it has been here before, or will
// come again. Only where there are lanes may one batch overtake another; it then waits for its turn. README.md
// describes the whole protocol.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>

#include "api_client/base/mutex.hpp"
#include "gpu_client/protocol/batch.hpp"
#include "gpu_client/protocol/channel.hpp"
#include "gpu_client/protocol/lanes.hpp"
#include "gpu_client/protocol/pace.hpp"
#include "gpu_client/protocol/wire.hpp"

namespace tnr::wire {

// Called once for each numbered batch, with the link's lock held or by whoever receives: must not block.
class BatchWatcher {
public:
    enum class Way { in, out };
    virtual void batch(Way way, uint64_t sequence, size_t bytes, size_t records) = 0;

protected:
    ~BatchWatcher() = default;
};

class Link {
public:
    // `receipt`: nothing to work off, but the other side has received something, so there may be credit and lent memory
    // may be free. `connected`: a connection begins; what was missing is on its way. `disconnected`: the worker's
    // client has left; it may come back.
    enum class Event { batch, receipt, connected, timeout, woken, disconnected, malformed };

    explicit Link(std::unique_ptr<Channel> channel);

    // Room for the header at the front of frame 0: start every batch's buffer with it.
    static void begin(Bytes& frame) { frame.resize(sizeof(BatchHeader)); }
    // Sends `frame` (begin(), then records) and its bulk frames, now or once there is a connection again. Any thread;
    // batches go out in the order in which the calls take the lock. `frame` is left begun and empty, perhaps with
    // another buffer. Memory that a bulk frame only refers to stays in use until the other side has received it.
    void send(Bytes& frame, Frames&& bulk);
    // A batch of one record, likewise.
    void send_record(uint16_t op, std::span<const std::byte> payload);
    // Bytes sent and not yet acknowledged.
    size_t in_flight() const { return in_flight_.load(std::memory_order_acquire); }
    // A sender without credit receives until there is some.
    bool has_credit() const {
        return in_flight() < window_bytes && kept_batches_.load(std::memory_order_relaxed) < kept_batches_max &&
               kept_records_.load(std::memory_order_acquire) < kept_records_max_.load(std::memory_order_relaxed);
    }
    // Bytes that are kept because the other side has not said that they have arrived.
    size_t kept() const { return kept_.load(std::memory_order_acquire); }
    // How many kept bytes are enough for a large copy to keep the line busy. More would only fall out of the caches
    // meanwhile.
    size_t kept_enough() const { return kept_enough_.load(std::memory_order_relaxed); }

    // One thread at a time. Events other than `batch` leave `batch` without records.
    Event receive(Batch& batch, std::chrono::milliseconds timeout);
    // The batch has been worked off and its memory is free again: its bytes count as acknowledged. Batches may finish
    // in any order (a later one never acknowledges an earlier). Any thread. Sends the acknowledgement by itself when it
    // is due.
    void worked_off(uint64_t sequence);

    // True while batches go out; otherwise they are only kept.
    bool open() const { return open_.load(std::memory_order_acquire); }
    // The client's end: replaces the connection by a new one. False if the link is closed or there are no more sockets.
    // The link is open once somebody has received the worker's welcome: then opened_fd() is readable, until
    // take_opened() has returned true.
    bool dial();
    int opened_fd() const { return opened_fd_.get(); }
    bool take_opened();
    // The client's end: the connection dialled last has shaken hands. Dials the next lane.
    void shaken_hands();
    // The number of lanes that we send over now.
    size_t lanes_up() const TNR_EXCLUDES(send_mutex_);
    LaneTraffic::Bytes traffic(size_t lane) const { return traffic_.of(lane); }
    // Any thread; null: nobody watches. The watcher must live as long as the link.
    void watch(BatchWatcher* watcher) { watcher_.store(watcher, std::memory_order_release); }
    // Stops sending for good and releases all kept memory.
    void close();

    Channel& channel() { return *channel_; }
    const Channel& channel() const { return *channel_; }
    void wake() { channel_->wake(); }
    uint64_t bytes_sent() const { return traffic_.total().sent; }
    uint64_t bytes_received() const { return traffic_.total().received; }

private:
    struct Sent {
        uint64_t sequence;
        size_t bytes, record_bytes;
        Pace::Mark mark, record_mark;
        Frames frames;  // empty: has arrived
    };
    struct Received {
        uint64_t sequence;
        size_t bytes;
        bool done;
    };
    void stamp(BatchHeader& header) TNR_EXCLUDES(book_mutex_);
    void keep(uint64_t sequence, size_t bytes, Frames&& frames);
    void send_frames(size_t lane, size_t bytes) TNR_REQUIRES(send_mutex_);
    void send_unnumbered(uint16_t op, uint64_t connection, size_t lane = 0) TNR_REQUIRES(send_mutex_);
    void send_receipt() TNR_EXCLUDES(send_mutex_);
    void send_again() TNR_REQUIRES(send_mutex_);
    Event receive_next(Batch& batch, std::chrono::milliseconds timeout);
    void look_ahead();
    bool owes_receipt();
    Event take(Batch& batch);
    bool take_overtaker(Batch& batch);
    Event take_numbered(Batch& batch);
    Event take_unnumbered(Batch& batch);
    Event take_lane(const Channel::Way& way, uint64_t connection);
    Event take_hello(Batch& batch, uint64_t connection);
    Event take_welcome(uint64_t connection);
    void take_word(const BatchHeader& header) TNR_EXCLUDES(book_mutex_);
    void note_paces() TNR_REQUIRES(book_mutex_);

    void tell_watcher(BatchWatcher::Way way, uint64_t sequence, size_t bytes, std::span<const std::byte> records);

    std::unique_ptr<Channel> channel_;
    std::atomic<BatchWatcher*> watcher_{nullptr};
    UniqueFd opened_fd_;
    Overtakers overtakers_;         // the receiver's, as are the next two
    std::deque<Batch> early_;       // taken out of the socket in turn, and then …
    Event after_ = Event::timeout;  // … what happened, if not this
    Frames arrived_;                // the receiver's: what the other side has received, on its way to being freed
    std::atomic<bool> open_{false};

    mutable Mutex send_mutex_;  // numbering and sending are one step
    Lanes lanes_ TNR_GUARDED_BY(send_mutex_);
    LaneDials lane_dials_ TNR_GUARDED_BY(send_mutex_);
    uint64_t next_sequence_ TNR_GUARDED_BY(send_mutex_) = 1;
    uint64_t connection_ TNR_GUARDED_BY(send_mutex_) = 0;  // number of the latest
    bool closed_ TNR_GUARDED_BY(send_mutex_) = false;
    Frames outgoing_ TNR_GUARDED_BY(send_mutex_);        // shares its data with what is kept
    Mutex book_mutex_;                                   // taken inside send_mutex_, never the other way round
    std::deque<Sent> sent_ TNR_GUARDED_BY(book_mutex_);  // not yet acknowledged, without gaps
    Pace pace_ TNR_GUARDED_BY(book_mutex_){kept_bytes_min, window_bytes};  // of whole batches
    Pace record_pace_ TNR_GUARDED_BY(book_mutex_){kept_record_bytes_min, window_bytes};
    uint64_t arrived_up_to_ TNR_GUARDED_BY(book_mutex_) = 0;  // of ours
    std::deque<Received> received_ TNR_GUARDED_BY(book_mutex_);
    uint64_t received_up_to_ TNR_GUARDED_BY(book_mutex_) = 0;
    uint64_t worked_off_ TNR_GUARDED_BY(book_mutex_) = 0;
    size_t owed_bytes_ TNR_GUARDED_BY(book_mutex_) = 0;          // of acknowledgements
    size_t owed_receipt_bytes_ TNR_GUARDED_BY(book_mutex_) = 0;  // of receipts
    std::atomic<size_t> in_flight_{0}, kept_{0}, kept_batches_{0}, kept_records_{0},
        kept_records_max_{kept_record_bytes_min}, kept_enough_{kept_bytes_min};
    LaneTraffic traffic_;
};

}  // namespace tnr::wire
