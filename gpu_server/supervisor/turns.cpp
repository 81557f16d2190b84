// See turns.hpp.
#include "gpu_server/supervisor/turns.hpp"

#include <algorithm>

namespace tnr::server {

// Users there may be before we look for those that have spent nothing for a while.
static constexpr size_t allowances_before_sweep = 1024;

double Allowance::after(Clock::time_point now) const {
    if (at_ == Clock::time_point{}) return burst_;
    std::chrono::duration<double> passed = now - at_;
    return std::min(burst_, left_ + std::max(0.0, passed.count()) * per_second_);
}

bool Allowance::take(Clock::time_point now) {
    left_ = after(now);
    at_ = now;
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
}

void Allowance::spend(double amount, Clock::time_point now) {
    left_ = after(now) - amount;
    at_ = now;
}

bool Allowance::full(Clock::time_point now) const {
    return after(now) >= burst_;
}

Allowance& Allowances::of(const std::string& user, Allowance::Clock::time_point now) {
    if (of_.size() > allowances_before_sweep) std::erase_if(of_, [&](auto& each) { return each.second.full(now); });
    return of_.try_emplace(user, per_second_, burst_).first->second;
}

bool Allowances::overspent(const std::string& user, Allowance::Clock::time_point now) const {
    auto found = of_.find(user);
    return found != of_.end() && found->second.overspent(now);
}

Turns::Taken Turns::add(Asked& request, Clock::time_point now) {
    // An open pool's peers are on this host, and each connection is another: nothing that could be counted.
    if (!request.account.empty() && !allowances_.take(request.account, now)) return Taken::too_fast;
    const size_t bytes = request.text.size();
    if (auto user = waiting_.find(request.user()); user != waiting_.end()) {
        if (user->second.requests >= requests_per_account_max ||
            user->second.bytes + bytes > request_bytes_per_account_max)
            return Taken::too_many;
        auto queue = user->second.queues.find(request.peer());
        if (queue != user->second.queues.end() && (queue->second.requests.size() >= requests_per_peer_max ||
                                                   queue->second.bytes + bytes > request_bytes_per_peer_max))
            return Taken::too_many;
    }
    auto& user = waiting_[request.user()];
    auto& queue = user.queues[request.peer()];
    ++user.requests;
    user.bytes += bytes;
    queue.bytes += bytes;
    queue.requests.push_back(std::move(request));
    return Taken::yes;
}

// The one after the last, round and round.
template <class Map>
static typename Map::iterator turn_after(Map& map, std::string& last) {
    auto turn = map.upper_bound(last);
    if (turn == map.end()) turn = map.begin();
    last = turn->first;
    return turn;
}

void Turns::answered(const std::string& account, size_t bytes, Clock::time_point now) {
    if (!account.empty()) answers_.spend(account, static_cast<double>(bytes) / answer_bytes_per_request, now);
}

std::optional<Asked> Turns::next(Clock::time_point now) {
    if (waiting_.empty()) return std::nullopt;
    auto user = turn_after(waiting_, last_);
    for (size_t passed = 1; answers_.overspent(user->first, now); ++passed) {
        if (passed == waiting_.size()) return std::nullopt;
        user = turn_after(waiting_, last_);
    }
    auto queue = turn_after(user->second.queues, user->second.last);
    Asked request = std::move(queue->second.requests.front());
    queue->second.requests.pop_front();
    queue->second.bytes -= request.text.size();
    user->second.bytes -= request.text.size();
    --user->second.requests;
    if (queue->second.requests.empty()) user->second.queues.erase(queue);
    if (user->second.queues.empty()) waiting_.erase(user);
    return request;
}

}  // namespace tnr::server
