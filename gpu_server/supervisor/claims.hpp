// Claims and sessions. A claim binds GPUs to a machine, from its first process that needs CUDA to the end of its last; a
// session is one such process, and has a worker process of its own. For a moment after the claim its GPUs are kept as they
// are for the same owner's next one (gpus.hpp); to everybody else they are as good as free.
//
//   session:  starting ──▶ serving ──▶ ending ──▶ (its worker is gone)      `starting` may go to `ending` at once
//   claim:    registering ──▶ active ──▶ ending ──▶ (its last worker is gone: its GPUs are kept or wiped)
//
// There is no way back, whatever comes in between: what ends is killed after a moment, and a worker that becomes ready too
// late serves nobody. tests/gpu_server/supervisor/orders_test.cpp tries the orders in which things can happen.
//
// A claim is registered with the pool (pool_link.hpp) before any session of it begins to serve.
//
// Requests that must wait (a worker that starts, a GPU that is being wiped) are answered later, from the event loop;
// nothing here ever blocks. Who is willing to wait for a GPU that others use has a place in the queue (claim_queue.cpp):
// its client is told the place, and keeps it by asking again.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gpu_client/protocol/keys.hpp"
#include "gpu_server/pool/store.hpp"
#include "gpu_server/supervisor/asker.hpp"
#include "gpu_server/supervisor/books.hpp"
#include "gpu_server/supervisor/fair_share.hpp"
#include "gpu_server/supervisor/gpus.hpp"
#include "gpu_server/supervisor/pool_link.hpp"
#include "gpu_server/supervisor/turns.hpp"
#include "gpu_server/supervisor/workers.hpp"
#include "gpu_server/watch/histogram.hpp"

namespace tnr::server {

// As the log names a machine; in an open pool there are no accounts.
inline std::string machine_label(const std::string& account, const std::string& machine) {
    return account.empty() ? machine : account + "/" + machine;
}

// Who asks.
struct Caller {
    enum class Role { account, machine, token, node, open };  // node: another one of the pool
    Role role = Role::open;
    std::string account;       // empty when open
    std::string machine;       // whose GPUs it is about
    std::string public_key;    // empty when plain
    bool is_operator = false;  // may see what is everybody's
    std::string label() const { return machine_label(account, machine); }
    // Only the same owner may find what a claim left in a GPU: whoever holds the same key; in an open pool, where
    // nobody has one, the same machine.
    // Who pays, and takes turns with others; in an open pool the machine.
    std::string user() const { return account.empty() ? "machine " + machine : account; }
    std::string owner() const { return public_key.empty() ? "machine " + machine : "key " + public_key; }
};

struct GpuWish {
    std::string gpu;
    int count = 1;
    std::chrono::seconds wait{0};  // as long as the client will wait for others' GPUs; wait_s_max: without end
    int place = 0;                 // in the queue, as it was told last; 0: not yet
    int hops = -1;                 // nodes that have sent it on to another already; -1: it does not go to another
};

struct Process {
    int pid = 0;
    std::string name;
    std::string nonce;               // may be empty
    PeerConnection connection = {};  // over which it asks
    bool doors = false;              // it can come to a worker through the server's one port
};

using Reply = std::function<void(Result<nlohmann::json>)>;

struct Session {
    enum class State { starting, serving, ending };
    State state = State::starting;
    std::string id;
    Process process;
    Worker* worker = nullptr;
    std::vector<uint64_t> granted_bytes;  // per GPU of the claim
    EventLoop::Clock::time_point since;
    Caller caller;
    GpuWish wish;
    std::optional<EventLoop::Clock::time_point> waits_since;  // of one that is willing to wait for a GPU
    Reply reply;                                              // empty once answered
    std::shared_ptr<const nlohmann::json> answer;
    bool connected = false;                                  // its client has come
    bool away = false;                                       // and has left, perhaps for good
    std::optional<EventLoop::Clock::time_point> left_since;  // likewise, as we see it
    WorkerUse use;                                           // as its worker told last
    double busy_share = 0;                                   // of its GPUs' time, when it told that
    EventLoop::Clock::time_point told_at{};
    // For memory that there is not, while another session of the claim is about to leave some.
    struct HeldWish {
        MemoryWish wish;
        EventLoop::TimerId timer;
    };
    std::list<HeldWish> held;
    // By GPU of the claim: it was asked to give back memory that another session wants, and has not answered yet.
    std::vector<bool> asked_back;
    EventLoop::Clock::time_point asked_back_at{};
    Asker asker;
    std::optional<EventLoop::Clock::time_point> asker_gone_since;
    bool asked_before_reload = false;  // and not since: there is no asker to look at
    std::string why_ending;
    // Due when a `starting` one takes too long, when a `serving` one's asker is to be looked at, and when an `ending`
    // one's worker is to be killed.
    EventLoop::TimerId timer = 0;
};

struct Claim {
    int64_t id = 0;  // in the ledger
    std::string account, machine, gpu;
    std::string user;
    std::string owner;       // of all its sessions
    std::string public_key;  // likewise; empty when plain
    std::vector<int> gpus;
    uint64_t device_memory_max = UINT64_MAX;  // bytes of each GPU, as its user's limit was when it began
    int64_t began_ms = 0;                     // by the calendar
    std::list<Session> sessions;
    std::vector<Worker*> leftovers;  // told to die, not yet gone
    int64_t fence = 0;               // the pool's number for it; 0: the pool does not know of it yet, so nothing begins
    bool ending = false;
    bool keep = true;  // the GPUs for the owner's next claim: no worker has failed, and nobody ended the claim
    std::string why_ending;
    bool belongs_to(const Caller& caller) const { return account == caller.account && machine == caller.machine; }
    // True if its GPUs come back soon: all its processes are ending.
    bool soon_over() const;
};

struct ClaimOptions {
    std::chrono::milliseconds linger = default_linger;
    bool plain = false;          // sessions without encryption
    std::string worker_address;  // what clients are told; empty: as they reached us
    size_t lanes = 0;            // that an encrypted session may open
    std::function<UserLimits(const std::string& account)> limits = [](const std::string&) { return UserLimits{}; };
    PoolLink* pool = nullptr;  // the other nodes; null: there are none
    bool one_port = false;     // workers have no ports, but numbers (front_door.hpp)
};

// Since the start.
struct ClaimTally {
    uint64_t claims = 0, sessions = 0;
    watch::Histogram queue_seconds;  // of those that got an answer other than their place
};

class Claims {
public:
    Claims(EventLoop& loop, Gpus& gpus, Workers& workers, Books& books, ClaimOptions options);
    ~Claims();

