// See fair_share.hpp.
#include "gpu_server/supervisor/fair_share.hpp"

#include <cmath>

#include "gpu_server/supervisor/handover.hpp"

namespace tnr::server {

using nlohmann::json;

// Of an exponential: ln 2 / half-life.
static constexpr double fades_per_second = 0.693147 / 3600;
// GPU-seconds that nobody need remember; and how many users there may be before we look for such.
static constexpr double forgotten_below = 1;
static constexpr size_t users_before_sweep = 1024;

// While n GPUs are held, what was used grows by n a second and fades at the same time.
double FairShare::faded(const Use& use, Time now) {
    double seconds = std::chrono::duration<double>(now - use.at).count();
    double rest = std::exp(-seconds * fades_per_second);
    return use.faded * rest + use.held * (1 - rest) / fades_per_second;
}

FairShare::Use& FairShare::at(const std::string& user, Time now) {
    if (users_.size() > users_before_sweep)
        std::erase_if(users_, [&](const auto& each) {
            return each.second.held == 0 && faded(each.second, now) < forgotten_below;
        });
    auto [found, added] = users_.try_emplace(user);
    auto& use = found->second;
    if (!added) use.faded = faded(use, now);
    use.at = now;
    return use;
}

void FairShare::began(const std::string& user, int gpus, Time now) {
    at(user, now).held += gpus;
}

void FairShare::ended(const std::string& user, int gpus, Time now) {
    at(user, now).held -= gpus;
}

json FairShare::handed_over() const {
    json told = json::array();
    for (auto& [user, use] : users_)
        told.push_back({{"user", user}, {"faded", use.faded}, {"held", use.held}, {"at", ticks(use.at)}});
    return told;
}

void FairShare::take_over(const json& told) {
    for (auto& use : told)
        users_[use.at("user").get<std::string>()] = {use.at("faded").get<double>(), use.at("held").get<int>(),
                                                     time_of(use.at("at"))};
}

int FairShare::held(const std::string& user) const {
    auto found = users_.find(user);
    return found == users_.end() ? 0 : found->second.held;
}

double FairShare::used(const std::string& user, Time now) const {
    auto found = users_.find(user);
    return found == users_.end() ? 0 : faded(found->second, now);
}

}  // namespace tnr::server
