// The dispatcher: see session.hpp.
#include "gpu_server/worker/session.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "cuda_calls.hpp"
#include "gpu_client/protocol/custom_calls.hpp"
#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {

using namespace std::chrono_literals;

// For the last message to leave the process before it ends.
static constexpr auto goodbye_takes = 50ms;

using Clock = std::chrono::steady_clock;

static std::chrono::milliseconds from_environment(const char* name, std::chrono::milliseconds otherwise) {
    const char* wanted = std::getenv(name);
    return wanted ? std::chrono::milliseconds(std::strtoul(wanted, nullptr, 10)) : otherwise;
}

static Presence::Patience patience_from_environment() {
    return {from_environment("TNR_WORKER_GRACE_MS", wire::default_grace),
            from_environment("TNR_WORKER_KNOCK_MS", wire::knocks_within)};
}

static std::string name_of_op(uint16_t op) {
    for (auto& call : wire::calls)
        if (call.op == op) return call.name;
    char text[32];
    std::snprintf(text, sizeof text, "record 0x%04x", op);
    return text;
}

Session::Session(std::unique_ptr<wire::Link> link, std::vector<Device>& devices, SupervisorLink& supervisor)
    : devices(devices),
      supervisor(supervisor),
      outbox(*link),
      link_(std::move(link)),
      custom_(0x10000, nullptr),
      generated_(wire::op_max + 1, nullptr) {
    fill_generated_handlers(generated_.data());
    add_context_calls(custom_);
    add_code_calls(custom_);
    add_launch_calls(custom_);
    add_link_calls(custom_);
    add_upload_calls(custom_);
    add_download_calls(custom_);
    add_memory_calls(custom_);
    add_stream_calls(custom_);
    add_event_calls(custom_);
}

std::string Session::run() {
    prints.start([this](std::string_view text) {
        wire::Bytes payload;
        wire::Writer(payload).put_string(text);
        outbox.tell(wire::op_printed, payload);
    });
    Presence presence(patience_from_environment(), Clock::now());
    while (reason_.empty()) {
        wire::Batch batch;
        auto event = link_->receive(batch, presence.next_look());
        if (event == wire::Link::Event::malformed) return "the client sent something that is no batch";
        react(event, std::move(batch));
        look_at(presence, event);
        if (auto* why = presence.hopeless(link_->channel().callers().anybody(), Clock::now())) return why;
    }
    return reason_;
}

void Session::react(wire::Link::Event event, wire::Batch&& batch) {
    if (event == wire::Link::Event::batch) take(std::move(batch));
    if (event != wire::Link::Event::timeout) outbox.credit_arrived();
    work_off();
}

void Session::look_at(Presence& presence, wire::Link::Event event) {
    auto now = Clock::now();
    if (event == wire::Link::Event::connected) presence.connected();
    bool left = event == wire::Link::Event::disconnected;
    if (!left && now - looked_at_ < Presence::look_every) return;
    looked_at_ = now;
    auto silence = link_->channel().callers().silence();
    if (left)
        presence.left(silence, now);
    else
        presence.look(silence, now);
}

void Session::say_goodbye(const std::string& why) {
    wire::Bytes payload;
    wire::Writer(payload).put_string(why);
    outbox.tell(wire::op_goodbye_worker, payload);
    std::this_thread::sleep_for(goodbye_takes);
    supervisor.ended(why);
    _exit(0);
}

void Session::take(wire::Batch&& batch) {
    auto hold = std::make_shared<BatchHold>(*link_, std::move(batch));
    // A driver call may already wait for a host function, or begin to before its turn comes here: the news that one has
    // ended never queues. Only one that runs can be told of.
    if (host_functions_running()) {
        wire::RecordReader reader(hold->batch.records);
        for (wire::Record record; reader.next(record);)
            if (record.op == wire::op_host_function_done)
                host_function_done(wire::Reader(record.payload).get<uint64_t>());
    }
    auto records = hold->batch.records;
    backlog_.push_back({std::move(hold), wire::RecordReader(records)});
}

