// See understudy.hpp.
#include "gpu_server/worker/understudy.hpp"

#include <thread>

#include "gpu_client/protocol/record.hpp"
#include "gpu_client/protocol/session_records.hpp"

namespace tnr::worker {

using namespace std::chrono_literals;

// In one record for so long: it is more than the driver takes for a call that waits for nothing.
static constexpr auto stuck_after = 2ms;
static constexpr auto looks_up_every = 100ms;

void hear_ends(HostFunctions& functions, const wire::Batch& batch) {
    if (!functions.any_running()) return;  // only a running one can be done
    wire::RecordReader reader(batch.records);
    for (wire::Record record; reader.next(record);) {
        wire::HostFunctionDone done;
        wire::Reader in(record.payload);
        if (record.op == done.op && wire::read(in, done)) functions.done(done.ticket);
    }
}

void Understudy::stream_will_stand() {
    std::call_once(started_, [this] {
        may_step_in_ = true;
        std::thread([this] { watch(); }).detach();
    });
}

wire::Link::Event Understudy::receive(wire::Batch& batch, std::chrono::milliseconds timeout) {
    take_back();
    auto event = wire::Link::Event::timeout;
    if (heard_.empty()) {
        event = link_.receive(batch, timeout);
    } else {
        event = heard_.front().event;
        batch = std::move(heard_.front().batch);
        heard_.pop_front();
    }
    receiver_.store(Receiver::nobody, std::memory_order_release);
    receiver_.notify_all();  // costs nothing while nobody waits in watch()
    return event;
}

void Understudy::take_back() {
    for (auto expected = Receiver::nobody;
         !receiver_.compare_exchange_weak(expected, Receiver::dispatcher, std::memory_order_acquire);
         expected = Receiver::nobody) {
        if (expected != Receiver::understudy) continue;
        wanted_back_ = true;
        link_.wake();
        receiver_.wait(Receiver::understudy);
    }
    wanted_back_ = false;
}

void Understudy::watch() {
    while (true) {
        standing_.wait_for_any();
        receiver_.wait(Receiver::dispatcher);  // one that waits for records is not stuck
        const auto turn = turn_.load(std::memory_order_relaxed);
        std::this_thread::sleep_for(stuck_after);
        if (turn_.load(std::memory_order_relaxed) == turn) step_in();
    }
}

void Understudy::step_in() {
    auto expected = Receiver::nobody;  // it may wait for records by now
    if (!receiver_.compare_exchange_strong(expected, Receiver::understudy, std::memory_order_acquire)) return;
    while (!wanted_back_ && standing_.any()) {
        wire::Batch batch;
        const auto event = link_.receive(batch, looks_up_every);
        if (event == wire::Link::Event::timeout) continue;
        if (event == wire::Link::Event::batch) hear_ends(functions_, batch);
        outbox_.credit_arrived();
        heard_.push_back({event, std::move(batch)});
    }
    receiver_.store(Receiver::nobody, std::memory_order_release);
    receiver_.notify_all();
}

}  // namespace tnr::worker
