// See fellows.hpp.
#include "gpu_server/supervisor/fellows.hpp"

#include <algorithm>

#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

using nlohmann::json;

// Foreign text: the other may be of another build. Lists of objects, or nothing.
static json list_of(const json& answer, const char* name) {
    json list = json::array();
    if (auto found = answer.find(name); found != answer.end() && found->is_array())
        for (auto& one : *found)
            if (one.is_object()) list.push_back(one);
    return list;
}

static json without_limits(json nodes) {
    for (auto& node : nodes) node.erase("limits");
    return nodes;
}

Fellows::Fellows() : thread_([this] { serve(); }) {}

Fellows::~Fellows() {
    {
        LockGuard lock(mutex_);
        stopping_ = true;
    }
    to_ask_.notify_all();
    thread_.join();
}

void Fellows::are(std::vector<Node> nodes, const wire::KeyPair& own) {
    nodes.resize(std::min(nodes.size(), fellows_asked_max));
    LockGuard lock(mutex_);
    nodes_ = std::move(nodes);
    own_ = own;
    auto gone = [&](auto& one) TNR_REQUIRES(mutex_) {
        return std::none_of(nodes_.begin(), nodes_.end(), [&](auto& node) { return node.name == one.first; });
    };
    std::erase_if(told_, gone);
    std::erase_if(days_, gone);
}

watch::FellowsTold Fellows::told() {
    watch::FellowsTold all;
    {
        LockGuard lock(mutex_);
        wanted_until_ = Clock::now() + fellows_wanted_for;
        for (auto& [name, said] : told_) all.push_back(said);
    }
    to_ask_.notify_all();
    return all;
}

std::vector<watch::FellowDay> Fellows::days() {
    std::vector<watch::FellowDay> all;
    {
        LockGuard lock(mutex_);
        wanted_until_ = Clock::now() + fellows_wanted_for;
        days_wanted_until_ = Clock::now() + fellow_days_wanted_for;
        for (auto& [name, day] : days_) all.push_back({name, day});
    }
    to_ask_.notify_all();
    return all;
}

bool Fellows::stopping() {
    LockGuard lock(mutex_);
    return stopping_;
}

// False: no more.
bool Fellows::wait_until_wanted(std::vector<Node>& nodes, wire::KeyPair& own) {
    UniqueLock lock(mutex_);
    to_ask_.wait(mutex_, [this]() TNR_REQUIRES(mutex_) {
        return stopping_ || (!nodes_.empty() && Clock::now() < wanted_until_);
    });
    nodes = nodes_;
    own = own_;
    return !stopping_;
}

Fellows::Line& Fellows::line_to(const Node& node, const wire::KeyPair& own) {
    auto& line = lines_[node.name];
    if (line.client && line.node == node) return line;
    line = {node, nullptr, {}};
    auto opened =
        control::Client::open(node.address, {node.server_key, node.server_key.empty() ? wire::KeyPair{} : own});
    if (opened) line.client = std::move(*opened);
    return line;
}

bool Fellows::days_wanted() {
    LockGuard lock(mutex_);
    return Clock::now() < days_wanted_until_;
}

void Fellows::ask(Line& line) {
    const auto& name = line.node.name;
    const bool with_day = days_wanted() && Clock::now() >= line.day_good_until;
    auto answer = line.client->request({{"op", "pool"}, {"day", with_day}}, fellow_answers_within);
    LockGuard lock(mutex_);
    if (!answer) {
        line.silent_until = Clock::now() + silent_fellow_left_alone;
        line.day_good_until = {};
        told_.erase(name);
        days_.erase(name);
        return;
    }
    // It may not have read its ledger yet, or be of a build that says nothing of it.
    if (auto day = answer->find("day"); day != answer->end() && day->is_object()) {
        days_[name] = std::make_shared<const json>(std::move(*day));
        line.day_good_until = Clock::now() + fellow_days_asked_every;
    }
    told_[name] = std::make_shared<const json>(json{{"node", name},
                                                    {"nodes", without_limits(list_of(*answer, "nodes"))},
                                                    {"gpus", list_of(*answer, "gpus")},
                                                    {"claims", list_of(*answer, "claims")},
                                                    {"queue", list_of(*answer, "queue")}});
}

void Fellows::serve() {
    std::vector<Node> nodes;
    wire::KeyPair own;
    while (wait_until_wanted(nodes, own)) {
        if (std::exchange(lines_key_, own).public_key != own.public_key) lines_.clear();
        for (auto& node : nodes) {
            if (stopping()) return;
            auto& line = line_to(node, own);
            if (line.client && Clock::now() >= line.silent_until) ask(line);
        }
        std::erase_if(lines_, [&](auto& one) {
            return std::none_of(nodes.begin(), nodes.end(), [&](auto& node) { return node.name == one.first; });
        });
        UniqueLock lock(mutex_);
        to_ask_.wait_for(mutex_, fellows_asked_every, [this]() TNR_REQUIRES(mutex_) { return stopping_; });
    }
}

}  // namespace tnr::server
