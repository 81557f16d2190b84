// What the ledger tells of a stretch of time, of all users: for the operator's eyes.
//
// It has a connection of its own to the ledger's file, and waits for the disk: nothing for the supervisor's thread, which it
// never holds up either. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"
#include "gpu_server/pool/store.hpp"

namespace tnr::server {

struct UserReport {
    std::string user;  // an account; in an open pool "machine NAME"
    int64_t claims = 0;
    double gpu_s = 0, busy_s = 0;  // of all its GPUs
    double unpriced_s = 0;         // of gpu_s: when the type had no price
    double bytes_up = 0, bytes_down = 0;
    std::map<std::string, double> cost;  // by currency
};

struct LedgerReport {
    int64_t from_ms = 0, to_ms = 0;
    // GPU-seconds in equal parts of that time: held by claims, of these busy (a claim's busy time is spread over it evenly),
    // and the claims that began then.
    struct Part {
        double held_s = 0, busy_s = 0;
        int64_t claims = 0;
    };
    std::vector<Part> parts;
    std::vector<UserReport> users;  // who used most comes first
    size_t users_left_out = 0;      // that used less than these
    bool whole = true;              // false: there were more than claims_max, and the latest are in it
};

class LedgerReader {
public:
    virtual ~LedgerReader() = default;
    virtual Result<LedgerReport> report(int64_t from_ms, int64_t to_ms, int parts, int64_t claims_max) = 0;
};

// The file must be there. `store`, which has the prices, is used as long as the reader lives.
Result<std::unique_ptr<LedgerReader>> open_sqlite_ledger_reader(const std::string& path, Store& store);

}  // namespace tnr::server
