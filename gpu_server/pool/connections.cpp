// See connections.hpp.
#include "gpu_server/pool/connections.hpp"

#include <algorithm>

namespace tnr::server {

// How many sources there may be before we look for those that need not be remembered: they have nothing open and all of
// their burst.
static constexpr size_t sources_before_sweep = 1024;

static size_t count_of(const std::map<std::string, size_t>& counts, const std::string& name) {
    auto found = counts.find(name);
    return found == counts.end() ? 0 : found->second;
}

static void one_less(std::map<std::string, size_t>& counts, const std::string& name) {
    auto found = counts.find(name);
    if (found != counts.end() && --found->second == 0) counts.erase(found);
}

Connections::Source& Connections::source(const std::string& name, Clock::time_point now) {
    auto settled = [&](Source& source) {
        std::chrono::duration<double> passed = now - source.at;
        const bool known = now < source.known_until;
        const double per_second = known ? limits_.unproven_per_second_known : limits_.unproven_per_second;
        source.spent = std::max(0.0, source.spent - std::max(0.0, passed.count()) * per_second);
        source.at = now;
        return source.unproven.empty() && source.spent == 0 && !known;
    };
    if (sources_.size() > sources_before_sweep)
        for (auto each = sources_.begin(); each != sources_.end();)
            each = settled(each->second) ? sources_.erase(each) : std::next(each);
    auto [found, added] = sources_.try_emplace(name);
    if (added) found->second.at = now;
    settled(found->second);
    return found->second;
}

Connections::Place Connections::accepted(int descriptor, const std::string& from, Clock::time_point now) {
    LockGuard lock(mutex_);
    forget(descriptor);
    auto& its = source(from, now);
    const auto place = its.spent + 1 > limits_.unproven_burst ? Place::none : make_room(its, now);
    if (place == Place::none) return place;
    its.unproven.push_back(descriptor);
    its.spent += 1;
    open_[descriptor] = {from, "", "", now};
    return place;
}

Connections::Place Connections::make_room(Source& its, Clock::time_point now) {
    if (its.unproven.size() < limits_.unproven_per_source) return Place::free;
    const int first = its.unproven.front();
    auto& waited_longest = open_.at(first);
    if (now - waited_longest.since < limits_.handshake) return Place::none;
    cut_(first);
    leave_source(first, waited_longest);
    return Place::of_another;
}

void Connections::leave_source(int descriptor, Connection& connection) {
    auto its = sources_.find(connection.source);
    if (its == sources_.end()) return;
    std::erase(its->second.unproven, descriptor);
    connection.source.clear();
}

Connections::Room Connections::proven(int descriptor, const std::string& key, const std::string& account,
                                      Clock::time_point now) {
    LockGuard lock(mutex_);
    auto of_key = count_of(keys_, key), of_account = count_of(accounts_, account);
    bool fits = key.empty() || (of_key < limits_.per_key && of_account < limits_.per_account);
    bool told = of_key < limits_.per_key + limits_.crowded && of_account < limits_.per_account + limits_.crowded;
    if (!fits && !told) return Room::none;
    auto& one = open_[descriptor];
    if (auto its = sources_.find(one.source); its != sources_.end()) {
        its->second.spent = std::max(0.0, its->second.spent - 1);
        its->second.known_until = now + limits_.known_for;
    }
    leave_source(descriptor, one);
    one = {"", key, account};
    if (!key.empty()) ++keys_[key], ++accounts_[account];
    return fits ? Room::enough : Room::crowded;
}

void Connections::closed(int descriptor) {
    LockGuard lock(mutex_);
    forget(descriptor);
}

void Connections::forget(int descriptor) {
    auto found = open_.find(descriptor);
    if (found == open_.end()) return;
    auto& one = found->second;
    leave_source(descriptor, one);
    if (!one.key.empty()) {
        one_less(keys_, one.key);
        one_less(accounts_, one.account);
    }
    open_.erase(found);
}

size_t Connections::of_key(const std::string& key) const {
    LockGuard lock(mutex_);
    return count_of(keys_, key);
}

size_t Connections::unproven_of(const std::string& from) const {
    LockGuard lock(mutex_);
    auto found = sources_.find(from);
    return found == sources_.end() ? 0 : found->second.unproven.size();
}

}  // namespace tnr::server
