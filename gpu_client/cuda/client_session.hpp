// The connection to this process's worker: one ordered stream of commands out, replies and pushed news in.
//
// Out: append() adds a record to a buffer under a short lock. The buffer goes out when a caller must wait, when it is
// large, or when a flusher thread finds that nothing was added for a few microseconds.
//
// In: usually there is no receiving thread. A thread that waits for a reply receives for itself; of several, one (the
// leader) receives and hands the others their replies. A background thread receives only while news is expected that
// nobody waits for (host functions, copies into pinned memory) and no other thread receives.
//
// A third thread keeps the connection (reconnect.cpp). While it is broken, waiting calls keep waiting until it is back
// or the session is lost.
//
// Locks, outermost first: order_mutex_, buffer_mutex_; receive_mutex_ stands alone. No thread blocks while it holds
// one.
#pragma once

#include <functional>
#include <semaphore>
#include <thread>
#include <unordered_map>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/driver_api.hpp"
#include "gpu_client/protocol/graph_records.hpp"
#include "gpu_client/protocol/keeper.hpp"
#include "gpu_client/protocol/link.hpp"
#include "gpu_client/protocol/session_records.hpp"

namespace tnr::cuda {

// Where a copy from the device lands: `row_bytes` of packed data per row, rows `pitch` apart. One row for plain copies.
struct Destination {
    std::byte* base = nullptr;
    uint64_t bytes = 0;  // packed
    uint64_t row_bytes = 0;
    uint64_t pitch = 0;
    // False if the piece lies outside.
    bool write(uint64_t offset, std::span<const std::byte> data);
};

// A record that wants a reply. Lives until the reply is there.
struct Pending {
    uint16_t op = 0;
    CUresult result = CUDA_ERROR_UNKNOWN;
    wire::Bytes answer;  // what follows the CUresult
    Destination destination;
    std::vector<wire::Bytes> described;  // payloads of wire::KernelsDescribed
    // If set, nobody waits: it is called once the reply is there or the session is lost, on whichever thread finds out
    // and with the receive lock held. It must not call into the session.
    std::function<void(Pending&)> when_done;

    bool as_news = false;  // nobody will wait for it soon: the background thread may have to receive it

    uint64_t number = 0;
    bool done = false;
};

// A payload in several pieces of memory.
using Parts = std::initializer_list<std::span<const std::byte>>;

class ClientSession {
public:
    explicit ClientSession(std::unique_ptr<wire::Channel> channel);
    ~ClientSession() = delete;  // threads and programs' late calls use it until the process is gone

    // Adds a record to be run in context number `context`. The payload is `parts` concatenated; `bulk` may be null.
    // Returns the record's position, or 0 if the session is lost or the payload exceeds record_bytes_max. May wait for
    // credit.
    uint64_t append(uint64_t context, uint16_t op, Parts parts, zmq::message_t* bulk = nullptr)
        TNR_EXCLUDES(order_mutex_, buffer_mutex_, receive_mutex_);
    uint64_t append(uint64_t context, uint16_t op, std::span<const std::byte> payload, zmq::message_t* bulk = nullptr) {
        return append(context, op, Parts{payload}, bulk);
    }
    template <wire::HasFields Record>
    uint64_t append(uint64_t context, const Record& record) {
        return append(context, Record::op, wire::payload_of(record));
    }
    // Sends a record at once and without credit: the worker may be waiting for it before it takes any other.
    void send_at_once(const wire::HostFunctionDone& done);
    // Adds and flushes a record that wants a reply. The payload must start with room for the call number
    // (wire::question_of). Follow with wait(), unless when_done is set.
    uint64_t request(uint64_t context, uint16_t op, std::span<std::byte> payload, Pending& pending);
    // Blocks until the reply is there or the session is lost; pending.result says what became of the call. False after
    // `timeout`.
    bool wait(Pending& pending, std::chrono::milliseconds timeout = std::chrono::hours(24 * 365))
        TNR_EXCLUDES(receive_mutex_);
    // Blocks until ready() is true; false if the session is lost or `timeout` passes first. Calls ready() with the
    // receive lock held, whenever something may have changed.
    bool wait_until(const std::function<bool()>& ready, std::chrono::milliseconds timeout = std::chrono::hours(8760));
    // Makes wait_until() call ready() again. Any thread.
    void poke();

    void flush() TNR_EXCLUDES(order_mutex_, buffer_mutex_, receive_mutex_);
    // Blocks while more is on its way than keeps the line busy: whatever a copy added would only fill one more buffer.
    void wait_for_room() TNR_EXCLUDES(order_mutex_, buffer_mutex_, receive_mutex_);
    // Handles what has arrived, without waiting.
    void drain();
    // Blocks until done(): nothing refers to some memory of the program any more. Gives up a few seconds after the
    // session is lost. Outgoing and StreamWork call memory_freed() when they let go of such memory.
    void wait_for_memory(const std::function<bool()>& done);
    void memory_freed();
    // Adds to the count of expected news. While it is above 0, the background thread receives when no other thread
    // does.
    void expect_news(int change);

