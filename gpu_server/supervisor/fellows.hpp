// What the pool's other nodes have and do, for whoever watches this one: each is asked, over its control socket, for what it
// would tell an operator. Only while somebody watches; a thread of its own waits for the answers.
#pragma once

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/keys.hpp"
#include "gpu_server/watch/watch.hpp"

namespace tnr::server {

class Fellows {
public:
    struct Node {
        std::string name, address, server_key;  // the latter empty: plain text
        bool operator==(const Node&) const = default;
    };

    // Make it when signals are blocked.
    Fellows();
    ~Fellows();

    // Which there are now, and by which key they know us.
    void are(std::vector<Node> nodes, const wire::KeyPair& own) TNR_EXCLUDES(mutex_);
    // What those said that have answered lately, each with its "node". From now on they are asked, for a while.
    watch::FellowsTold told() TNR_EXCLUDES(mutex_);
    // What the ledgers of those have of the last day. From now on they are asked for that, too, for a while.
    std::vector<watch::FellowDay> days() TNR_EXCLUDES(mutex_);

private:
    using Clock = std::chrono::steady_clock;
    struct Line {
        Node node;
        std::unique_ptr<control::Client> client;
        Clock::time_point silent_until{}, day_good_until{};
    };
    void serve();
    bool wait_until_wanted(std::vector<Node>& nodes, wire::KeyPair& own) TNR_EXCLUDES(mutex_);
    bool stopping() TNR_EXCLUDES(mutex_);
    Line& line_to(const Node& node, const wire::KeyPair& own);
    bool days_wanted() TNR_EXCLUDES(mutex_);
    void ask(Line& line) TNR_EXCLUDES(mutex_);

    Mutex mutex_;
    Condition to_ask_;
    bool stopping_ TNR_GUARDED_BY(mutex_) = false;
    Clock::time_point wanted_until_ TNR_GUARDED_BY(mutex_){}, days_wanted_until_ TNR_GUARDED_BY(mutex_){};
    std::vector<Node> nodes_ TNR_GUARDED_BY(mutex_);
    wire::KeyPair own_ TNR_GUARDED_BY(mutex_);
    std::map<std::string, std::shared_ptr<const nlohmann::json>> told_
        TNR_GUARDED_BY(mutex_);  // by node; as below, of those that have answered
    std::map<std::string, std::shared_ptr<const nlohmann::json>> days_ TNR_GUARDED_BY(mutex_);

    // The thread's.
    std::map<std::string, Line> lines_;
    wire::KeyPair lines_key_;
    std::thread thread_;
};

}  // namespace tnr::server
