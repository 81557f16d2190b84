// Requests that wait for their turn. Each user has a turn after the other, and within a user's each of his keys: so whoever
// asks much, with however many keys, waits for himself, and everybody else for at most one request of his. A user is an
// account; in an open pool, where nobody has one, each connection is a user.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "gpu_server/supervisor/asker.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

// A request as it came.
struct Asked {
    std::string public_key;  // proven by the handshake; empty when plain
    std::string account;     // that the key had when its connection was let in
    bool crowded = false;    // its connection is one too many
    std::string address;     // the sender's
    std::string route;       // the way back
    PeerConnection connection = {};
    std::string text;
    const std::string& peer() const { return public_key.empty() ? route : public_key; }
    const std::string& user() const { return account.empty() ? peer() : account; }
};

// What may be spent at once, and comes back with time.
class Allowance {
public:
    using Clock = std::chrono::steady_clock;
    Allowance(double per_second, double burst) : per_second_(per_second), burst_(burst), left_(burst) {}
    bool take(Clock::time_point now);
    // Also what is not there: it has to come back first.
    void spend(double amount, Clock::time_point now);
    bool overspent(Clock::time_point now) const { return after(now) < 0; }
    bool full(Clock::time_point now) const;

private:
    double after(Clock::time_point now) const;
    double per_second_, burst_, left_;
    Clock::time_point at_{};
};

// One for each user.
class Allowances {
public:
    Allowances(double per_second, double burst) : per_second_(per_second), burst_(burst) {}
    bool take(const std::string& user, Allowance::Clock::time_point now) { return of(user, now).take(now); }
    void spend(const std::string& user, double amount, Allowance::Clock::time_point now) {
        of(user, now).spend(amount, now);
    }
    bool overspent(const std::string& user, Allowance::Clock::time_point now) const;

private:
    Allowance& of(const std::string& user, Allowance::Clock::time_point now);
    double per_second_, burst_;
    std::map<std::string, Allowance> of_;
};

class Turns {
public:
    using Clock = std::chrono::steady_clock;
    enum class Taken { yes, too_many, too_fast };
    // Takes what is in the request; unless yes, leaves it as it was.
    Taken add(Asked& request, Clock::time_point now = Clock::now());
    // Nothing also while all who wait have spent what they may.
    std::optional<Asked> next(Clock::time_point now = Clock::now());
    // What a user was answered, for what next() says.
    void answered(const std::string& account, size_t bytes, Clock::time_point now = Clock::now());
    bool empty() const { return waiting_.empty(); }

private:
    struct Queue {
        std::deque<Asked> requests;
        size_t bytes = 0;
    };
    struct User {
        std::map<std::string, Queue> queues;  // by peer; none is empty
        std::string last;                     // who has had its turn
        size_t requests = 0, bytes = 0;
    };

    std::map<std::string, User> waiting_;  // none is empty
    std::string last_;                     // who has had its turn
    Allowances allowances_{requests_per_second_max, requests_burst};
    Allowances answers_{requests_per_second_max, requests_burst};  // as if they were requests
};

}  // namespace tnr::server
