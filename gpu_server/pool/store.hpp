// Whose keys a pool knows, what they may, and what an hour of a GPU costs. Who used which GPU how long is in ledger.hpp.
//
// SQLite in the state folder is the store of a single node; etcd (etcd_store.cpp) that of many. Several processes may use one
// store at once (`user add` beside a running `serve`), and all methods may be called from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"
#include "gpu_server/pool/etcd.hpp"

namespace tnr::server {

// Whose key it is. An account's keys may enroll machines; a machine's key can only use GPUs for that machine; a token's can
// only be traded for the account's key, once.
struct Owner {
    enum class Role { account, machine, token };
    Role role = Role::account;
    std::string account;
    std::string machine = {};  // of a machine only
    bool is_operator = false;  // the account's own key, of one that may see everybody's claims and bills
};

struct KeyRecord {
    std::string public_key;
    Owner owner;
    int64_t enrolled_ms = 0;  // since 1970
};

// What a user is allowed.
struct UserLimits {
    std::optional<int> gpus_max;  // at once
    double weight = 1;            // of two that wait, one with 2 gets twice as much
    int priority = 0;             // who has a higher one gets the next GPU, whatever was used before
    bool is_operator = false;
    std::optional<uint64_t> device_memory_max = {};  // bytes of each of its GPUs that a claim may use

    // "1 GPU at once", "2 GPUs at once", "all GPUs".
    std::string gpus_in_words() const {
        if (!gpus_max) return "all GPUs";
        return std::to_string(*gpus_max) + (*gpus_max == 1 ? " GPU at once" : " GPUs at once");
    }
    bool operator==(const UserLimits&) const = default;
};

// A key pair that is worth an account's key: once, for a while. Only the public half is known here, and it does not tell
// the secret one, which is what the user gets. Those that are used or too old are remembered for a day, so that who comes
// with one can be told.
struct Token {
    std::string public_key;
    std::string account;
    int64_t issued_ms = 0, expires_ms = 0;  // since 1970
    int64_t used_ms = 0;                    // 0: not yet
    // Also false for one that seems to come from the future: the clock has been set back, perhaps beyond its end.
    bool open(int64_t now_ms) const { return used_ms == 0 && now_ms >= issued_ms && now_ms < expires_ms; }
};
inline constexpr int64_t tokens_remembered_ms = int64_t{24} * 3600 * 1000;

// An hour of one GPU of this type, from then on.
struct GpuPrice {
    int64_t id = 0;
    std::string gpu;
    int64_t since_ms = 0;
    std::string currency;                    // "USD"
    std::optional<int64_t> micros_per_hour;  // millionths of it; nothing: no price any more
};

// Machines that have a key of their own. More than any account of ours has; each is a line in the store.
inline constexpr int64_t machines_per_account_max = 1024;

// Clocks of a pool's nodes may differ by so much, and who sets a price need not hear of it.
inline constexpr std::chrono::milliseconds price_clocks_differ_by{60'000};

// Each change is all or nothing, but for the removal of an account with so many machines that etcd does not take it at once,
// by remove_account() or `replace`: from its first step on none of the earlier keys is let in, the new one comes with the
// last, and what broke off is made again by the same call.
class Store {
public:
    virtual ~Store() = default;

    // Kind usage when the name is taken, unless `replace`: then the account's earlier key and its machines' are gone.
    virtual Result<> add_account(const std::string& name, const std::string& public_key, bool replace) = 0;
    // An account that has no key until somebody redeems the token; earlier tokens of it are gone. Otherwise as add_account().
    virtual Result<> add_token(const Token& token, bool replace) = 0;
    // `public_key` is the account's key from now on. Again with the same key: succeeds, for an answer that was lost. Kind
    // auth when the token is used, too old or unknown.
    virtual Result<> redeem_token(const std::string& token, const std::string& public_key, int64_t now_ms) = 0;
    virtual Result<std::vector<Token>> tokens() = 0;
    // Replaces the machine's earlier key. Kind usage when the key already belongs to somebody else, or the account has
    // machines_per_account_max; auth when the account has no key of its own.
    virtual Result<> put_machine(const std::string& account, const std::string& name,
                                 const std::string& public_key) = 0;
    // With its machines, limits and tokens. Kind not_found when there is none.
    virtual Result<> remove_account(const std::string& name) = 0;
    // Succeeds when there is none.
    virtual Result<> remove_machine(const std::string& account, const std::string& name) = 0;
    // A machine's only while its account has a key of its own.
    virtual Result<std::optional<Owner>> find_key(const std::string& public_key) = 0;
    virtual Result<std::vector<KeyRecord>> keys() = 0;

    // Kind not_found when there is no such account. They go with the account; who has the same name later begins anew.
    virtual Result<> set_limits(const std::string& account, const UserLimits& limits) = 0;
    virtual Result<UserLimits> limits(const std::string& account) = 0;

    // From `now_ms` on, and durable when this returns; and behind those of the type that there are already. Where one of
    // those begins more than price_clocks_differ_by later, a clock is or was wrong: then this is refused (kind usage), or,
    // if the caller knows that `now_ms` is right, the other begins at `now_ms`, too.
    virtual Result<> set_price(const std::string& gpu, const std::string& currency,
                               std::optional<int64_t> micros_per_hour, int64_t now_ms, bool clock_is_right = false) = 0;
    // The one that holds at this time.
    virtual Result<std::optional<GpuPrice>> price_at(const std::string& gpu, int64_t at_ms) = 0;
    // All there were, in the order in which they were set, behind the one with this id, `most` of them.
    virtual Result<std::vector<GpuPrice>> prices(int64_t behind_id, int most) = 0;
};

// In etcd, for many nodes; what is looked up comes from a copy that follows, so it never waits. Changes wait for etcd.
Result<std::unique_ptr<Store>> open_etcd_store(const etcd::Address& address);

Result<std::unique_ptr<Store>> open_sqlite_store(const std::string& path);

}  // namespace tnr::server
