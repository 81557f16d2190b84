// The commands of tnr-gpu-server beside `serve`: they work on the state folder, whether a server runs or not.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "api_client/base/result.hpp"

namespace tnr::server {

struct EnrollOptions {
    std::string name;
    std::string address;  // empty: where `serve` listened last
    std::string state;
    bool replace = false;
};

// Prints exactly one line, with the only copy of the secret there is. Replacing an account's key makes its machines' keys
// worthless, too; a server that runs ends what they run within moments.
Result<> enroll(const EnrollOptions& options, std::ostream& out);

Result<> list_keys(const std::string& state, std::ostream& out);

// The account's keys and its machines' are worthless from now on, its code images are removed, and a server that runs ends
// its programs within moments. The ledger keeps what it used.
Result<> forget_account(const std::string& name, const std::string& state, std::ostream& out);

// What an account may use at once, and its part when several wait. What is not said stays as it was.
struct LimitOptions {
    std::string name;
    std::optional<int> gpus;  // 0: as many as there are
    std::optional<double> weight;
    std::string state;
};
Result<> limit_account(const LimitOptions& options, std::ostream& out);

// "2026-11-23 01:37", UTC, of milliseconds since 1970.
std::string date(int64_t ms);

}  // namespace tnr::server