// What holds records back may end at any moment, which is not the end of the batch: so it is asked once per record, and
// nothing is decided by the difference between two answers.
void Session::work_off() {
    while (!backlog_.empty() && !held_back_ && reason_.empty()) {
        auto& now = backlog_.front();
        wire::Record record;
        if (!now.reader.next(record)) {
            backlog_.pop_front();
            continue;
        }
        std::span<const std::byte> bulk;
        if (record.flags & wire::record_has_bulk) {
            auto& frame = now.hold->batch.frames[now.next_bulk++];
            bulk = {frame.data<std::byte>(), frame.size()};
        }
        dispatch(record, bulk, now.hold);
    }
}

Answer Session::run_aside(const Call& call, std::function<CUresult()> driver_call) {
    held_back_ = true;
    waiting.run([this, context = current_, op = call.op, number = call.number, driver_call = std::move(driver_call)] {
        driver().cuCtxSetCurrent(context);
        answer(op, number, driver_call());
        held_back_ = false;
        link_->wake();
    });
    return std::nullopt;
}

void Session::answer(uint16_t op, uint64_t number, CUresult result, const wire::Bytes& outputs) {
    if (number != 0)
        outbox.reply(op, number, result, outputs);
    else if (result != CUDA_SUCCESS)
        outbox.failed(op, result, name_of_op(op) + ": " + name_of(result));
}

Answer Session::handle(Call& call) {
    if (auto custom = custom_[call.op]) return custom(*this, call);
    auto generated = call.op <= wire::op_max ? generated_[call.op] : nullptr;
    if (!generated) return CUDA_ERROR_NOT_SUPPORTED;
    wire::Writer out(call.outputs);
    return generated(call.in, out);
}

void Session::dispatch(const wire::Record& record, std::span<const std::byte> bulk,
                       const std::shared_ptr<BatchHold>& hold) {
    Call call{record.op, 0, Decoder(record.payload, handles, current_), bulk, hold, {}};
    if (record.flags & wire::record_wants_reply) call.number = call.in.get<uint64_t>();
    if (auto result = handle(call)) answer(call.op, call.number, *result, call.outputs);
}

void Session::set_current(uint64_t number) {
    auto* context = handles.contexts.find(number);
    current_number_ = number;
    current_ = context ? *context : nullptr;
    driver().cuCtxSetCurrent(current_);
}

CUstream Session::stream(uint64_t number, Decoder& in) {
    if (number == 0) return nullptr;
    if (number == 1) return CU_STREAM_LEGACY;
    auto* stream = handles.streams.find(number);
    if (!stream) in.refuse(CUDA_ERROR_INVALID_HANDLE);
    return stream ? stream->handle : nullptr;
}

bool Session::idle(CUstream stream, uint64_t number) {
    return !downloads_pending() && queues.idle(queue_key(number)) && driver().cuStreamQuery(stream) == CUDA_SUCCESS;
}