    // Makes the caller's claim or joins it.
    void open_session(const Caller& caller, const GpuWish& wish, const Process& process, const Reply& reply);
    // The GPUs that a session would get now. Claims nothing.
    void describe(const Caller& caller, const GpuWish& wish, const Reply& reply);
    // Likewise, without waiting for a description.
    Result<std::vector<int>> would_get(const Caller& caller, const GpuWish& wish);
    // Gives the reply to `then`: at once, or where the wish is for another node's GPUs, and we are out of touch with those, when
    // that is over. An Error to the reply where it takes too long.
    void once_in_touch(const Caller& caller, const GpuWish& wish, const Reply& reply,
                       std::function<void(const Reply&)> then);
    // Bytes of each GPU that the caller's claim may use, or would.
    uint64_t device_memory_max(const Caller& caller, const std::string& gpu) const;
    void release(const Caller& caller, const std::string& why);
    // Ends the claims of keys that are not whose they were, and refuses what they wait for.
    using IsStillOf =
        std::function<bool(const std::string& public_key, const std::string& account, const std::string& machine)>;
    void end_revoked(const IsStillOf& is_still_of);
    // Ends the largest session of every claim whose workers hold more of the host's memory than `bytes_max` for each of its
    // GPUs. `bytes_of`: a worker's.
    void end_hungry(const std::function<uint64_t(const Session&)>& bytes_of, uint64_t bytes_max);
    // Ends the sessions whose client has been gone for as long: a worker says when its client leaves, but not one that hangs in
    // its driver, or that its tenant has taken over. `has_client`: of a worker whose client has come.
    void end_left(const std::function<bool(const Worker&)>& has_client, std::chrono::milliseconds for_so_long);
    void end_all(const std::string& why);  // and refuse everything from now on
    // Ends the claims on GPUs that are another node's now.
    void end_on(const std::set<std::string>& uuids, const std::string& why);
    // The lease of this node lasts longer now: workers that nobody has come to yet hear of it, and who waits for that is tried.
    void lease_renewed();
    // What the answer to such a request depends on at other nodes. One that begins a claim depends on nothing where none of
    // the account's are known: the claim itself finds out.
    Question about_others(const Caller& caller, const GpuWish& wish, bool begins);
    // The node to ask instead, as {"redirect": …}; nothing: this one. `ahead`: GPUs that others wait for.
    std::optional<nlohmann::json> elsewhere(const Caller& caller, const GpuWish& wish, int ahead = 0);

    // No new sessions begin for those who wait; until go_on().
    void pause() { paused_ = true; }
    void go_on();
    std::string what_moves() const;  // empty: all is at rest
    void hand_over(Handover& handover) const;
    // Once GPUs and workers have been taken over. Then go_on().
    Result<> take_over(const Handover& handover, const FindWorker& find_worker);

