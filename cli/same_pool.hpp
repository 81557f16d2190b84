// Each pool counts once, however often one is signed in to it: every node of a pool, and every address of a server, answers
// for all of it. Logins with one account's key whose servers tell the same identity are one pool.
#pragma once

#include <algorithm>
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

// A login, and what its pool answers; those of several may be asked side by side.
struct AskedLogin {
    PoolLogin login;
    Result<std::unique_ptr<Pool>> pool;
    bool greets = false;  // there are others, which may be the same pool: it is asked which it is
    enum class Heard { nothing, refusal, greeting, answer } heard = Heard::nothing;

    template <class Question>
    auto ask(const Question& question) -> decltype(question(**pool)) {
        if (!pool) return pool.error();
        if (greets) {
            auto hello = (*pool)->hello();
            if (!hello && hello.error().kind != Error::Kind::network) heard = Heard::refusal;
            if (!hello) return hello.error();
            heard = Heard::greeting;
            login.pool = hello->pool;
        }
        auto answer = question(**pool);
        if (answer) heard = Heard::answer;
        return answer;
    }
};
std::vector<AskedLogin> open_logins(Session& session, const std::vector<PoolLogin>& logins);

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
