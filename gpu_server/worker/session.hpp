// One client process's session: takes its records in order and replays them on the driver.
//
// One dispatcher thread decodes and calls the driver; it never waits for the GPU. What has to wait goes to other
// threads (tasks.hpp, watches.hpp), which answer when they are done. Everything here belongs to the dispatcher unless it
// says otherwise. README.md has the threads and the order of locks.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "gpu_client/protocol/array_records.hpp"
#include "gpu_client/protocol/link.hpp"
#include "gpu_client/protocol/session_records.hpp"
#include "gpu_server/worker/busy_time.hpp"
#include "gpu_server/worker/code_memory.hpp"
#include "gpu_server/worker/context_uses.hpp"
#include "gpu_server/worker/decoder.hpp"
#include "gpu_server/worker/device.hpp"
#include "gpu_server/worker/downloads.hpp"
#include "gpu_server/worker/ended_streams.hpp"
#include "gpu_server/worker/exchange.hpp"
#include "gpu_server/worker/gates.hpp"
#include "gpu_server/worker/graph_memory.hpp"
#include "gpu_server/worker/host_functions.hpp"
#include "gpu_server/worker/images.hpp"
#include "gpu_server/worker/limit_memory.hpp"
#include "gpu_server/worker/memory_book.hpp"
#include "gpu_server/worker/multicast.hpp"
#include "gpu_server/worker/outbox.hpp"
#include "gpu_server/worker/presence.hpp"
#include "gpu_server/worker/printing.hpp"
#include "gpu_server/worker/profiler.hpp"
#include "gpu_server/worker/shared_copies.hpp"
#include "gpu_server/worker/shared_events.hpp"
#include "gpu_server/worker/staging.hpp"
#include "gpu_server/worker/standing.hpp"
#include "gpu_server/worker/supervisor_link.hpp"
#include "gpu_server/worker/tasks.hpp"
#include "gpu_server/worker/tiled_arrays.hpp"
#include "gpu_server/worker/understudy.hpp"
#include "gpu_server/worker/watches.hpp"

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
    wire::Bytes outputs;              // of a handler that answers at once

    template <class Reply>
    void reply(const Reply& reply) {
        outputs = wire::payload_of(reply);
    }
};

// Empty: the handler answers later, or has nothing to answer.
using Answer = std::optional<CUresult>;
class WorkerSession;

// Handlers by op.
class HandlerTable {
public:
    using Handler = Answer (*)(WorkerSession& session, Call& call);

    // Enters `handler` under the op of the record that it takes: Answer handler(WorkerSession&, Call&, const Record&).
    // It sees only records that are whole and whose numbers all stand for something.
    template <auto handler>
    void add() {
        enter<handler>(handler);
    }
    // Null: no handler.
    Handler find(uint16_t op) const { return table_[op]; }

private:
    template <auto handler, class Record>
    void enter(Answer (*)(WorkerSession&, Call&, const Record&)) {
        table_[Record::op] = [](WorkerSession& session, Call& call) -> Answer {
            Record record;
            if (auto status = call.in.read(record); status != CUDA_SUCCESS) return status;
            return handler(session, call, record);
        };
    }
    std::vector<Handler> table_ = std::vector<Handler>(0x10000, nullptr);
};

class WorkerSession {
public:
    WorkerSession(std::unique_ptr<wire::Link> link, std::vector<Device>& devices, SupervisorLink& supervisor);

    // Serves the client until it has gone for good, and returns why it ended. Call it once.
    std::string run();

    // For handlers.
    std::vector<Device>& devices;
    SupervisorLink& supervisor;
    Handles handles;
    BusyTime busy{handles};
    EndedStreams ended_streams;
    MemoryBook memory;
    UnmappedTiles unmapped_tiles;
    GraphMemory graph_memory{memory.accounts, devices};
    LimitMemory limit_memory{supervisor};
    CodeMemory code_memory{supervisor, devices.size()};
    NumberedHandles<std::shared_ptr<InterprocessEvent>> interprocess_events;  // by the number of the event
    IncomingImages images;
    SharedCopies shared_copies;
    Profiler profiler;  // the dispatcher's, except batch()
    // Any thread.
    Exchange exchange;
    MulticastPlaces multicast_places;
    Outbox outbox;
    Staging staging;
    WaitingThreads waiting{waiting_threads_max};
    StreamQueues queues;
    PrintCapture prints;
    Downloads downloads;
    Watches watches;
    Standing standing;
    HostFunctions host_functions;
    Gates gates{standing};
    Understudy understudy;  // its link's receiver
    SeenByFunctions seen_by_functions;
    ContextUses context_uses;

    CUcontext current() const { return handles.current; }
    uint64_t current_number() const { return current_number_; }
    void set_current(uint64_t number);

    // For driver calls that wait for the GPU inside the driver (unmapping, unloading, destroying): runs `driver_call`
    // on another thread, with the same context current, and holds all later records back until it has returned. Only
    // word that a host function is done still gets through, and what that function needs of memory that the GPU has
    // (shared_copies.hpp): they may be what the GPU, and so the driver, is waiting for.
    Answer run_aside(const Call& call, std::function<CUresult()> driver_call);
    // Likewise for the call that destroys or resets context `number`. It is made once no thread of ours uses the
    // context.
    Answer end_context(const Call& call, uint64_t number, std::function<CUresult()> driver_call);
    // run_aside() for a call with outputs. It may use what belongs to the dispatcher.
    Answer run_aside(const Call& call, std::function<CUresult(wire::Bytes& outputs)> driver_call);

