// See link.hpp.
#include "gpu_client/protocol/link.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "gpu_client/protocol/frame_buffers.hpp"
#include "gpu_client/protocol/ops.hpp"

namespace tnr::wire {

// The first connection needs no welcome: the worker cannot have received anything yet, so nothing can be missing.
Link::Link(std::unique_ptr<Channel> channel)
    : channel_(std::move(channel)),
      opened_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      lane_dials_(channel_->dials() ? channel_->lanes() : 0) {
    if (!channel_->dials()) return;
    LockGuard lock(send_mutex_);
    connection_ = 1;
    send_unnumbered(op_hello, connection_);
    open_ = true;
}

// ---- out

// Fills in what every header says about the other direction.
void Link::stamp(BatchHeader& header) {
    LockGuard lock(book_mutex_);
    header.acknowledged = worked_off_;
    header.received = received_up_to_;
    owed_bytes_ = 0;
    owed_receipt_bytes_ = 0;
}

void Link::tell_watcher(BatchWatcher::Way way, uint64_t sequence, size_t bytes, std::span<const std::byte> records) {
    auto* watcher = watcher_.load(std::memory_order_acquire);
    if (!watcher) return;
    size_t count = 0;
    RecordReader reader(records);
    for (Record record; reader.next(record);) ++count;
    watcher->batch(way, sequence, bytes, count);
}

void Link::send(Bytes& frame, Frames&& bulk) {
    Frames frames;
    frames.reserve(1 + bulk.size());
    frames.push_back(frame_buffers().message_from(frame));
    for (auto& part : bulk) frames.push_back(std::move(part));
    bulk.clear();
    size_t bytes = 0;
    for (auto& part : frames) bytes += part.size();

    LockGuard lock(send_mutex_);
    BatchHeader header{next_sequence_++, 0, 0, static_cast<uint32_t>(frames.front().size() - sizeof(BatchHeader)),
                       static_cast<uint32_t>(frames.size() - 1)};
    stamp(header);
    std::memcpy(frames.front().data(), &header, sizeof header);
    if (closed_) return;
    tell_watcher(BatchWatcher::Way::out, header.sequence, bytes,
                 {frames.front().data<std::byte>() + sizeof header, header.record_bytes});
    bool now = open();
    for (auto& part : frames)
        if (now) outgoing_.emplace_back().copy(part);
    size_t data_bytes = bytes - frames.front().size();
    keep(header.sequence, bytes, std::move(frames));
    if (!now) return;
    send_frames(lanes_.pick(connection_, data_bytes), bytes);
}

// Sends what is in outgoing_.
void Link::send_frames(size_t lane, size_t bytes) {
    traffic_.sent(lane, bytes);
    channel_->send(outgoing_, lane);
}

void Link::send_record(uint16_t op, std::span<const std::byte> payload) {
    Bytes frame;
    begin(frame);
    Writer writer(frame);
    writer.begin_record(op, 0);
    writer.put_raw(payload.data(), payload.size());
    writer.end_record();
    send(frame, {});
}

// Called before the batch is sent: the receipt may come at once.
void Link::keep(uint64_t sequence, size_t bytes, Frames&& frames) {
    LockGuard lock(book_mutex_);
    kept_records_ += frames.front().size();
    ++kept_batches_;
    auto now = Pace::Clock::now();
    sent_.push_back(
        {sequence, bytes, frames.front().size(), pace_.mark(now), record_pace_.mark(now), std::move(frames)});
    in_flight_ += bytes;
    kept_ += bytes;
}

// Sends a batch of the link's own. It has no number and is not kept, since each connection begins with everything it
// could say.
void Link::send_unnumbered(uint16_t op, uint64_t connection, size_t lane) {
    Bytes frame;
    begin(frame);
    if (op != 0) {
        Writer writer(frame);
        writer.begin_record(op, 0);
        writer.put(connection);
        writer.end_record();
    }
    BatchHeader header{0, 0, 0, static_cast<uint32_t>(frame.size() - sizeof(BatchHeader)), 0};
    stamp(header);
    std::memcpy(frame.data(), &header, sizeof header);
    outgoing_.emplace_back(frame.data(), frame.size());
    send_frames(lane, frame.size());
}

void Link::send_receipt() {
    LockGuard lock(send_mutex_);
    if (open()) send_unnumbered(0, 0);
}

// Sends all that has not arrived. The lock keeps anything newer from getting in between.
void Link::send_again() {
    LockGuard lock(book_mutex_);
    pace_.new_connection();
    record_pace_.new_connection();
    note_paces();
    for (auto& sent : sent_) {
        if (sent.frames.empty()) continue;
        for (auto& part : sent.frames) outgoing_.emplace_back().copy(part);
        send_frames(lanes_.pick(connection_, sent.bytes - sent.record_bytes), sent.bytes);
    }
}

// ---- in

bool Link::owes_receipt() {
    LockGuard lock(book_mutex_);
    return owed_receipt_bytes_ >= receipt_when_quiet_bytes;
}

Link::Event Link::receive(Batch& batch, std::chrono::milliseconds timeout) {
    if (early_.empty()) {
        batch = {};
        auto event = std::exchange(after_, Event::timeout);
        if (event == Event::timeout) event = receive_next(batch, timeout);
        // Not after a small one: it is most likely a question, and an empty look delays its answer by a few µs.
        if (event == Event::batch && batch.bytes >= receipt_when_quiet_bytes) look_ahead();
        return event;
    }
    batch = std::move(early_.front());
    early_.pop_front();
    look_ahead();
    return Event::batch;
}

// Takes note of what has arrived even while the receiver is slow to work it off.
void Link::look_ahead() {
    while (after_ == Event::timeout && early_.size() < early_batches_max) {
        Batch next;
        auto event = receive_next(next, std::chrono::milliseconds(0));
        if (event == Event::timeout) return;
        if (event == Event::batch)
            early_.push_back(std::move(next));
        else if (event != Event::receipt)
            after_ = event;
    }
}

Link::Event Link::receive_next(Batch& batch, std::chrono::milliseconds timeout) {
    if (take_overtaker(batch)) return take_numbered(batch);
    bool owes = owes_receipt();
    auto event = channel_->receive(batch.frames, owes ? std::chrono::milliseconds(0) : timeout, &batch.way);
    if (owes && event == Channel::Event::timeout) {
        send_receipt();
        event = channel_->receive(batch.frames, timeout, &batch.way);
    }
    switch (event) {
        case Channel::Event::timeout:
            return Event::timeout;
        case Channel::Event::woken:
            return Event::woken;
        case Channel::Event::disconnected:
            open_ = false;
            return Event::disconnected;
        case Channel::Event::message:
            break;
    }
    return take(batch);
}

Link::Event Link::take(Batch& batch) {
    auto& first = batch.frames.front();
    std::span<const std::byte> bytes{first.data<std::byte>(), first.size()};
    if (!parse_batch(bytes, batch.frames.size() - 1, batch.header, batch.records)) return Event::malformed;
    batch.bytes = 0;
    for (auto& part : batch.frames) batch.bytes += part.size();
    traffic_.received(batch.way.lane, batch.bytes);
    take_word(batch.header);
    auto event = batch.header.sequence == 0 ? take_unnumbered(batch) : take_numbered(batch);
    if (event != Event::batch) batch.records = {};
    return event;
}

void Link::note_paces() {
    kept_enough_.store(pace_.limit(), std::memory_order_relaxed);
    kept_records_max_.store(record_pace_.limit(), std::memory_order_relaxed);
}

// Takes in what the other side says about our batches.
void Link::take_word(const BatchHeader& header) {
    {
        LockGuard lock(book_mutex_);
        uint64_t first = sent_.empty() ? 0 : sent_.front().sequence;
        uint64_t last = sent_.empty() ? 0 : sent_.back().sequence;
        uint64_t arrived = std::min(std::max(header.received, header.acknowledged), last);
        size_t arrived_bytes = 0, arrived_records = 0;
        Pace::Mark mark, record_mark;
        for (uint64_t next = std::max(arrived_up_to_ + 1, first); next <= arrived; ++next) {
            auto& sent = sent_[next - first];
            kept_ -= sent.bytes;
            --kept_batches_;
            kept_records_ -= sent.record_bytes;
            arrived_bytes += sent.bytes;
            arrived_records += sent.record_bytes;
            mark = sent.mark;
            record_mark = sent.record_mark;
            for (auto& part : sent.frames) arrived_.push_back(std::move(part));
            sent.frames.clear();
            arrived_up_to_ = next;
        }
        if (arrived_records > 0) {
            auto now = Pace::Clock::now();
            pace_.arrived(arrived_bytes, mark, now);
            record_pace_.arrived(arrived_records, record_mark, now);
            note_paces();
        }
        while (!sent_.empty() && sent_.front().sequence <= header.acknowledged) {
            in_flight_ -= sent_.front().bytes;
            sent_.pop_front();
        }
    }
    arrived_.clear();  // calls back whoever lent the memory: not with our lock held
}

// Takes the batch whose turn it is, if it arrived early.
bool Link::take_overtaker(Batch& batch) {
    if (overtakers_.empty()) return false;
    LockGuard lock(book_mutex_);
    return overtakers_.take(received_up_to_ + 1, batch);
}

Link::Event Link::take_numbered(Batch& batch) {
    bool due = false;
    {
        LockGuard lock(book_mutex_);
        uint64_t expected = received_up_to_ + 1;
        if (batch.header.sequence < expected) return Event::receipt;  // sent again, but had arrived
        if (batch.header.sequence > expected && channel_->lanes() > 0)
            return overtakers_.put(std::move(batch)) ? Event::receipt : Event::malformed;
        // A batch that overtook one lost with its connection comes again; without a break, there is no overtaking.
        if (batch.header.sequence > expected) return open() ? Event::malformed : Event::receipt;
        received_up_to_ = expected;
        received_.push_back({expected, batch.bytes, false});
        owed_receipt_bytes_ += batch.bytes;
        due = owed_receipt_bytes_ >= receipt_every_bytes;
    }
    if (due) send_receipt();
    tell_watcher(BatchWatcher::Way::in, batch.header.sequence, batch.bytes, batch.records);
    return Event::batch;
}

Link::Event Link::take_unnumbered(Batch& batch) {
    if (batch.records.empty()) return Event::receipt;
    Record record;
    RecordReader records(batch.records);
    if (!records.next(record) || record.flags != 0) return Event::malformed;
    Reader in(record.payload);
    auto connection = in.get<uint64_t>();
    if (!in.finished() || connection == 0) return Event::malformed;
    if (record.op == op_lane && !channel_->dials()) return take_lane(batch.way, connection);
    if (batch.way.lane > 0) return Event::malformed;
    if (record.op == op_port && !channel_->dials()) {
        channel_->client_comes_from(connection);
        return Event::receipt;
    }
    if (record.op == op_hello && !channel_->dials()) return take_hello(batch, connection);
    if (record.op == op_welcome && channel_->dials()) return take_welcome(connection);
    return Event::malformed;
}

Link::Event Link::take_lane(const Channel::Way& way, uint64_t connection) {
    if (way.lane == 0 || way.connection != connection) return Event::malformed;
    LockGuard lock(send_mutex_);
    lanes_.up(way.lane, connection);
    return Event::receipt;
}

Link::Event Link::take_hello(Batch& batch, uint64_t connection) {
    if (batch.way.connection != 0 && batch.way.connection != connection) return Event::malformed;
    LockGuard lock(send_mutex_);
    if (connection <= connection_) return Event::receipt;
    connection_ = connection;
    channel_->client_speaks(batch.frames.front(), batch.way.connection);
    send_unnumbered(op_welcome, connection);
    send_again();
    open_ = true;
    return Event::connected;
}

Link::Event Link::take_welcome(uint64_t connection) {
    LockGuard lock(send_mutex_);
    // It answers the hello of an earlier connection, or the first one, which did not wait for it.
    if (connection != connection_ || open()) return Event::receipt;
    send_again();
    open_ = true;
    uint64_t one = 1;
    (void)!::write(opened_fd_.get(), &one, sizeof one);
    return Event::connected;
}

void Link::worked_off(uint64_t sequence) {
    bool due = false;
    {
        LockGuard lock(book_mutex_);
        for (auto& entry : received_)
            if (entry.sequence == sequence) entry.done = true;
        // Owed is what can be acknowledged: a batch that is late may free all that waited behind it.
        while (!received_.empty() && received_.front().done) {
            worked_off_ = received_.front().sequence;
            owed_bytes_ += received_.front().bytes;
            received_.pop_front();
        }
        due = owed_bytes_ >= acknowledge_every_bytes;
    }
    if (due) send_receipt();
}

// ---- connections

bool Link::take_opened() {
    uint64_t count;
    return ::read(opened_fd_.get(), &count, sizeof count) == sizeof count;
}

bool Link::dial() {
    LockGuard lock(send_mutex_);
    if (closed_) return false;
    open_ = false;
    take_opened();
    lane_dials_.begin();
    if (!channel_->dial(++connection_)) return false;
    send_unnumbered(op_hello, connection_);
    return true;
}

void Link::shaken_hands() {
    LockGuard lock(send_mutex_);
    if (closed_) return;
    if (size_t lane = lane_dials_.shaken(); lane > 0) {
        lanes_.up(lane, connection_);
        send_unnumbered(op_lane, connection_, lane);
    } else if (auto port = channel_->port_to_tell(); port != 0) {
        send_unnumbered(op_port, port);
    }
    if (size_t lane = lane_dials_.next(); lane > 0) (void)channel_->dial_lane(lane);
}

size_t Link::lanes_up() const {
    LockGuard lock(send_mutex_);
    return lanes_.count_up(connection_);
}

void Link::close() {
    std::deque<Sent> kept;  // freed without our locks
    LockGuard lock(send_mutex_);
    closed_ = true;
    open_ = false;
    channel_->close();
    LockGuard book(book_mutex_);
    kept.swap(sent_);
    kept_ = kept_batches_ = kept_records_ = in_flight_ = 0;
}

}  // namespace tnr::wire
