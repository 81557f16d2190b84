// What a pool must not forget: whose keys it knows, and who used which GPU how long.
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

// One line of the ledger.
struct ClaimRecord {
    int64_t id = 0;
    std::string account, machine;
    std::string gpu;      // type
    std::string devices;  // UUIDs, comma-separated
    int64_t began_ms = 0;
    std::optional<int64_t> ended_ms = {};
    std::string reason = {};  // why it ended
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

    // `claim.id` is chosen here and returned.
    virtual Result<int64_t> begin_claim(const ClaimRecord& claim) = 0;
    virtual Result<> end_claim(int64_t id, int64_t ended_ms, const std::string& reason) = 0;
    // "Open claims are really in use at this moment": what recovery takes for their end after a crash.
    virtual Result<> note_alive(int64_t now_ms) = 0;
    // After a crash: ends the claims that nobody ended. Returns them as they are now.
    virtual Result<std::vector<ClaimRecord>> close_open_claims(const std::string& reason) = 0;
    virtual Result<std::vector<ClaimRecord>> ledger() = 0;  // oldest first
};

Result<std::unique_ptr<Store>> open_sqlite_store(const std::string& path);

}  // namespace tnr::server
