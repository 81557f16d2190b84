// What the claims of this node use, on its way into the ledger: noted every second while they last, and at their end. A
// crash of this server costs no more of them than that second, and a power cut no more than ledger_synced_every on top.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "api_client/base/mutex.hpp"
#include "gpu_server/pool/ledger.hpp"
#include "gpu_server/supervisor/event_loop.hpp"
#include "gpu_server/supervisor/handover.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/supervisor/workers.hpp"

namespace tnr::server {

// Of all claims since the start.
struct UseTally {
    double bytes_up = 0, bytes_down = 0;
    double held_s = 0, busy_s = 0;  // GPU-seconds

    void add(const ClaimUse& use, int64_t gpus);
};

class Books {
public:
    Books(EventLoop& loop, Ledger& ledger, std::string node) : loop_(loop), ledger_(ledger), node_(std::move(node)) {}

    // Its id, and when and where it began, are chosen here. An Error: it is not in the ledger, so it must not begin.
    Result<int64_t> begin(ClaimRecord claim);
    // From here on it costs something: nobody pays for the time that the pool's store takes to have it.
    void count(int64_t id);
    void used(int64_t id, const WorkerUse& more);
    // A ledger that does not take it now (a full disk) is tried again every second; the claim costs nothing meanwhile.
    void end(int64_t id, const std::string& why);
    // Likewise.
    void wiped(int64_t id, const WipeRecord& wipe);
    // What it has used up to now; nothing: it has ended.
    std::optional<ClaimUse> use_of(int64_t id);
    UseTally tally();

    // The lines of claims that go on, and what the ledger has not taken yet.
    void hand_over(Handover& handover);
    Result<> take_over(const Handover& handover);
    // The claims whose lines an earlier server has left open for this one.
    static std::set<int64_t> open_in(const Handover& handover);

private:
    struct Open {
        std::optional<EventLoop::Clock::time_point> since;  // when it began to count
        int64_t gpus = 1;
        ClaimUse use = {};
        std::optional<std::string> ended = {};
    };
    void note_all();
    void note_wipes();
    void note_again();
    ClaimNews news_of(int64_t id, Open& open);

    EventLoop& loop_;
    Ledger& ledger_;
    std::string node_;
    std::map<int64_t, Open> open_;
    std::map<int64_t, WipeRecord> wipes_;  // that are not in the ledger yet
    EventLoop::TimerId timer_ = 0;
    UseTally ended_;           // of those that have ended
    bool in_trouble_ = false;  // and the log says so
};

// Makes what is in the ledger durable every now and then, on a thread of its own: disks take their time.
class LedgerSync {
public:
    explicit LedgerSync(Ledger& ledger);
    ~LedgerSync();
    LedgerSync(const LedgerSync&) = delete;
    LedgerSync& operator=(const LedgerSync&) = delete;

private:
    void keep_syncing() TNR_EXCLUDES(mutex_);

    Ledger& ledger_;
    Mutex mutex_;
    Condition wanted_;
    bool stopping_ TNR_GUARDED_BY(mutex_) = false;
    std::thread thread_;
};

}  // namespace tnr::server
