// See looks.hpp.
#include "gpu_server/supervisor/looks.hpp"

#include <algorithm>

#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

using std::chrono::milliseconds;

void Looks::look(Question question, std::function<void()> then) {
    auto& nodes = directory_.nodes();
    // A type that no node has is a name that somebody has made up; each would be one more question to the store.
    std::erase_if(question.free, [&](auto& one) { return !offered(one.first); });
    if (nodes.empty() || question == Question{}) return then();
    if (!question.all_claims && !question.all_free) return directory_.look(question, std::move(then));
    wanted_.all_claims |= question.all_claims;
    wanted_.all_free |= question.all_free;
    waiting_.push_back(std::move(then));
    look_at_all();
}

bool Looks::offered(const std::string& type) const {
    auto& nodes = directory_.nodes();
    return std::any_of(nodes.begin(), nodes.end(),
                       [&](auto& node) { return !node.second.kinds || node.second.kinds->count(type) > 0; });
}

void Looks::look_at_all() {
    if (looking_ || timer_ != 0 || waiting_.empty()) return;
    const auto now = loop_.now();
    if (now < paused_until_) {
        auto pause = std::chrono::ceil<milliseconds>(paused_until_ - now);
        timer_ = loop_.after(pause, [this] {
            timer_ = 0;
            look_at_all();
        });
        return;
    }
    looking_ = true;
    directory_.look(std::exchange(wanted_, {}),
                    [this, now, waiting = std::exchange(waiting_, {})] { looked_at_all(now, waiting); });
}

void Looks::looked_at_all(EventLoop::Clock::time_point began, const std::vector<std::function<void()>>& waiting) {
    const auto now = loop_.now();
    auto pause = std::chrono::duration_cast<milliseconds>(9 * (now - began));
    paused_until_ = now + std::clamp(pause, look_at_all_pause_min, look_at_all_pause_max);
    looking_ = false;
    for (auto& then : waiting) then();
    look_at_all();
}

}  // namespace tnr::server
