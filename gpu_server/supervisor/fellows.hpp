// What the pool's other nodes have and do, for whoever watches this one: each is asked, over its control socket, for what it
// would tell an operator. All are asked at once, with one deadline, and only while somebody watches; a thread of its own waits
// for the answers. Who does not answer is known to be silent for a while, and costs nobody another wait.
//
// Their ledgers' last day is asked for once a minute also while nobody watches: a node that has gone can tell nobody what was
// used there. What they said is kept in a file, for the server's next start.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/keys.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/watch/watch.hpp"

namespace tnr::server {

// Tests have shorter ones.
struct FellowTimes {
    milliseconds asked_every = fellows_asked_every, wanted_for = fellows_wanted_for, good_for = fellow_good_for;
    milliseconds day_asked_every = fellow_days_asked_every, days_wanted_for = fellow_days_wanted_for;
    milliseconds day_good_for = fellow_day_good_for, day_noted_every = fellow_days_noted_every;
    milliseconds answers_within = fellow_answers_within, left_alone_for = silent_fellow_left_alone;
};

class Fellows {
public:
    struct Node {
        std::string name, address, server_key;  // the latter empty: plain text
        bool operator==(const Node&) const = default;
    };

    // Make it when signals are blocked. `kept_in`: the file, which need not be there; empty: none.
    explicit Fellows(FellowTimes times = {}, std::string kept_in = {});
    ~Fellows() { stop(); }

    // From now on nobody is asked. Returns within two seconds, whatever others and the name server do.
    void stop() TNR_EXCLUDES(mutex_);

    // Which there are now, and by which key they know us. Who was there before and is not has gone.
    void are(std::vector<Node> nodes, const wire::KeyPair& own) TNR_EXCLUDES(mutex_);
    // What those said that have answered lately, each with its "node", and who did not answer. Others have not been asked
    // yet: from now on they are, for a while.
    watch::FellowsTold told() TNR_EXCLUDES(mutex_);
    // What the ledgers of those have of the last day; of the silent and of those that have gone, what they said last. From
    // now on they are asked for that, too, for a while.
    std::vector<watch::FellowDay> days() TNR_EXCLUDES(mutex_);

private:
    using Clock = std::chrono::steady_clock;
    // A node is asked anew only when its last line has ended, so there is at most one to each.
    struct Line {
        Node node;
        std::unique_ptr<control::Client> client;
        std::future<void> end;  // of the client that there was; not valid while there is one
    };
    struct Said {
        std::shared_ptr<const nlohmann::json> now, day;
        Clock::time_point now_good_until{}, day_good_until{}, day_asked_at{}, silent_until{};
        int64_t day_heard_ms = 0, gone_ms = 0;  // 0: it is there
        int64_t gpus = 0;
        bool other_clock = false;  // as was logged
    };
    struct Round {
        std::vector<Node> nodes;
        wire::KeyPair own;
        bool watched = false, with_days = false;
    };
    void read_kept() TNR_EXCLUDES(mutex_);
    void keep() TNR_EXCLUDES(mutex_);
    void serve();
    bool wait_for_round(Round& round) TNR_EXCLUDES(mutex_);
    void ask_all(const Round& round);
    Line& line_to(const Node& node, const wire::KeyPair& own);
    void let_go(const std::function<bool(const Line&)>& which);
    void forget_ended();
    bool left_alone(const std::string& name) TNR_EXCLUDES(mutex_);
    void ask(Line& line, bool with_days) TNR_EXCLUDES(mutex_);
    void forget_old() TNR_REQUIRES(mutex_);
    // GPU time is billed by the clock of the node that served it, at the price that its clock says: one that is wrong costs its
    // users, or the operator, and nothing else would tell.
    static void compare_clocks(const std::string& name, Said& said, const nlohmann::json& answer);

    const FellowTimes times_;
    const std::string kept_in_;
    Mutex mutex_;
    Condition to_ask_;
    bool stopping_ TNR_GUARDED_BY(mutex_) = false;
    Clock::time_point wanted_until_ TNR_GUARDED_BY(mutex_){}, days_wanted_until_ TNR_GUARDED_BY(mutex_){};
    std::vector<Node> nodes_ TNR_GUARDED_BY(mutex_);     // that are asked
    bool asks_all_ TNR_GUARDED_BY(mutex_) = true;        // there are no others
    bool any_day_heard_ TNR_GUARDED_BY(mutex_) = false;  // since the file was written
    wire::KeyPair own_ TNR_GUARDED_BY(mutex_);
    std::map<std::string, Said> said_ TNR_GUARDED_BY(mutex_);  // by node; also of those that have gone

    // The thread's; once that has ended, stop()'s.
    std::map<std::string, Line> lines_;
    wire::KeyPair lines_key_;
    std::thread thread_;
};

}  // namespace tnr::server
