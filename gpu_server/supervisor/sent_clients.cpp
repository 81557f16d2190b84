// See sent_clients.hpp.
#include "gpu_server/supervisor/sent_clients.hpp"

#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

// What has come to nothing is not kept.
template <class Key>
static void add(std::map<Key, int>& counts, const Key& key, int more) {
    auto at = counts.try_emplace(key, 0).first;
    at->second += more;
    if (at->second == 0) counts.erase(at);
}

template <class Key>
static int find(const std::map<Key, int>& counts, const Key& key) {
    auto found = counts.find(key);
    return found == counts.end() ? 0 : found->second;
}

void SentClients::count(const Sent& sent, int sign) {
    add(by_node_, {sent.node, sent.gpu}, sign * sent.count);
    add(by_node_and_user_, {sent.node, sent.gpu, sent.user}, sign * sent.count);
    add(by_user_, sent.user, sign);
}

void SentClients::note(const std::string& claim, Sent sent, Time now) {
    if (order_.size() >= sent_max || find(by_user_, sent.user) >= sent_per_user_max) return;
    if (auto before = sent_.extract(claim)) count(before.mapped().sent, -1);
    count(sent, 1);
    order_.emplace_back(now, claim);
    sent_[claim] = {std::move(sent), now};
}

void SentClients::forget_old(Time now) {
    for (; !order_.empty() && now - order_.front().first > sent_remembered_for; order_.pop_front()) {
        auto found = sent_.find(order_.front().second);
        if (found == sent_.end() || found->second.at != order_.front().first) continue;
        count(found->second.sent, -1);
        sent_.erase(found);
    }
}

const std::string* SentClients::node_of(const std::string& claim) const {
    auto found = sent_.find(claim);
    return found == sent_.end() ? nullptr : &found->second.sent.node;
}

int SentClients::on_way(const std::string& node, const std::string& gpu) const {
    return find(by_node_, {node, gpu});
}

int SentClients::on_way(const std::string& node, const std::string& gpu, const std::string& user) const {
    return find(by_node_and_user_, {node, gpu, user});
}

}  // namespace tnr::server