    // Streams of different contexts share the numbers 0 and 1.
    uint64_t queue_key(uint64_t stream) const { return stream > 1 ? stream : ~(current_number_ * 2 + stream); }

    // Runs `then` when all work that `stream` holds now is done, in the stream's own order. It runs on another thread,
    // with the context current. A failure to record the point runs it at once, with the error.
    void after(CUstream stream, uint64_t number, std::function<void(CUresult)> then);
    // The same for an event that is recorded already.
    void after(SharedEvent reached, uint64_t stream_number, std::function<void(CUresult)> then);

    // ---- Calls that wait for the GPU. Before the client hears that a wait is over, it receives what was printed and
    // what was copied before. `before`: what downloads.next() returned when the call came.

    // Repeats `query` while it returns CUDA_ERROR_NOT_READY, for `brief` at most and only if that holds up no other
    // call of the client. Most waits that are worth a message end that soon, and another thread would cost two
    // wake-ups.
    template <class Query>
    CUresult query_briefly(Query query);
    // Answers a call that has seen the GPU's work done, with `call.outputs`: at once, or from another thread while
    // copies are still leaving.
    Answer answer_wait(Call& call, CUresult result, uint64_t before);
    // Calls `wait`, which blocks, on another thread with the same context current, and answers with what it returns.
    Answer wait_aside(const Call& call, uint64_t before, std::function<CUresult()> wait);

    // Returns when the client has received what was printed and copied before. Any thread; blocks for moments.
    void finish_wait(uint64_t before);

    // Tells the client when `event` has completed.
    void watch(wire::Completable what, uint64_t number, uint64_t position, SharedEvent event);

    void end(std::string reason) { reason_ = std::move(reason); }
    // The operator wants the GPU: tells the client why its calls will fail from now on, and ends the process. Any
    // thread.
    [[noreturn]] void say_goodbye(const std::string& why);

private:
    std::string serve();
    void tell_used();  // any thread
    std::string leave_to_another();
    // A batch that is being worked off, and how far.
    struct Progress {
        std::shared_ptr<BatchHold> hold;
        wire::RecordReader reader;
        size_t next_bulk = 1;
        std::set<const std::byte*> done_ahead{};  // payloads

        // Takes the next record and what came with it. False: that was the last.
        bool next(wire::Record& record, std::span<const std::byte>& bulk);
    };
    static constexpr std::chrono::microseconds brief{20};

    void react(wire::Link::Event event, wire::Batch&& batch);
    void look_at(Presence& presence, wire::Link::Event event);
    void take(wire::Batch&& batch);
    void work_off();
    void let_shared_copies_ahead();
    void dispatch(const wire::Record& record, std::span<const std::byte> bulk, const std::shared_ptr<BatchHold>& hold);
    Answer handle(Call& call);
    bool may_dawdle();
    void tell_completed(const Watch& watch, CUresult result);  // any thread
    void start_host_function(uint64_t ticket);                 // any thread

    std::unique_ptr<wire::Link> link_;
    HandlerTable custom_;
    std::vector<GeneratedHandler> generated_;
    uint64_t current_number_ = 0;
    std::string reason_;                                 // non-empty: the session is over
    std::chrono::steady_clock::time_point looked_at_{};  // for silence of the client
    std::deque<Progress> backlog_;
    std::atomic<int> held_back_{0};     // calls of run_aside() that have not returned
    std::atomic<bool> mapping_{false};  // it is one that maps memory, which no function of the client's holds up
};

template <class Query>
CUresult WorkerSession::query_briefly(Query query) {
    auto result = query();
    if (result != CUDA_ERROR_NOT_READY || !may_dawdle()) return result;
    auto deadline = std::chrono::steady_clock::now() + brief;
    while (result == CUDA_ERROR_NOT_READY && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::yield();
        result = query();
    }
    return result;
}

// The copies of rows that go to the client.
Answer download_rows(WorkerSession& session, Call& call, const wire::CopyRows<Resolved>& record);
Answer download_rows(WorkerSession& session, Call& call, const wire::CopyArrayRows<Resolved>& record);

// calls_*.cpp: each enters its handlers.
void add_context_calls(HandlerTable& table);
void add_green_context_calls(HandlerTable& table);
void add_code_calls(HandlerTable& table);
void add_image_calls(HandlerTable& table);
void add_launch_calls(HandlerTable& table);
void add_tensor_map_calls(HandlerTable& table);
void add_link_calls(HandlerTable& table);
void add_upload_calls(HandlerTable& table);
void add_download_calls(HandlerTable& table);
void add_memory_calls(HandlerTable& table);
void add_exchange_calls(HandlerTable& table);
void add_multicast_calls(HandlerTable& table);
void add_array_calls(HandlerTable& table);
void add_tile_calls(HandlerTable& table);
void add_texture_calls(HandlerTable& table);
void add_stream_calls(HandlerTable& table);
void add_event_calls(HandlerTable& table);
void add_profile_calls(HandlerTable& table);
void add_graph_calls(HandlerTable& table);
void add_user_object_calls(HandlerTable& table);
void add_graph_function_calls(HandlerTable& table);
void add_graph_node_calls(HandlerTable& table);
void add_graph_memory_calls(HandlerTable& table);

}  // namespace tnr::worker
