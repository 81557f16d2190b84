// One client process's session: takes its records in order and replays them on the driver.
//
// One dispatcher thread decodes and calls the driver; it never waits for the GPU. What has to wait goes to other
// threads (tasks.hpp), which answer when they are done. Everything here belongs to the dispatcher unless it says
// otherwise.
#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gpu_client/protocol/custom_calls.hpp"
#include "gpu_client/protocol/link.hpp"
#include "gpu_server/worker/decoder.hpp"
#include "gpu_server/worker/device.hpp"
#include "gpu_server/worker/outbox.hpp"
#include "gpu_server/worker/presence.hpp"
#include "gpu_server/worker/printing.hpp"
#include "gpu_server/worker/staging.hpp"
#include "gpu_server/worker/supervisor_link.hpp"
#include "gpu_server/worker/tasks.hpp"

namespace tnr::worker {

// A received batch, kept until the last record that needs its bytes is done; only then does the client get its credit
// back.
class BatchHold {
public:
    BatchHold(wire::Link& link, wire::Batch&& batch) : batch(std::move(batch)), link_(link) {}
    ~BatchHold() { link_.worked_off(batch.header.sequence); }

    wire::Batch batch;

private:
    wire::Link& link_;
};

// One record on its way through a handler.
struct Call {
    uint16_t op = 0;
    uint64_t number = 0;  // 0: nobody waits
    Decoder in;
    std::span<const std::byte> bulk;  // empty when the record has none
    std::shared_ptr<BatchHold> hold;  // keep a copy while `bulk` or the payload is needed after the handler returns
    wire::Bytes outputs;              // what a handler that answers at once has to say
};

// Empty: the handler answers later (through Session::outbox), or has nothing to answer.
using Answer = std::optional<CUresult>;
class Session;
using Handler = Answer (*)(Session& session, Call& call);

class Session {
public:
    Session(std::unique_ptr<wire::Link> link, std::vector<Device>& devices, SupervisorLink& supervisor);

    // Until the client has gone for good; says how it went. Call it once.
    std::string run();

    // For handlers.
    std::vector<Device>& devices;
    SupervisorLink& supervisor;
    Handles handles;
    Outbox outbox;                                     // any thread
    Staging staging;                                   // any thread
    WaitingThreads waiting;                            // any thread
    StreamQueues queues;                               // any thread
    PrintCapture prints;                               // any thread
    std::unordered_map<uint64_t, wire::Bytes> images;  // code on its way here, by library number

    CUcontext current() const { return current_; }
    uint64_t current_number() const { return current_number_; }
    void set_current(uint64_t number);

    // For driver calls that wait for the GPU inside the driver (unmapping, unloading, destroying): runs `call` on
    // another thread, with the same context current, and holds all later records back until it has returned. Only word
    // that a host function is done still gets through: it may be what the GPU, and so the driver, is waiting for.
    Answer run_aside(const Call& call, std::function<CUresult()> driver_call);

    // The stream that a record names; an unknown number makes `in` refuse the record.
    CUstream stream(uint64_t number, Decoder& in);
    // Streams of different contexts share the numbers 0 and 1.
    uint64_t queue_key(uint64_t stream) const { return stream > 1 ? stream : ~(current_number_ * 2 + stream); }
    // Nothing queued in this stream, on the GPU or for it here.
    bool idle(CUstream stream, uint64_t number);

    // Runs `then` when all work that `stream` holds now is done, in the stream's own order. It runs on another thread,
    // with the context current. A failure to record the point runs it at once, with the error.
    void after(CUstream stream, uint64_t number, std::function<void(CUresult)> then);

    // Before the stream is destroyed: what it still holds goes on, and a wait for its context waits for that, too.
    void stream_ends(const Stream& stream);
    bool ended_streams_idle();  // of the current context
    // Before the context ends: what would touch it later is forgotten.
    void context_ends(uint64_t number);

