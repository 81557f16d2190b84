// Whose turn it is when several users wait for GPUs: his who has used least of late, for his weight. What was used fades
// with a half-life of an hour, so that nobody pays for yesterday, and a user who has held GPUs for long lets others go first.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "gpu_server/supervisor/event_loop.hpp"

namespace tnr::server {

class FairShare {
public:
    using Time = EventLoop::Clock::time_point;

    void began(const std::string& user, int gpus, Time now);
    void ended(const std::string& user, int gpus, Time now);
    int held(const std::string& user) const;
    // GPU-seconds, faded; what is held now counts up to now.
    double used(const std::string& user, Time now) const;

    nlohmann::json handed_over() const;
    void take_over(const nlohmann::json& told);

private:
    struct Use {
        double faded = 0;  // at `at`
        int held = 0;
        Time at{};
    };
    static double faded(const Use& use, Time now);
    Use& at(const std::string& user, Time now);
    std::map<std::string, Use> users_;  // those whose use has not faded away
};

}  // namespace tnr::server
