// The outgoing half of a session: see client_session.hpp.
#include "gpu_client/cuda/client_session.hpp"

#include <sys/prctl.h>
#include <time.h>

#include "gpu_client/cuda/background_thread.hpp"
#include "gpu_client/cuda/profile.hpp"
#include "gpu_client/cuda/stats.hpp"

namespace tnr::cuda {

// A batch this large goes out at once, so that the worker can begin.
static constexpr size_t flush_bytes = 64 << 10;
// While more than this is on its way, the worker has enough to do, and what counts is the cost of a batch: some ten
// system calls and wake-ups at both ends, as much as a dozen small copies. Batches may then grow to `busy_flush_bytes`.
static constexpr size_t busy_bytes = 256 << 10;
static constexpr size_t busy_flush_bytes = 192 << 10;
// The flusher looks this often while records are being added. It sends them after a tick without additions, or after
// this many ticks with some.
static constexpr long tick_ns = 10'000;
static constexpr int ticks_before_sending = 5;
// A program that waits for each of its launches sends them itself, and the flusher only takes a core from it (20 µs per
// wake-up, in a virtual machine). So each tick that finds nothing unsent makes the next one longer, up to this. The
// first record that is not waited for may then be late, by no more than the time for which everything was waited for;
// having to send makes ticks short again.
static constexpr long tick_max_ns = 128 * tick_ns;
// After this long without records the flusher sleeps until it is woken, so that a quiet program costs nothing.
static constexpr long quiet_ns = 500'000;

ClientSession::ClientSession(std::unique_ptr<wire::Channel> channel)
    : link_(std::move(channel)),
      keeper_(link_, patience_from_environment(), keeper_hooks()),
      opened_(std::chrono::steady_clock::now()) {
    wire::Link::begin(frame_);
    wire::Link::begin(sending_);
}

void ClientSession::start() {
    link_.watch(profiled_batches());
    start_background_thread([this] { flusher(); });
    start_background_thread([this] { background(); });
    start_background_thread([this] { keeper_.run(); });
}

void ClientSession::put_record(uint64_t context, uint16_t op, uint16_t flags, Parts parts, zmq::message_t* bulk) {
    wire::Writer out(frame_);
    if (context != context_) {
        out.begin_record(wire::SetContext::op, 0);
        wire::write(out, wire::SetContext{context});
        out.end_record();
        context_ = context;
    }
    if (bulk) {
        flags |= wire::record_has_bulk;
        bulk_bytes_ += bulk->size();
        bulk_.push_back(std::move(*bulk));
    }
    out.begin_record(op, flags);
    for (auto& part : parts) out.put_raw(part.data(), part.size());
    out.end_record();
    position_.store(position_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    stats().count_sent(op);
    if (profiling()) profile_appended(position_.load(std::memory_order_relaxed), op);
}

// Waits until a record of `bytes` fits into the buffer.
void ClientSession::make_room(size_t bytes) {
    constexpr size_t overhead = 64;  // record headers and a change of context
    while (frame_.size() + bytes + overhead > wire::batch_bytes_max || bulk_.size() >= wire::batch_frames_max) {
        buffer_mutex_.unlock();
        flush();
        buffer_mutex_.lock();
    }
}

size_t ClientSession::batch_is_large() const {
    return link_.in_flight() < busy_bytes ? flush_bytes : busy_flush_bytes;
}

uint64_t ClientSession::append(uint64_t context, uint16_t op, Parts parts, zmq::message_t* bulk) {
    size_t bytes = 0;
    for (auto& part : parts) bytes += part.size();
    if (lost() || bytes > wire::record_bytes_max) return 0;
    UniqueLock lock(buffer_mutex_);
    make_room(bytes);
    put_record(context, op, 0, parts, bulk);
    uint64_t position = position_.load(std::memory_order_relaxed);
    bool large = bulk_bytes_ >= flush_bytes || frame_.size() >= batch_is_large();
    lock.unlock();
    if (large)
        flush();
    else
        wake_flusher();
    return position;
}

void ClientSession::send_at_once(const wire::HostFunctionDone& done) {
    stats().count_sent(done.op);
    link_.send_record(done.op, wire::payload_of(done));
}

uint64_t ClientSession::request(uint64_t context, uint16_t op, std::span<std::byte> payload, Pending& pending) {
    pending.op = op;
    pending.number = next_call_.fetch_add(1, std::memory_order_relaxed);
    std::memcpy(payload.data(), &pending.number, sizeof pending.number);
    {
        LockGuard lock(receive_mutex_);
        if (lost()) {
            pending.as_news = false;
            finish(pending);
            return 0;
        }
        pending_[pending.number] = &pending;
        if (pending.as_news && ++news_expected_ > 0 && !leading_) background_wake_.notify_one();
    }
    UniqueLock lock(buffer_mutex_);
    make_room(payload.size());
    put_record(context, op, wire::record_wants_reply, Parts{payload}, nullptr);
    uint64_t position = position_.load(std::memory_order_relaxed);
    lock.unlock();
    flush();
    return position;
}

void ClientSession::flush() {
    if (!wait_for_credit()) return;
    read_receipts();
    LockGuard order(order_mutex_);
    wire::Frames bulk;
    {
        LockGuard lock(buffer_mutex_);
        if (frame_.size() == sizeof(wire::BatchHeader)) return;
        std::swap(frame_, sending_);
        std::swap(bulk_, bulk);
        flushed_.store(position_.load(std::memory_order_relaxed), std::memory_order_release);
        bulk_bytes_ = 0;
    }
    link_.send(sending_, std::move(bulk));
}

// Reads receipts without waiting. They lie unread while nobody waits for anything, and what was sent is kept until they
// are read.
void ClientSession::read_receipts() {
    auto many = [this] { return link_.kept() > wire::receipt_every_bytes; };
    if (!many()) return;
    UniqueLock lock(receive_mutex_);
    while (!leading_ && !lost() && many() && lead(std::chrono::milliseconds(0)) != wire::Link::Event::timeout) continue;
    hand_over();
}

bool ClientSession::wait_for_credit() {
    if (lost()) {
        // Nobody will read it: drop it, so that the buffer cannot grow.
        LockGuard lock(buffer_mutex_);
        wire::Link::begin(frame_);
        bulk_.clear();
        bulk_bytes_ = 0;
        flushed_.store(position_.load(std::memory_order_relaxed), std::memory_order_release);
        return false;
    }
    if (link_.has_credit()) return true;
    ProfiledWait wait("credit: the worker is behind");
    return wait_until([this] { return link_.has_credit(); });
}

void ClientSession::wait_for_room() {
    auto there = [this] { return link_.kept() < link_.kept_enough(); };
    read_receipts();
    if (there()) return;
    ProfiledWait wait("room: the worker has not received what is on its way");
    wait_until(there);
}

void ClientSession::wake_flusher() {
    if (flusher_asleep_.load(std::memory_order_seq_cst) && flusher_asleep_.exchange(false)) flusher_wake_.release();
}

void ClientSession::flusher() {
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // the default would stretch a tick by 50 µs
    while (true) {
        flusher_wake_.acquire();
        uint64_t seen = position();
        int waited = 0;
        long idle_tick = tick_ns;
        for (long quiet = 0; quiet < quiet_ns;) {
            long tick = waited > 0 ? tick_ns : idle_tick;
            timespec nap{0, tick};
            ::nanosleep(&nap, nullptr);
            uint64_t now = position();
            bool added = now != seen;
            seen = now;
            quiet = added ? 0 : quiet + tick;
            if (flushed_.load(std::memory_order_acquire) == now) {
                idle_tick = std::min(2 * idle_tick, tick_max_ns);
                waited = 0;
                continue;
            }
            if (added && ++waited < ticks_before_sending) continue;
            waited = 0;
            idle_tick = tick_ns;
            flush();
        }
        flusher_asleep_.store(true, std::memory_order_seq_cst);
        // A thread that appended before it saw us asleep has not woken us.
        if (position() != flushed_.load(std::memory_order_acquire) && flusher_asleep_.exchange(false))
            flusher_wake_.release();
    }
}

}  // namespace tnr::cuda