void Session::after(CUstream stream, uint64_t number, std::function<void(CUresult)> then) {
    CUevent reached = nullptr;
    auto result = driver().cuEventCreate(&reached, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = driver().cuEventRecord(reached, stream);
    queues.post(queue_key(number), [context = current_, reached, result, then = std::move(then)] {
        driver().cuCtxSetCurrent(context);
        then(result == CUDA_SUCCESS ? driver().cuEventSynchronize(reached) : result);
        if (reached) driver().cuEventDestroy_v2(reached);
    });
}

void Session::stream_ends(const Stream& stream) {
    Ended ended{stream.context, nullptr};
    auto* context = handles.contexts.find(stream.context);
    if (!context || driver().cuStreamQuery(stream.handle) != CUDA_ERROR_NOT_READY) return;
    driver().cuCtxSetCurrent(*context);
    if (driver().cuEventCreate(&ended.last, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
        driver().cuEventRecord(ended.last, stream.handle);
        ended_streams_.push_back(ended);
    }
    driver().cuCtxSetCurrent(current_);
}

bool Session::ended_streams_idle() {
    ended_streams_.remove_if([&](const Ended& ended) {
        if (ended.context != current_number_ || driver().cuEventQuery(ended.last) == CUDA_ERROR_NOT_READY) return false;
        driver().cuEventDestroy_v2(ended.last);
        return true;
    });
    return std::none_of(ended_streams_.begin(), ended_streams_.end(),
                        [&](const Ended& ended) { return ended.context == current_number_; });
}

void Session::context_ends(uint64_t number) {
    ended_streams_.remove_if([&](const Ended& ended) { return ended.context == number; });
    auto* context = handles.contexts.find(number);
    if (!context) return;
    std::lock_guard lock(watches_mutex_);
    watches_.remove_if([&](const Watch& watch) { return watch.context == *context; });
}

uint64_t Session::begin_download(CUevent done_on_gpu) {
    std::lock_guard lock(downloads_mutex_);
    downloads_.push_back({next_download_, done_on_gpu});
    return next_download_++;
}

void Session::end_download(uint64_t order) {
    std::lock_guard lock(downloads_mutex_);
    downloads_.remove_if([&](const Download& download) { return download.order == order; });
    download_ended_.notify_all();
}

uint64_t Session::downloads_so_far() {
    std::lock_guard lock(downloads_mutex_);
    return next_download_;
}

bool Session::downloads_pending() {
    std::lock_guard lock(downloads_mutex_);
    return !downloads_.empty();
}

void Session::settle(uint64_t downloads_before) {
    prints.drain();
    std::unique_lock lock(downloads_mutex_);
    // A copy that is still running on the GPU was not what the client waited for.
    auto must_wait = [&] {
        for (auto& download : downloads_)
            if (download.order < downloads_before && driver().cuEventQuery(download.done_on_gpu) == CUDA_SUCCESS)
                return true;
        return false;
    };
    while (must_wait()) download_ended_.wait(lock);
}

Answer settled(Session& session, Call& call, CUresult result) {
    auto downloads = session.downloads_so_far();
    if (!session.downloads_pending()) {
        session.settle(downloads);
        return result;
    }
    session.waiting.run([&session, downloads, result, op = call.op, number = call.number] {
        session.settle(downloads);
        session.outbox.reply(op, number, result);
    });
    return std::nullopt;
}

void Session::run_host_function(uint64_t ticket) {
    {
        std::lock_guard lock(host_functions_mutex_);
        running_host_functions_.push_back(ticket);
    }
    // Not on this thread: the driver forbids its functions in here.
    waiting.run([this, ticket, downloads = downloads_so_far()] {
        wire::Bytes payload;
        wire::Writer(payload).put(ticket);
        settle(downloads);
        outbox.tell(wire::op_run_host_function, payload);
    });
    std::unique_lock lock(host_functions_mutex_);
    host_function_done_.wait(lock, [&] {
        return std::find(running_host_functions_.begin(), running_host_functions_.end(), ticket) ==
               running_host_functions_.end();
    });
}

bool Session::host_functions_running() {
    std::lock_guard lock(host_functions_mutex_);
    return !running_host_functions_.empty();
}

void Session::host_function_done(uint64_t ticket) {
    std::lock_guard lock(host_functions_mutex_);
    std::erase(running_host_functions_, ticket);
    host_function_done_.notify_all();
}

void Session::watch(uint8_t kind, uint64_t number, uint64_t generation, CUevent event, bool own_event) {
    std::lock_guard lock(watches_mutex_);
    watches_.push_back({kind, number, generation, event, own_event, current_});
    if (!std::exchange(watcher_runs_, true)) std::thread([this] { poll_watches(); }).detach();
    watch_added_.notify_one();
}

void Session::forget_event(CUevent event) {
    std::lock_guard lock(watches_mutex_);
    watches_.remove_if([&](const Watch& watch) { return watch.event == event; });
}

// A driver has no way to say that an event has completed, short of a thread per event; so one thread asks, and only
// while the client has asked, too.
void Session::poll_watches() {
    std::unique_lock lock(watches_mutex_);
    while (true) {
        watch_added_.wait(lock, [&] { return !watches_.empty(); });
        for (auto watch = watches_.begin(); watch != watches_.end();) {
            driver().cuCtxSetCurrent(watch->context);
            auto result = driver().cuEventQuery(watch->event);
            if (result == CUDA_ERROR_NOT_READY) {
                ++watch;
                continue;
            }
            wire::Bytes payload;
            wire::Writer writer(payload);
            writer.put(watch->kind);
            writer.put(watch->number);
            writer.put(watch->generation);
            writer.put(static_cast<int32_t>(result));
            settle(downloads_so_far());
            outbox.tell(wire::op_completed, payload);
            if (watch->own_event) driver().cuEventDestroy_v2(watch->event);
            watch = watches_.erase(watch);
        }
        lock.unlock();
        std::this_thread::sleep_for(20us);
        lock.lock();
    }
}

}  // namespace tnr::worker
