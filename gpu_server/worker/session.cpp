// The dispatcher: see session.hpp.
#include "gpu_server/worker/session.hpp"

#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "gpu_server/pool/patience.hpp"
#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {

using namespace std::chrono_literals;

// How long the last message gets to leave the process before it ends.
static constexpr auto goodbye_takes = 50ms;

using Clock = std::chrono::steady_clock;

WorkerSession::WorkerSession(std::unique_ptr<wire::Link> link, std::vector<Device>& devices, SupervisorLink& supervisor)
    : devices(devices),
      supervisor(supervisor),
      handles(devices),
      memory(devices.size()),
      profiler(*link),
      exchange(supervisor),
      outbox(*link),
      watches([this](const Watch& watch, CUresult result) { tell_completed(watch, result); }),
      host_functions([this](uint64_t ticket) { start_host_function(ticket); }, standing),
      understudy(*link, outbox, host_functions, standing),
      link_(std::move(link)),
      generated_(wire::op_max + 1, nullptr) {
    fill_generated_handlers(generated_.data());
    add_context_calls(custom_);
    add_green_context_calls(custom_);
    add_code_calls(custom_);
    add_image_calls(custom_);
    add_launch_calls(custom_);
    add_tensor_map_calls(custom_);
    add_link_calls(custom_);
    add_upload_calls(custom_);
    add_download_calls(custom_);
    add_memory_calls(custom_);
    add_graph_memory_calls(custom_);
    add_exchange_calls(custom_);
    add_multicast_calls(custom_);
    add_array_calls(custom_);
    add_tile_calls(custom_);
    add_texture_calls(custom_);
    add_stream_calls(custom_);
    add_event_calls(custom_);
    add_profile_calls(custom_);
    add_graph_calls(custom_);
    add_user_object_calls(custom_);
    add_graph_function_calls(custom_);
    add_graph_node_calls(custom_);
}

std::string WorkerSession::run() {
    auto why = serve();
    tell_used();
    return why;
}

std::string WorkerSession::serve() {
    prints.start([this](std::string_view text) { outbox.tell(wire::Printed{text}); });
    Presence presence({server::grace_for_clients(), server::knock_of_clients()}, Clock::now());
    while (reason_.empty()) {
        wire::Batch batch;
        auto patience = busy.look_within(profiler.look_within(presence.next_look()), held_back_ == 0);
        auto event = understudy.receive(batch, patience);
        if (event == wire::Link::Event::malformed) return "the client sent something that is no batch";
        react(event, std::move(batch));
        if (supervisor.overtaken()) return leave_to_another();
        look_at(presence, event);
        if (auto* why = presence.hopeless(link_->channel().callers().anybody(), Clock::now())) return why;
    }
    return reason_;
}

void WorkerSession::react(wire::Link::Event event, wire::Batch&& batch) {
    if (event == wire::Link::Event::batch) {
        busy.touched(Clock::now());
        take(std::move(batch));
    }
    if (event != wire::Link::Event::timeout) outbox.credit_arrived();
    work_off();
}

void WorkerSession::look_at(Presence& presence, wire::Link::Event event) {
    auto now = Clock::now();
    if (event == wire::Link::Event::connected) {
        if (presence.connected()) {
            // It came so late that others may have taken this node for dead. What they decided then counts.
            if (!supervisor.may_begin())
                say_goodbye("its GPU node lost touch with the pool before the program reached it; start it again");
            supervisor.connected();
        }
        supervisor.away(false);
    }
    bool left = event == wire::Link::Event::disconnected;
    if (left) supervisor.away(true);
    if (!left && now - looked_at_ < Presence::look_every) return;
    looked_at_ = now;
    tell_used();
    auto silence = link_->channel().callers().silence();
    if (left)
        presence.left(silence, now, link_->channel().callers().closed_for_good());
    else
        presence.look(silence, now);
}

void WorkerSession::tell_used() {
    supervisor.used(link_->bytes_received(), link_->bytes_sent(), busy.milliseconds());
}

void WorkerSession::say_goodbye(const std::string& why) {
    tell_used();
    outbox.tell(wire::WorkerGoodbye{why});
    std::this_thread::sleep_for(goodbye_takes);
    supervisor.ended(why);
    _exit(0);
}

