// See turns.hpp.
#include "gpu_server/supervisor/turns.hpp"

namespace tnr::server {

bool Turns::add(Asked&& request) {
    auto found = queues_.find(request.peer());
    if (found != queues_.end() && (found->second.requests.size() >= requests_per_peer_max ||
                                   found->second.bytes + request.text.size() > request_bytes_per_peer_max))
        return false;
    auto& queue = queues_[request.peer()];
    queue.bytes += request.text.size();
    queue.requests.push_back(std::move(request));
    return true;
}

std::optional<Asked> Turns::next() {
    if (queues_.empty()) return std::nullopt;
    auto turn = queues_.upper_bound(last_);
    if (turn == queues_.end()) turn = queues_.begin();
    last_ = turn->first;
    auto& queue = turn->second;
    Asked request = std::move(queue.requests.front());
    queue.requests.pop_front();
    queue.bytes -= request.text.size();
    if (queue.requests.empty()) queues_.erase(turn);
    return request;
}

}  // namespace tnr::server