    int64_t claim_of(const Worker& worker);  // its id; 0: of none
    // From now on there are no new claims, and nobody waits for one: that is refused with this. Those there are go on, and
    // take further programs of theirs.
    void refuse_new(const Error& why);

    const std::list<std::unique_ptr<Claim>>& all() const { return claims_; }
    const ClaimTally& tally() const { return tally_; }
    // Who is in the queue, in its order.
    struct InQueue {
        Caller caller;
        GpuWish wish;
        int place = 0, of = 0, priority = 0;
        milliseconds waited{0};
    };
    std::vector<InQueue> queue();

private:
    // A request that is tried again whenever something has changed.
    struct Waiting {
        Caller caller;
        Reply reply;  // empty: its client has been told its place, and has not asked again yet
        std::function<bool(Waiting&)> attempt;  // whether it is done
        std::optional<GpuWish> wish = {};       // of a session
        UserLimits limits = {};
        EventLoop::TimerId timeout = 0;
        bool over = false;  // answered; to be removed
        Asker asker = {};   // of a session
        // Of one in the queue.
        bool queued = false;
        Process process = {};
        EventLoop::Clock::time_point entered = {};            // the queue
        EventLoop::Clock::time_point since = {}, until = {};  // of its last word, or ours; of its patience
        milliseconds kept_for{};                              // its place, while its client says nothing
        std::optional<EventLoop::Clock::time_point> gone_since = {};
    };
    using Waiters = std::list<Waiting>;
    using TooLate = std::function<Error()>;
    // For `patience`, then it says what the answer is.
    void wait_for(Waiting waiting, milliseconds patience, TooLate too_late);
    std::optional<Error> out_of_touch() const;
    bool wait_for_pool(Waiting& waiting, const GpuWish& wish, bool begins, std::function<void(const Reply&)> again);
    bool is_missed(const GpuWish& wish) const;
    bool place_for(const Caller& caller);
    void try_waiting();
    bool try_one(Waiting& waiting);
    void give_up(Waiting& waiting, const Error& error);
    void remove_over();

    // The queue.
    bool wanted_by_others(const GpuWish& wish) const;
    // Among the requests of one user, behind those that wait longer.
    void enter_queue(const Caller& caller, const GpuWish& wish, const Process& process, const Reply& reply,
                     EventLoop::Clock::time_point waits_since);
    bool asked_again(const Caller& caller, const GpuWish& wish, const Process& process, const Reply& reply);
    std::vector<Waiting*> in_turn();
    struct Place {
        Waiting* waiting;
        int place, of = 0;  // among those who wait for the same type
        int above = 0;      // of those ahead, who have a higher priority
    };
    std::vector<Place> places();
    void look_at_queue();
    void ask_others();
    void look_at(const Place& place);
    int held(const Caller& caller) const;  // GPUs in use by its user, at all nodes
    bool beyond_limit(const Caller& caller, const UserLimits& limits, int more) const;
    // Nothing: a session of its user may begin now. Else it waits until then, and is tried again.
    std::optional<Error> begins_too_many(const Caller& caller);
    Error all_in_use(const Caller& caller, const GpuWish& wish);
    // Says that, with what is free at other nodes: so it may be a moment later.
    void refuse_all_in_use(const Caller& caller, const GpuWish& wish, const std::string& more, const Reply& reply);
    std::map<std::string, Elsewhere> offered_elsewhere() const;