void WorkerSession::take(wire::Batch&& batch) {
    auto hold = std::make_shared<BatchHold>(*link_, std::move(batch));
    hear_ends(host_functions, hold->batch);
    auto records = hold->batch.records;
    backlog_.push_back({std::move(hold), wire::RecordReader(records)});
}

bool WorkerSession::Progress::next(wire::Record& record, std::span<const std::byte>& bulk) {
    if (!reader.next(record)) return false;
    bulk = {};
    if (record.flags & wire::record_has_bulk) {
        auto& frame = hold->batch.frames[next_bulk++];
        bulk = {frame.data<std::byte>(), frame.size()};
    }
    return true;
}

// held_back_ may be cleared at any moment, also within a batch: so it is read once per record, and nothing depends on
// two readings being the same.
void WorkerSession::work_off() {
    while (!backlog_.empty() && held_back_ == 0 && reason_.empty()) {
        auto& now = backlog_.front();
        wire::Record record;
        std::span<const std::byte> bulk;
        if (!now.next(record, bulk)) {
            backlog_.pop_front();
            continue;
        }
        if (now.done_ahead.erase(record.payload.data()) != 0) continue;
        // This process, or all of its node, may have been stopped for a while between any two records.
        if (supervisor.overtaken()) return;
        understudy.moves_on();
        dispatch(record, bulk, now.hold);
    }
    if (held_back_ != 0 && host_functions.any_running()) let_shared_copies_ahead();
}

void WorkerSession::let_shared_copies_ahead() {
    if (mapping_) return;
    const uint64_t current = current_number_;
    uint64_t context = current;
    shared_copies.begin();
    for (auto& batch : backlog_) {
        auto rest = Progress{batch.hold, batch.reader, batch.next_bulk};
        wire::Record record;
        std::span<const std::byte> bulk;
        while (rest.next(record, bulk)) {
            if (record.op == wire::SetContext::op) context = wire::Reader(record.payload).get<uint64_t>();
            if (!shared_copies.may_go(record) || !batch.done_ahead.insert(record.payload.data()).second) continue;
            if (current_number_ != context) set_current(context);
            dispatch(record, bulk, batch.hold);
        }
    }
    if (current_number_ != current) set_current(current);
}

// A client that took us for dead meanwhile knocks again: the link tells it then. From here on nothing is replayed.
std::string WorkerSession::leave_to_another() {
    std::string why =
        "its GPU node was out of touch with the pool, and the GPU has been given to another; start the program again";
    tell_used();
    outbox.tell(wire::WorkerGoodbye{why});
    for (auto until = Clock::now() + wire::knocks_within; link_->kept() > 0 && Clock::now() < until;) {
        wire::Batch unheard;
        (void)link_->receive(unheard, goodbye_takes);
    }
    return why;
}

Answer WorkerSession::run_aside(const Call& call, std::function<CUresult()> driver_call) {
    return run_aside(call, [driver_call = std::move(driver_call)](wire::Bytes&) { return driver_call(); });
}

Answer WorkerSession::run_aside(const Call& call, std::function<CUresult(wire::Bytes&)> driver_call) {
    ++held_back_;
    mapping_ = call.op == wire::MapMemory<>::op;
    waiting.run(
        [this, context = handles.current, op = call.op, number = call.number, driver_call = std::move(driver_call)] {
            driver().cuCtxSetCurrent(context);
            wire::Bytes outputs;
            auto result = driver_call(outputs);
            outbox.answer(op, number, result, outputs);
            --held_back_;
            link_->wake();
        });
    return std::nullopt;
}

Answer WorkerSession::end_context(const Call& call, uint64_t number, std::function<CUresult()> driver_call) {
    auto* found = handles.contexts.find(number);
    auto context = found ? *found : nullptr;
    handles.contexts.remove(number);
    ended_streams.forget(number);
    profiler.context_ends(context);
    staging.context_gone();
    if (current_number_ == number) set_current(0);
    return run_aside(call, [this, context, driver_call = std::move(driver_call)] {
        context_uses.wait_until_unused(context);
        return driver_call();
    });
}

