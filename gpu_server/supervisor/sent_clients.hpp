// Whom this node has sent to another one a moment ago: that one does not tell of it yet.
//
// What is on its way to a node counts when one is chosen, so that not all go to the same. But nobody has to go where he is
// sent: so nobody is refused for what others might take there, only for what he himself has been sent to.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <string>
#include <tuple>

namespace tnr::server {

class SentClients {
public:
    using Time = std::chrono::steady_clock::time_point;
    struct Sent {
        std::string user, node, gpu;
        int count = 0;
    };

    // `claim` names what he asked for; again, it replaces what was noted. Beyond sent_per_user_max of the user, or sent_max
    // in all, it is not remembered.
    void note(const std::string& claim, Sent sent, Time now);
    // Those of longer ago than sent_remembered_for.
    void forget_old(Time now);
    // Where it was sent; null: nowhere, lately.
    const std::string* node_of(const std::string& claim) const;
    // GPUs of a type that are soon taken at a node: by all; by one user.
    int on_way(const std::string& node, const std::string& gpu) const;
    int on_way(const std::string& node, const std::string& gpu, const std::string& user) const;

private:
    struct Entry {
        Sent sent;
        Time at;
    };
    void count(const Sent& sent, int sign);

    std::map<std::string, Entry> sent_;               // by claim
    std::deque<std::pair<Time, std::string>> order_;  // claims, oldest first; one that was noted again is in it twice
    std::map<std::pair<std::string, std::string>, int> by_node_;                         // node, type: GPUs
    std::map<std::tuple<std::string, std::string, std::string>, int> by_node_and_user_;  // node, type, user: GPUs
    std::map<std::string, int> by_user_;                                                 // entries
};

}  // namespace tnr::server
