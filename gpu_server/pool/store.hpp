// Whose keys a pool knows. Who used which GPU how long is in ledger.hpp.
//
// SQLite in the state folder is the store of a single node; etcd will be that of many. Several processes may use one
// store at once (`enroll` beside a running `serve`), and all methods may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"

namespace tnr::server {

// Whose key it is. An account's keys may enroll machines; a machine's key can only use GPUs for that machine.
struct Owner {
    enum class Role { account, machine };
    Role role = Role::account;
    std::string account;
    std::string machine = {};  // empty for an account
};

struct KeyRecord {
    std::string public_key;
    Owner owner;
    int64_t enrolled_ms = 0;  // since 1970
};

// What the operator allows a user.
struct UserLimits {
    std::optional<int> gpus_max;  // at once
    double weight = 1;            // of two that wait, one with 2 gets twice as much
};

// Machines that have a key of their own. More than any account of ours has; each is a line in the store.
inline constexpr int64_t machines_per_account_max = 1024;

class Store {
public:
    virtual ~Store() = default;

    // Kind usage when the name is taken, unless `replace`: then the account's earlier key and its machines' are gone.
    virtual Result<> add_account(const std::string& name, const std::string& public_key, bool replace) = 0;
    // Replaces the machine's earlier key. Kind usage when the key already belongs to somebody else, or the account has
    // machines_per_account_max.
    virtual Result<> put_machine(const std::string& account, const std::string& name,
                                 const std::string& public_key) = 0;
    // With its machines. Kind not_found when there is none.
    virtual Result<> remove_account(const std::string& name) = 0;
    // Succeeds when there is none.
    virtual Result<> remove_machine(const std::string& account, const std::string& name) = 0;
    virtual Result<std::optional<Owner>> find_key(const std::string& public_key) = 0;
    virtual Result<std::vector<KeyRecord>> keys() = 0;

    // Kind not_found when there is no such account. They go with the account.
    virtual Result<> set_limits(const std::string& account, const UserLimits& limits) = 0;
    virtual Result<UserLimits> limits(const std::string& account) = 0;
};

Result<std::unique_ptr<Store>> open_sqlite_store(const std::string& path);

}  // namespace tnr::server