    // With `waits_since` it may wait as long as it takes, so nothing but a wish that cannot come true is refused.
    bool try_session(const Caller& caller, const GpuWish& wish, const Process& process, const Reply& reply,
                     std::optional<EventLoop::Clock::time_point> waits_since = {});
    void describe_soon(const Caller& caller, const GpuWish& wish, const Reply& reply);
    bool try_describe(const Caller& caller, const GpuWish& wish, const Reply& reply);
    Result<> check_wish(const GpuWish& wish) const;
    Claim* find(const Caller& caller, const std::string& gpu) const;  // the claim that a session of the caller joins
    // Why a claim with fewer GPUs cannot serve this wish; nothing where there is none.
    std::optional<Error> too_few(const Caller& caller, const GpuWish& wish);
    bool answer_again(Claim& claim, const Process& process, const Reply& reply);
    bool make_room(const Caller& caller, const GpuWish& wish);
    void note_ahead(const Caller& caller, const GpuWish& wish);
    // GPUs that those ahead must find. Who joins the claim of one of them needs no more than that has, but leaves it as many.
    int ahead_of(const Caller& caller, const GpuWish& wish) const;
    Result<Claim*> make_claim(const Caller& caller, const GpuWish& wish);
    // GPUs that the caller may have now, in the order in which a claim takes them.
    std::vector<int> in_order(const std::string& owner, const std::string& gpu) const;
    Claim* registering(int64_t id);
    void registered(int64_t id, Result<int64_t> fence);
    // Into the pool's store, which answers to registered().
    void enter(const Claim& claim, Directory::Unless unless);
    void enter_beside_others(Claim& claim);
    void begin(Claim& claim, int64_t fence);
    void active(Claim& claim, int64_t fence);
    // With those of its account that were registered before that number.
    bool is_beyond_limit(const Claim& claim, int64_t fence) const;
    Error too_many(const Claim& claim) const;
    int held_before(const Claim& claim, int64_t fence) const;
    void end_or_wait_on(Claim& claim, const Error& why);
    void refuse(Claim& claim, const Error& why);
    Result<Session*> add_session(Claim& claim, const Caller& caller, const Process& process, const Reply& reply);
    Result<Worker*> worker_for(Claim& claim);
    void serve(Claim& claim, Session& session);
    Result<> refuse_distrusted(const Caller& caller);
    void look_at_asker(Claim& claim, Session& session);
    void end_session(Session& session, const std::string& why);
    Session* session_of(const Worker& worker, Claim** claim = nullptr);
    void tell_sharing(const Claim& claim, const Session& session, bool shared);

    // False: what it says cannot be true.
    bool client_connected(Worker& worker);
    bool worker_used(Worker& worker, const WorkerUse& use);
    bool client_away(Worker& worker, bool away);
    bool memory_returned(Worker& worker, const MemoryBack& back);
    void worker_ready(Worker& worker);
    void worker_gone(Worker& worker, const std::string& how);
    void memory_wanted(Worker& worker, const MemoryWish& wish);
    void ask_back(Claim& claim, const Session& wanting, const MemoryWish& wish);
    bool grant(Session& session, const MemoryWish& wish, bool nothing_too);
    void try_held(Claim& claim);
    void note_unconnected(const Caller& caller);
    void note_unconnected(const std::string& whose, int most);
    void note_if_unused(const Claim& claim);
    void session_over(Claim& claim, std::list<Session>::iterator session, const std::string& how);
    bool fits_here(const GpuWish& wish, int ahead);
    static bool goes_elsewhere(const GpuWish& wish);
    void settle(Claim& claim);  // after a session or a leftover has gone; the claim may be gone then
    // `keep`: the owner may come back in a moment; otherwise nobody shall find the memory as it is.
    void end(Claim& claim, const std::string& why, bool keep = false);
    void finish(Claim& claim);
    std::string labels(const std::vector<int>& gpus);
    Result<> check_gpus();
    void resume(Claim& claim);
    void take_over_queue(const nlohmann::json& queue);

    EventLoop& loop_;
    Gpus& gpus_;
    Workers& workers_;
    Books& books_;
    ClaimOptions options_;
    std::list<std::unique_ptr<Claim>> claims_;
    std::map<int, int64_t> last_claims_;  // the one that a GPU is to be wiped after
    // Whom a free GPU was described to last, and that it is his before others' for a while. So programs that start at the
    // same moment are not told of the same GPU, and each gets the one that it was told of.
    struct Described {
        std::string owner;
        EventLoop::Clock::time_point until;
    };
    std::map<int, Described> described_;  // by GPU
    // Who has lately let sessions end without connecting.
    struct Distrust {
        int in_a_row = 0;
        milliseconds pause{0};
        EventLoop::Clock::time_point until{};
    };
    std::map<std::string, Distrust> distrusted_;  // owners, and users with all their keys
    Waiters waiting_;
    struct Ahead {
        Caller caller;
        GpuWish wish;
    };
    std::vector<Ahead> ahead_;  // the claims of those who wait and whose turn came before, in try_waiting()
    EventLoop::TimerId queue_timer_ = 0;
    Allowances begun_{sessions_begun_per_second_max, sessions_begun_burst};  // sessions, by user
    EventLoop::TimerId begun_timer_ = 0;
    Allowances lines_of_waiting_{queue_lines_per_second_max, queue_lines_burst};  // by user
    EventLoop::Clock::time_point others_asked_ = {};
    size_t refusals_looking_ = 0;  // those that wait for what other nodes have
    FairShare shares_;
    ClaimTally tally_;
    std::optional<Error> refuses_new_;
    bool trying_ = false, try_again_ = false;
    bool stopping_ = false, paused_ = false;
};

}  // namespace tnr::server
