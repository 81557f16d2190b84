// The connection to this process's worker: one ordered stream of commands out, replies and pushed news in.
//
// Out: append() adds a record to a buffer under a short lock. The buffer goes out when a caller must wait, when it is
// large, or when a flusher thread finds that nothing was added for a few microseconds.
//
// In: there is no receiving thread in the ordinary case. Whoever waits for a reply receives for itself; of several
// waiting threads one (the leader) receives and hands the others theirs. Only while news is expected that nobody waits
// for (host functions, copies into pinned memory) a background thread receives when no one else does.
//
// A third thread keeps the connection (reconnect.cpp): when it breaks, calls that wait go on waiting until it is back, or
// until the session is lost with it.
//
// Locks, outermost first: order_mutex_, buffer_mutex_; receive_mutex_ stands alone. No lock is held while waiting.
#pragma once

#include <condition_variable>
#include <functional>
#include <semaphore>
#include <thread>
#include <unordered_map>

#include "gpu_client/cuda/driver_api.hpp"
#include "gpu_client/protocol/keeper.hpp"
#include "gpu_client/protocol/link.hpp"
#include "gpu_client/protocol/ops.hpp"

namespace tnr::cuda {

// Where a copy from the device lands: `row_bytes` of packed data per row, rows `pitch` apart. One row for plain copies.
struct Destination {
    std::byte* base = nullptr;
    uint64_t bytes = 0;  // packed
    uint64_t row_bytes = 0;
    uint64_t pitch = 0;
    // False: outside.
    bool write(uint64_t offset, std::span<const std::byte> data);
};

// A record that wants a reply. Lives until the reply is there.
struct Pending {
    uint16_t op = 0;
    CUresult result = CUDA_ERROR_UNKNOWN;
    wire::Bytes answer;  // what follows the CUresult
    Destination destination;
    std::vector<wire::Bytes> described;  // payloads of op_kernels_described
    // When set, nobody waits: called (by whichever thread receives) once the reply is there or the session is lost, and
    // must not call into the session.
    std::function<void(Pending&)> when_done;

    bool as_news = false;  // nobody will wait for it soon: the background thread may have to receive it

    uint64_t number = 0;
    bool done = false;
};

// A payload in pieces that lie in different places.
using Parts = std::initializer_list<std::span<const std::byte>>;

class Session {
public:
    explicit Session(std::unique_ptr<wire::Channel> channel);
    ~Session() = delete;  // threads and programs' late calls use it until the process is gone

    // Adds one record that runs in context number `context`; its payload is `parts` behind each other, `bulk` may be null.
    // Returns its position, 0 when the session is lost. May wait for credit.
    uint64_t append(uint64_t context, uint16_t op, Parts parts, zmq::message_t* bulk = nullptr);
    uint64_t append(uint64_t context, uint16_t op, std::span<const std::byte> payload, zmq::message_t* bulk = nullptr) {
        return append(context, op, Parts{payload}, bulk);
    }
    // A record that the worker may be waiting for before it takes any other: goes out at once and needs no credit.
    void send_at_once(uint16_t op, std::span<const std::byte> payload);
    // Adds a record whose payload starts with room for the call number, and flushes. Then wait(), unless when_done is
    // set.
    uint64_t request(uint64_t context, uint16_t op, std::span<std::byte> payload, Pending& pending);
    // pending.result tells what became of it; false when it took longer than `timeout`.
    bool wait(Pending& pending, std::chrono::milliseconds timeout = std::chrono::hours(24 * 365));
    // Waits until `ready` (asked with the receive lock held, whenever something may have changed).
    bool wait_until(const std::function<bool()>& ready, std::chrono::milliseconds timeout = std::chrono::hours(8760));
    // Something that wait_until() waits for may have changed; any thread.
    void poke();

    void flush();
    // Works off what has arrived, without waiting.
    void drain();
    // Waits until `done`, which comes about once nothing refers to memory of the program any more: when the worker has
    // received it, or soon after the session is lost. Somebody must say memory_freed() whenever it may have.
    void wait_for_memory(const std::function<bool()>& done);
    void memory_freed();
    // While the count is above 0 the background thread receives when nobody else does.
    void expect_news(int change);

    bool lost() const { return lost_.load(std::memory_order_acquire); }
    uint64_t position() const { return position_.load(std::memory_order_acquire); }
    const wire::Link& link() const { return link_; }

    // News; set before the session is used. Called with the receive lock held: must not wait.
    struct News {
        std::function<void(uint8_t kind, uint64_t number, uint64_t generation, CUresult)> completed;
        std::function<void(uint16_t op, CUresult, std::string_view detail)> failed;
        std::function<void(uint64_t ticket)> run_host_function;
    };
    News news;
    void start();  // the threads

    // The process ends: tells the worker, and waits at most so long for it to let go. From now on losing the connection is
    // no news, and final.
    void say_goodbye(std::chrono::milliseconds timeout);

private:
    void put_record(uint64_t context, uint16_t op, uint16_t flags, Parts parts, zmq::message_t* bulk);
    void make_room(std::unique_lock<std::mutex>& lock, size_t bytes);
    bool wait_for_credit();
    void read_receipts();
    void flusher();
    void wake_flusher();

    using Lock = std::unique_lock<std::mutex>;
    struct Waiter {
        std::condition_variable wake;
    };
    template <class Ready>
    bool wait_locked(Lock& lock, Ready&& ready, std::chrono::steady_clock::time_point deadline);
    wire::Link::Event lead(Lock& lock, std::chrono::milliseconds timeout);
    void hand_over();
    void lose_locked(const char* reason);
    void dispatch(wire::Batch& batch);
    bool dispatch_record(const wire::Record& record, const zmq::message_t* bulk);
    bool take_reply(const wire::Record& record);
    bool take_piece(wire::Reader in, const zmq::message_t* bulk);
    void finish(Pending& pending);
    void background();
    wire::Keeper::Hooks keeper_hooks();

    wire::Link link_;
    wire::Keeper keeper_;
    std::atomic<bool> lost_{false};
    std::atomic<bool> ending_{false};

    std::mutex order_mutex_;   // batches go out in the order they were filled
    wire::Bytes sending_;      // guarded by order_mutex_
    std::mutex buffer_mutex_;  // guards the next five
    wire::Bytes frame_;
    wire::Frames bulk_;
    size_t bulk_bytes_ = 0;
    uint64_t context_ = 0;  // that the stream's last record runs in
    std::atomic<uint64_t> position_{0};
    std::atomic<uint64_t> flushed_{0};  // position of the last record that has left the buffer
    std::atomic<uint64_t> next_call_{1};

    std::atomic<bool> flusher_asleep_{true};
    std::binary_semaphore flusher_wake_{0};

    std::mutex receive_mutex_;  // guards the rest
    bool leading_ = false;
    bool heard_ = false;  // anything at all from the worker
    std::chrono::steady_clock::time_point opened_;
    wire::Batch batch_;  // the leader's
    std::vector<Waiter*> waiters_;
    std::unordered_map<uint64_t, Pending*> pending_;
    int news_expected_ = 0;
    std::condition_variable background_wake_;

    std::mutex memory_mutex_;  // nothing but the condition's
    std::condition_variable memory_freed_;
};

// How long a broken connection is tried again: TNR_GRACE_MS.
wire::Keeper::Patience patience_from_environment();

// This process's session; null until the first context.
Session* session();
// Opens it unless it is open. Tells on stderr why it could not.
CUresult open_session();

}  // namespace tnr::cuda