    bool lost() const { return lost_.load(std::memory_order_acquire); }
    uint64_t position() const { return position_.load(std::memory_order_acquire); }
    const wire::Link& link() const { return link_; }

    // Handlers of news; set before the session is used. Called with the receive lock held, so they must not block.
    struct News {
        std::function<void(const wire::Completed&)> completed;
        std::function<void(const wire::Failed&)> failed;
        std::function<void(uint64_t ticket)> run_host_function;
        std::function<void(const wire::RunGraphFunction&)> run_graph_function;
        std::function<void(uint64_t number)> user_object_gone;
        std::function<void(uint64_t ticket, uint64_t offset, std::span<const std::byte>)> seen_data;
        std::function<void(uint32_t device, uint64_t bytes)> memory_wanted;
        std::function<void()> memory_shared;  // the GPU has become shared, or is no longer
    };
    News news;
    void start();  // starts the threads

    // Tells the worker that the process ends. Waits at most `timeout` for credit, and as long again for the answer.
    // From then on a broken connection is neither reported nor retried.
    void say_goodbye(std::chrono::milliseconds timeout);

private:
    void put_record(uint64_t context, uint16_t op, uint16_t flags, Parts parts, zmq::message_t* bulk)
        TNR_REQUIRES(buffer_mutex_);
    void make_room(size_t bytes) TNR_REQUIRES(buffer_mutex_) TNR_EXCLUDES(order_mutex_, receive_mutex_);
    size_t batch_is_large() const;
    bool wait_for_credit() TNR_EXCLUDES(order_mutex_, buffer_mutex_, receive_mutex_);
    void read_receipts() TNR_EXCLUDES(receive_mutex_);
    void flusher();
    void wake_flusher();

    struct Waiter {
        Condition wake;
    };
    template <class Ready>
    bool wait_locked(Ready&& ready, std::chrono::steady_clock::time_point deadline) TNR_REQUIRES(receive_mutex_);
    // Releases the lock while it receives.
    wire::Link::Event lead(std::chrono::milliseconds timeout) TNR_REQUIRES(receive_mutex_);
    void hand_over() TNR_REQUIRES(receive_mutex_);
    void lose_locked(const char* reason) TNR_REQUIRES(receive_mutex_);
    void dispatch(wire::Batch& batch) TNR_REQUIRES(receive_mutex_);
    bool dispatch_record(const wire::Record& record, const zmq::message_t* bulk) TNR_REQUIRES(receive_mutex_);
    bool take_reply(const wire::Record& record) TNR_REQUIRES(receive_mutex_);
    bool take_piece(wire::Reader in, const zmq::message_t* bulk) TNR_REQUIRES(receive_mutex_);
    void finish(Pending& pending) TNR_REQUIRES(receive_mutex_);
    void background();
    wire::Keeper::Hooks keeper_hooks();

    wire::Link link_;
    wire::Keeper keeper_;
    std::atomic<bool> lost_{false};
    std::atomic<bool> ending_{false};

    Mutex order_mutex_;  // batches go out in the order they were filled
    wire::Bytes sending_ TNR_GUARDED_BY(order_mutex_);
    Mutex buffer_mutex_;
    wire::Bytes frame_ TNR_GUARDED_BY(buffer_mutex_);
    wire::Frames bulk_ TNR_GUARDED_BY(buffer_mutex_);
    size_t bulk_bytes_ TNR_GUARDED_BY(buffer_mutex_) = 0;
    uint64_t context_ TNR_GUARDED_BY(buffer_mutex_) = 0;  // of the last record in the stream
    std::atomic<uint64_t> position_{0};                   // written with buffer_mutex_ held
    std::atomic<uint64_t> flushed_{0};                    // position of the last record that has left the buffer
    std::atomic<uint64_t> next_call_{1};

    std::atomic<bool> flusher_asleep_{true};
    std::binary_semaphore flusher_wake_{0};

    Mutex receive_mutex_;
    bool leading_ TNR_GUARDED_BY(receive_mutex_) = false;
    bool heard_ TNR_GUARDED_BY(receive_mutex_) = false;  // anything at all from the worker
    const std::chrono::steady_clock::time_point opened_;
    wire::Batch batch_;  // the leader's
    std::vector<Waiter*> waiters_ TNR_GUARDED_BY(receive_mutex_);
    std::unordered_map<uint64_t, Pending*> pending_ TNR_GUARDED_BY(receive_mutex_);
    int news_expected_ TNR_GUARDED_BY(receive_mutex_) = 0;
    Condition background_wake_;

    Mutex memory_mutex_;  // guards no data, serves only the condition
    Condition memory_freed_;
};

// How long to retry a broken connection; TNR_GRACE_MS sets it.
wire::Keeper::Patience patience_from_environment();

// Opens the device's session unless it is open. Explains a failure on stderr.
struct Device;
CUresult open_session(Device& device);
// Every session that has been opened.
std::vector<ClientSession*> open_sessions();

}  // namespace tnr::cuda
