// See same_pool.hpp.
#include "cli/same_pool.hpp"

#include <algorithm>

#include "api_client/base/interrupt.hpp"
#include "cli/session.hpp"
#include "cli/ui/time.hpp"

namespace tnr::cli {

bool one_pool(const PoolLogin& a, const PoolLogin& b) {
    return !a.pool.empty() && a.pool == b.pool && a.keys.own.public_key == b.keys.own.public_key;
}

std::vector<AskedLogin> open_logins(Session& session, const std::vector<PoolLogin>& logins) {
    std::vector<AskedLogin> all;
    for (const auto& login : logins) {
        AskedLogin asked{login, session.pool(login), logins.size() > 1};
        for (const auto& other : all)
            if (one_pool(other.login, login)) asked.first_greeting = other.first_greeting;
        if (asked.pool) (*asked.pool)->give_up_when([first = asked.first_greeting] { return first->is_past(); });
        all.push_back(std::move(asked));
    }
    return all;
}

namespace {

// All that there are, in the order in which they are worth a try: `wanted`, the newest, those that were silent.
std::vector<PoolLogin> addresses_of(Session& session, const PoolLogin& wanted) {
    std::vector<PoolLogin> all{wanted};
    auto logins = session.logins().all();
    if (!logins) return all;
    for (auto login = logins->rbegin(); login != logins->rend(); ++login)
        if (login->address != wanted.address && one_pool(*login, wanted)) all.push_back(*login);
    const auto now = ui::seconds_of(session.now()).value_or(0);
    std::stable_partition(all.begin(), all.end(),
                          [&](const PoolLogin& login) { return !session.silent_pools().lately(login.address, now); });
    return all;
}

}  // namespace

Result<OpenPool> open_pool(Session& session, const PoolLogin& wanted) {
    const auto addresses = addresses_of(session, wanted);
    const auto now = ui::seconds_of(session.now()).value_or(0);
    const bool silent_before = session.silent_pools().lately(wanted.address, now);
    for (const auto& login : addresses) {
        if (addresses.size() == 1) break;
        auto pool = session.pool(login);
        if (!pool) continue;
        (*pool)->wait_for_connection(SilentPools::patience);
        auto hello = (*pool)->hello();
        if (interrupt::interrupted()) return interrupt::error();
        if (!hello || (login.address != wanted.address && hello->pool != wanted.pool)) continue;
        (*pool)->wait_for_connection(control::default_timeout);
        if (login.address != wanted.address)
            session.err << "note: the pool does not answer at " << wanted.address << "; it is asked at "
                        << login.address << "\n";
        return OpenPool{login, std::move(*pool)};
    }
    auto pool = session.pool(wanted);
    if (!pool) return pool.error();
    if (!silent_before) (*pool)->wait_for_connection(control::default_timeout);  // none was given that long yet
    return OpenPool{wanted, std::move(*pool)};
}

Result<OpenPool> open_pool(Session& session, const std::string& address) {
    auto login = session.logins().find(address);
    if (!login) return login.error();
    return open_pool(session, *login);
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
