// The incoming half of a session: see client_session.hpp.
#include <cstdio>

#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/profile.hpp"
#include "gpu_client/cuda/profile_buffer.hpp"
#include "gpu_client/cuda/stats.hpp"
#include "gpu_client/protocol/code_records.hpp"

namespace tnr::cuda {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// How long a worker may take until its first word. It was started before we were told its address.
static constexpr milliseconds first_word_timeout{10'000};
// A leader looks up this often even when nothing arrives.
static constexpr milliseconds lead_at_most{1000};
// How often somebody looks whether there is word of the worker while the program makes no calls: others may want its memory.
static constexpr milliseconds idle_look_every{200};

// What every call of a lost session returns: "the device is unavailable".
static constexpr CUresult lost_result = CUDA_ERROR_DEVICE_UNAVAILABLE;

bool Destination::write(uint64_t offset, std::span<const std::byte> data) {
    if (offset > bytes || data.size() > bytes - offset) return false;
    if (row_bytes == 0 || row_bytes == pitch) {
        if (!data.empty()) std::memcpy(base + offset, data.data(), data.size());
        return true;
    }
    while (!data.empty()) {
        uint64_t row = offset / row_bytes, column = offset % row_bytes;
        size_t part = std::min<uint64_t>(data.size(), row_bytes - column);
        std::memcpy(base + row * pitch + column, data.data(), part);
        data = data.subspan(part);
        offset += part;
    }
    return true;
}

bool ClientSession::wait(Pending& pending, milliseconds timeout) {
    auto begun = Clock::now();
    ProfiledWait profiled(pending.op);
    UniqueLock lock(receive_mutex_);
    bool there = wait_locked([&] { return pending.done; }, begun + timeout);
    if (!there) pending_.erase(pending.number);
    stats().count_waited(pending.op);
    stats().wait_ns.fetch_add(static_cast<uint64_t>((Clock::now() - begun).count()), Stats::relaxed);
    return there;
}

bool ClientSession::wait_until(const std::function<bool()>& ready, milliseconds timeout) {
    UniqueLock lock(receive_mutex_);
    return wait_locked(ready, Clock::now() + timeout);
}

// True once ready() holds; false when the session is lost or it is too late.
template <class Ready>
bool ClientSession::wait_locked(Ready&& ready, Clock::time_point deadline) {
    Waiter self;
    bool ended = false;
    while (!(ended = ready()) && !lost()) {
        auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
        if (left.count() <= 0) break;
        if (!leading_) {
            lead(std::min(left, lead_at_most));
            continue;
        }
        waiters_.push_back(&self);
        self.wake.wait_for(receive_mutex_, std::min(left, lead_at_most));
        std::erase(waiters_, &self);
    }
    hand_over();
    return ended;
}

// Wakes another thread that may want to receive now.
void ClientSession::hand_over() {
    if (leading_) return;
    if (!waiters_.empty())
        waiters_.front()->wake.notify_one();
    else if (news_expected_ > 0)
        background_wake_.notify_one();
}

wire::Link::Event ClientSession::lead(milliseconds timeout) {
    leading_ = true;
    receive_mutex_.unlock();
    auto event = link_.receive(batch_, timeout);
    receive_mutex_.lock();
    leading_ = false;
    switch (event) {
        case wire::Link::Event::batch:
            heard_ = true;
            dispatch(batch_);
            break;
        case wire::Link::Event::receipt:
        case wire::Link::Event::connected:
            heard_ = true;
            for (auto* waiter : waiters_) waiter->wake.notify_one();  // there may be credit
            break;
        case wire::Link::Event::malformed:
            lose_locked("the GPU's worker sent something that is no batch of records");
            break;
        case wire::Link::Event::timeout:
            if (!heard_ && Clock::now() - opened_ > first_word_timeout)
                lose_locked("no word from the GPU's worker: its port may be closed between here and there");
            break;
        case wire::Link::Event::woken:
        case wire::Link::Event::disconnected:  // the worker's end only
            break;
    }
    return event;
}

void ClientSession::drain() {
    UniqueLock lock(receive_mutex_);
    while (!leading_ && !lost() && lead(milliseconds(0)) != wire::Link::Event::timeout) continue;
    hand_over();
}

void ClientSession::poke() {
    UniqueLock lock(receive_mutex_);
    for (auto* waiter : waiters_) waiter->wake.notify_one();
    if (leading_) link_.wake();
}

void ClientSession::expect_news(int change) {
    UniqueLock lock(receive_mutex_);
    news_expected_ += change;
    if (news_expected_ > 0 && !leading_) background_wake_.notify_one();
}

void ClientSession::background() {
    UniqueLock lock(receive_mutex_);
    while (true) {
        bool expected = background_wake_.wait_for(receive_mutex_, idle_look_every, [&]() TNR_REQUIRES(receive_mutex_) {
            return news_expected_ > 0 && !leading_ && !lost();
        });
        if (leading_ || lost()) continue;
        lead(expected ? lead_at_most : milliseconds(0));
        if (!waiters_.empty()) waiters_.front()->wake.notify_one();  // a foreground thread may lead from here
        // Let go of the lock, so that it can.
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
    }
}

void ClientSession::lose_locked(const char* reason) {
    if (lost_.exchange(true)) return;
    keeper_.stop();
    if (leading_) link_.wake();
    if (!ending_) {
        log(LogLevel::error, "the session with the GPU is lost: %s", reason);
        log(LogLevel::error, "hint: restart the program; `tnr status` tells whether the pool is well");
    }
    auto waiting = std::move(pending_);
    pending_.clear();
    for (auto& [number, pending] : waiting) finish(*pending);
    for (auto* waiter : waiters_) waiter->wake.notify_one();
}

// The reply is there, or will never come because the session is lost.
void ClientSession::finish(Pending& pending) {
    if (lost()) pending.result = lost_result;
    pending.done = true;
    if (pending.as_news) --news_expected_;
    if (pending.when_done) pending.when_done(pending);
}

void ClientSession::dispatch(wire::Batch& batch) {
    wire::RecordReader records(batch.records);
    size_t next_bulk = 1;
    for (wire::Record record; !lost() && records.next(record);) {
        const zmq::message_t* bulk = nullptr;
        if (record.flags & wire::record_has_bulk) {
            if (next_bulk >= batch.frames.size()) return lose_locked("a record lacks its data");
            bulk = &batch.frames[next_bulk++];
        }
        if (!dispatch_record(record, bulk)) return lose_locked("the GPU's worker sent a malformed record");
    }
    if (records.malformed()) return lose_locked("the GPU's worker sent malformed records");
    link_.worked_off(batch.header.sequence);
    if (!waiters_.empty())
        for (auto* waiter : waiters_) waiter->wake.notify_one();
}

bool ClientSession::dispatch_record(const wire::Record& record, const zmq::message_t* bulk) {
    wire::Reader in(record.payload);
    // Reads the record and hands it on, if it is one.
    auto take = [&in]<class Told>(Told&& told, auto&& hand_on) {
        if (!wire::read(in, told)) return false;
        hand_on(told);
        return true;
    };
    switch (record.op) {
        case wire::BulkDown::op:
            return take_piece(in, bulk);
        case wire::Completed::op:
            return take(wire::Completed{}, news.completed);
        case wire::Failed::op:
            return take(wire::Failed{}, news.failed);
        case wire::Printed::op:
            return take(wire::Printed{}, [](const wire::Printed& printed) {
                std::fwrite(printed.text.data(), 1, printed.text.size(), stdout);
                std::fflush(stdout);  // the driver writes past stdio's buffer; this keeps the order people see
            });
        case wire::RunHostFunction::op:
            return take(wire::RunHostFunction{}, [&](const auto& told) { news.run_host_function(told.ticket); });
        case wire::UserObjectGone::op:
            --news_expected_;
            return take(wire::UserObjectGone{}, [&](const auto& told) { news.user_object_gone(told.object); });
        case wire::RunGraphFunction::op:
            return take(wire::RunGraphFunction{}, news.run_graph_function);
        case wire::MemoryShared::op:
            return take(wire::MemoryShared{}, [&](const auto&) { news.memory_shared(); });
        case wire::MemoryWanted::op:
            return take(wire::MemoryWanted{}, [&](const auto& told) { news.memory_wanted(told.device, told.bytes); });
        case wire::WorkerGoodbye::op: {
            wire::WorkerGoodbye goodbye;
            if (!wire::read(in, goodbye)) return false;
            lose_locked(std::string(goodbye.reason).c_str());
            return true;
        }
        case wire::Profiled::op:
            return take(wire::Profiled{}, [](const auto& told) { profile_buffer().add_worker(told.records); });
        case wire::KernelsDescribed::op: {
            auto found = pending_.find(in.get<uint64_t>());  // who waits for them reads the rest
            if (found != pending_.end())
                found->second->described.emplace_back(record.payload.begin(), record.payload.end());
            return in.ok();
        }
        default:
            return take_reply(record);
    }
}

bool ClientSession::take_piece(wire::Reader in, const zmq::message_t* bulk) {
    wire::BulkDown piece;
    if (!wire::read(in, piece) || !bulk) return false;
    auto found = pending_.find(piece.call);
    if (found == pending_.end() && piece.call >= wire::graph_function_data)
        news.seen_data(piece.call - wire::graph_function_data, piece.offset, {bulk->data<std::byte>(), bulk->size()});
    if (found == pending_.end()) return true;  // its caller gave up
    return found->second->destination.write(piece.offset, {bulk->data<std::byte>(), bulk->size()});
}

bool ClientSession::take_reply(const wire::Record& record) {
    wire::Reader in(record.payload);
    auto number = in.get<uint64_t>();
    auto result = static_cast<CUresult>(in.get<int32_t>());
    if (!in.ok()) return false;
    auto found = pending_.find(number);
    if (found == pending_.end()) return true;
    auto& pending = *found->second;
    if (record.op != pending.op) return false;
    pending_.erase(found);
    auto rest = in.raw(in.left());
    pending.result = result;
    pending.answer.assign(rest.begin(), rest.end());
    finish(pending);
    return true;
}

}  // namespace tnr::cuda
