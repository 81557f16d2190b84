// See same_pool.hpp.
#include "cli/same_pool.hpp"

#include "cli/session.hpp"

namespace tnr::cli {

std::vector<AskedLogin> open_logins(Session& session, const std::vector<PoolLogin>& logins) {
    std::vector<AskedLogin> all;
    for (const auto& login : logins) all.push_back({login, session.pool(login), logins.size() > 1});
    return all;
}

static bool one_pool(const PoolLogin& a, const PoolLogin& b) {
    return !a.pool.empty() && a.pool == b.pool && a.keys.own.public_key == b.keys.own.public_key;
}

std::vector<size_t> ones_for_their_pools(Session& session, const std::vector<AskedLogin>& asked) {
    std::vector<size_t> ones(asked.size());
    for (size_t i = 0; i < asked.size(); ++i) {
        ones[i] = i;
        for (size_t other = asked.size(); other-- > 0;)
            if (one_pool(asked[i].login, asked[other].login) && asked[other].heard >= asked[ones[i]].heard)
                ones[i] = other;
        // Where it cannot be noted it is asked again.
        if (asked[i].greets && asked[i].heard >= AskedLogin::Heard::greeting)
            (void)session.logins().note_pool(asked[i].login.address, asked[i].login.pool);
    }
    return ones;
}

}  // namespace tnr::cli