Answer WorkerSession::handle(Call& call) {
    if (auto custom = custom_.find(call.op)) return custom(*this, call);
    auto generated = call.op <= wire::op_max ? generated_[call.op] : nullptr;
    if (!generated) return CUDA_ERROR_NOT_SUPPORTED;
    wire::Writer out(call.outputs);
    return generated(call.in, out);
}

void WorkerSession::dispatch(const wire::Record& record, std::span<const std::byte> bulk,
                             const std::shared_ptr<BatchHold>& hold) {
    Profiler::Dispatch profiled(profiler, record.op);
    Call call{record.op, 0,    Decoder(record.payload, handles, wire::call_is(record.op, wire::call_destroys)),
              bulk,      hold, {}};
    if (record.flags & wire::record_wants_reply) call.number = call.in.get<uint64_t>();
    auto result = handle(call);
    if (!result) return;
    const bool unnoticed = *result != CUDA_SUCCESS && call.number == 0;
    if (unnoticed && handles.graphs.spoil(call.in.named_graph(), *result)) return;  // told when something is made of it
    outbox.answer(call.op, call.number, *result, call.outputs);
}

void WorkerSession::set_current(uint64_t number) {
    auto* context = handles.contexts.find(number);
    current_number_ = number;
    handles.current = context ? *context : nullptr;
    driver().cuCtxSetCurrent(handles.current);
}

void WorkerSession::after(CUstream stream, uint64_t number, std::function<void(CUresult)> then) {
    SharedEvent reached;
    auto result = mark(reached, stream);
    if (result == CUDA_SUCCESS)
        after(std::move(reached), number, std::move(then));
    else
        then(result);
}

void WorkerSession::after(SharedEvent reached, uint64_t stream_number, std::function<void(CUresult)> then) {
    queues.post(queue_key(stream_number), [context = handles.current, use = context_uses.begin(handles.current),
                                           reached = std::move(reached), then = std::move(then)] {
        driver().cuCtxSetCurrent(context);
        then(driver().cuEventSynchronize(reached.get()));
    });
}

// ---- calls that wait

// The call is the last that has arrived, and nobody else waits.
bool WorkerSession::may_dawdle() {
    return backlog_.size() == 1 && backlog_.front().reader.at_end() && waiting.idle();
}

void WorkerSession::finish_wait(uint64_t before) {
    prints.flush();
    downloads.wait_until_gone(before);
}

Answer WorkerSession::answer_wait(Call& call, CUresult result, uint64_t before) {
    if (!downloads.any_leaving(before)) {
        prints.flush();
        return result;
    }
    // What the answer carries may be a copy's data, which later waits must not overtake either.
    auto copy = downloads.begin([] { return true; });
    waiting.run([this, before, copy, result, op = call.op, number = call.number, outputs = std::move(call.outputs)] {
        finish_wait(before);
        outbox.answer(op, number, result, outputs);
        downloads.end(copy);
    });
    return std::nullopt;
}

Answer WorkerSession::wait_aside(const Call& call, uint64_t before, std::function<CUresult()> wait) {
    waiting.run([this, before, context = handles.current, use = context_uses.begin(handles.current), op = call.op,
                 number = call.number, wait = std::move(wait)] {
        driver().cuCtxSetCurrent(context);
        auto result = wait();
        finish_wait(before);
        outbox.answer(op, number, result);
    });
    return std::nullopt;
}

void WorkerSession::watch(wire::Completable what, uint64_t number, uint64_t position, SharedEvent event) {
    watches.add({what, number, position, std::move(event), handles.current, context_uses.begin(handles.current)});
}

void WorkerSession::tell_completed(const Watch& watch, CUresult result) {
    finish_wait(downloads.next());
    outbox.tell(wire::Completed{watch.what, watch.number, watch.position, result});
}

void WorkerSession::start_host_function(uint64_t ticket) {
    waiting.run([this, ticket, before = downloads.next()] {
        finish_wait(before);
        outbox.tell(wire::RunHostFunction{ticket});
    });
}

}  // namespace tnr::worker
