// `tnr-gpu-server user …`, `rotate-key` and `audit`: who may use the pool, and who changed that. They work on the state
// folder, whether a server runs or not; one that runs takes note within half a second. Each change is a line of the audit
// log.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "api_client/base/result.hpp"

namespace tnr::server {

struct UserAddOptions {
    std::string name;
    std::string address;  // empty: where `serve` listened last
    std::string state;
    bool replace = false;
    bool token = false;   // print one, instead of a key
    std::string expires;  // of the token: "1h"; empty: token_lasts
    bool is_operator = false;
};

// Prints exactly one line, with the only copy of the secret there is: a token to be traded for a key that the user's
// computer makes, or a key itself. Replacing an account's key makes its machines' keys worthless, too, at once, also where a
// token is to bring the new one; a server that runs ends what they run within moments.
Result<> user_add(const UserAddOptions& options, std::ostream& out);

// Users, their machines, and tokens that are still good.
Result<> user_list(const std::string& state, std::ostream& out);

// The account's keys and its machines' (or only that machine's) are worthless from now on, and a server that runs ends its
// programs within moments. With the account its code images go; the ledger keeps what it used.
Result<> user_remove(const std::string& name, const std::string& machine, const std::string& state, std::ostream& out);

// What a user may do. What is not said stays as it was.
struct UserLimitOptions {
    std::string name;
    std::optional<int> gpus;    // at once; 0: as many as there are
    std::string device_memory;  // "16G", of each GPU, for each claim from the next one on; "0": all; empty: as it was
    std::optional<double> weight;
    std::optional<int> priority;
    std::string role;  // "user", "operator", or empty
    std::string state;
};
Result<> user_limit(const UserLimitOptions& options, std::ostream& out);

// A new key of the server's. Until `overlap` ("30d") has passed the old one is served as well, and clients that come with it
// learn the new one; or, if `drop_old`, an earlier rotation's old key is worthless from now on.
struct RotateOptions {
    std::string overlap;
    bool drop_old = false;
    std::string state;
};
Result<> rotate_key(const RotateOptions& options, std::ostream& out);

// What the audit log has, the last `since` ("24h") of it; empty: all.
Result<> print_audit(const std::string& since, const std::string& state, std::ostream& out);

// "90s", "10m", "1h", "7d", with no more than `most`.
Result<std::chrono::seconds> parse_duration(const std::string& text, std::chrono::seconds most);

}  // namespace tnr::server