    // Copies to the client that a later wait must not overtake, in whatever stream it waits. Any thread.
    struct Download {
        uint64_t order;
        CUevent done_on_gpu;
    };
    uint64_t begin_download(CUevent done_on_gpu);
    void end_download(uint64_t order);
    uint64_t downloads_so_far();
    bool downloads_pending();
    // A wait has come back from the GPU: before the client hears of it, what was printed and what was copied must be
    // there. May wait for the client's credit, so the dispatcher calls it only while no download is pending.
    void settle(uint64_t downloads_before);

    // Tells the client when an event has completed. Any thread.
    void watch(uint8_t kind, uint64_t number, uint64_t generation, CUevent event, bool own_event);
    void forget_event(CUevent event);

    // The client's host functions: the driver's thread waits until the client has run ticket `ticket`.
    void run_host_function(uint64_t ticket);
    void host_function_done(uint64_t ticket);
    bool host_functions_running();

    void end(std::string reason) { reason_ = std::move(reason); }
    // The operator wants the GPU: tells the client why its calls will fail from now on, and ends the process. Any
    // thread.
    [[noreturn]] void say_goodbye(const std::string& why);

private:
    // A batch that is being worked off, and how far.
    struct Progress {
        std::shared_ptr<BatchHold> hold;
        wire::RecordReader reader;
        size_t next_bulk = 1;
    };
    void react(wire::Link::Event event, wire::Batch&& batch);
    void look_at(Presence& presence, wire::Link::Event event);
    void take(wire::Batch&& batch);
    void work_off();
    void answer(uint16_t op, uint64_t number, CUresult result, const wire::Bytes& outputs = {});
    void dispatch(const wire::Record& record, std::span<const std::byte> bulk, const std::shared_ptr<BatchHold>& hold);
    Answer handle(Call& call);
    void poll_watches();

    std::unique_ptr<wire::Link> link_;
    std::vector<Handler> custom_;
    std::vector<GeneratedHandler> generated_;
    CUcontext current_ = nullptr;
    uint64_t current_number_ = 0;
    std::string reason_;                                 // non-empty: the session is over
    std::chrono::steady_clock::time_point looked_at_{};  // for silence of the client
    std::deque<Progress> backlog_;
    struct Ended {
        uint64_t context;
        CUevent last;  // recorded behind all its work
    };
    std::list<Ended> ended_streams_;
    std::atomic<bool> held_back_{false};  // by run_aside()

    std::mutex downloads_mutex_;
    std::condition_variable download_ended_;
    std::list<Download> downloads_;
    uint64_t next_download_ = 1;

    struct Watch {
        uint8_t kind;
        uint64_t number, generation;
        CUevent event;
        bool own_event;
        CUcontext context;
    };
    std::mutex watches_mutex_;
    std::condition_variable watch_added_;
    std::list<Watch> watches_;
    bool watcher_runs_ = false;

    std::mutex host_functions_mutex_;
    std::condition_variable host_function_done_;
    std::vector<uint64_t> running_host_functions_;
};

// The dispatcher's answer `result` to a call that saw the GPU's work done: at once, or, while copies are still on their
// way to the client, from another thread when they have arrived.
Answer settled(Session& session, Call& call, CUresult result);

// The part of the 2D copy record that goes to the client.
Answer download_rows(Session& session, Call& call, const wire::Copy2DRecord& record);

// calls_*.cpp: each enters its handlers into a table indexed by op.
void add_context_calls(std::vector<Handler>& table);
void add_code_calls(std::vector<Handler>& table);
void add_launch_calls(std::vector<Handler>& table);
void add_link_calls(std::vector<Handler>& table);
void add_upload_calls(std::vector<Handler>& table);
void add_download_calls(std::vector<Handler>& table);
void add_memory_calls(std::vector<Handler>& table);
void add_stream_calls(std::vector<Handler>& table);
void add_event_calls(std::vector<Handler>& table);

}  // namespace tnr::worker
