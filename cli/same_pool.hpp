// Each pool counts once, however often one is signed in to it: every node of a pool, and every address of a server, answers
// for all of it. Logins with one account's key whose servers tell the same identity are one pool.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/pool.hpp"

namespace tnr::cli {

struct Session;

// Where one pool is: as we ask it, and the further addresses of ours at which it is the same one.
struct PoolAddresses {
    std::string address;
    std::vector<std::string> also = {};
    bool is_at(const std::string& where) const {
        return where == address || std::find(also.begin(), also.end(), where) != also.end();
    }
};

// When one address of a pool has greeted: then the others, which may have become another pool's meanwhile, are waited for a
// little longer, and not for as long as silent ones are. Any thread may ask.
class FirstGreeting {
public:
    void note() {
        int64_t never = 0;
        at_ms_.compare_exchange_strong(never, now_ms());
    }
    bool is_past() const { return at_ms_ != 0 && now_ms() - at_ms_ > others_come_within_ms; }

private:
    static constexpr int64_t others_come_within_ms = 300;
    static int64_t now_ms() {
        using namespace std::chrono;
        return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
    }
    std::atomic<int64_t> at_ms_ = 0;
};

// A login, and what its pool answers; those of several may be asked side by side.
struct AskedLogin {
    PoolLogin login;
    Result<std::unique_ptr<Pool>> pool;
    bool greets = false;  // there are others, which may be the same pool: it is asked which it is
    enum class Heard { nothing, refusal, greeting, answer } heard = Heard::nothing;
    // Of all logins at which the same pool was last.
    std::shared_ptr<FirstGreeting> first_greeting = std::make_shared<FirstGreeting>();

    template <class Question>
    auto ask(const Question& question) -> decltype(question(**pool)) {
        if (!pool) return pool.error();
        if (greets) {
            auto hello = (*pool)->hello();
            if (!hello && hello.error().kind != Error::Kind::network) heard = Heard::refusal;
            if (!hello) return hello.error();
            heard = Heard::greeting;
            if (login.pool == hello->pool) first_greeting->note();
            login.pool = hello->pool;
        }
        auto answer = question(**pool);
        if (answer) heard = Heard::answer;
        return answer;
    }
};
std::vector<AskedLogin> open_logins(Session& session, const std::vector<PoolLogin>& logins);

// The pool at `address` (empty: the default one), or at another address that we know it to have, where it answers there
// only. Where it answers nowhere, the pool that was asked for, which will say so. Kind auth where we are not signed in.
struct OpenPool {
    PoolLogin login;
    std::unique_ptr<Pool> pool;
};
Result<OpenPool> open_pool(Session& session, const std::string& address);
Result<OpenPool> open_pool(Session& session, const PoolLogin& login);

// One account's logins at one pool, as far as we know.
bool one_pool(const PoolLogin& a, const PoolLogin& b);

// By login, which of them stands for its pool: the first that answered, else the one that we have heard most of. Of one that
// is silent, the pool is the one that it was last; an older server tells none, and is a pool of its own. What was told now is
// noted for the next time.
std::vector<size_t> ones_for_their_pools(Session& session, const std::vector<AskedLogin>& asked);

// Of answers, each with the PoolAddresses of one login, those that count; the addresses of the others are in its `also`.
template <class Answer>
std::vector<Answer> one_of_each_pool(Session& session, const std::vector<AskedLogin>& asked,
                                     std::vector<Answer> answers) {
    const auto ones = ones_for_their_pools(session, asked);
    std::vector<Answer> kept;
    for (size_t i = 0; i < answers.size(); ++i) {
        if (ones[i] != i) continue;
        kept.push_back(std::move(answers[i]));
        for (size_t other = 0; other < answers.size(); ++other)
            if (other != i && ones[other] == i) kept.back().also.push_back(asked[other].login.address);
    }
    return kept;
}

}  // namespace tnr::cli
