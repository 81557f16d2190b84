// What this computer remembers of each machine: ~/.local/state/tnr/machines/<name>.json, 0600.
//
// The provider is the source of truth on whether a machine exists and runs. A record adds what no provider knows,
// the machine's keys and how far `tnr start` came, so that running it again continues there. It is written before
// the step it speaks of, so that a crash never leaves something running that no record names.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api_client/base/handles.hpp"
#include "api_client/base/machine_name.hpp"
#include "cli/pool.hpp"

namespace tnr::cli {

// How far `tnr start` came, in this order. `ordered`: the provider was (or was about to be) asked to create it.
enum class Step { keys, enrolled, ordered, installed, proven };
std::string to_string(Step step);

struct Record {
    std::string name;
    std::string provider;
    std::string id;  // the provider's; empty until it answered
    std::string gpu;
    int count = 1;
    std::string pool;  // address, as the user knows it
    Step step = Step::keys;
    std::string host_key;       // public line
    std::string host_secret;    // private file; only until the machine has it
    wire::KeyPair machine_key;  // what the machine shows the pool
    std::string created;        // UTC, ISO 8601
    // What it was ordered as, which a start that continues orders again; empty: the provider's default.
    std::string size = {}, region = {}, image = {};
    // The GPU that the machine was given at its last install; `gpu` is what its user wants. Empty: none yet.
    std::string has_gpu = {};
    int has_count = 0;
    std::string login_key = {};  // the public line of ours that it was made with; empty: made by an older tnr
    bool own_key = false;        // a pair that no other machine knows (target.hpp); older tnr had one for all
    std::string setup = {};      // the user's script for a new machine; empty: none
    bool setup_done = false;
    // When it switches itself off (timers.hpp): 0 for never. `ttl_ends` is in seconds since 1970.
    int64_t idle_stop_s = 0, ttl_s = 0, ttl_ends = 0;
    // Between these times (seconds since 1970; 0: never) its budget is used up, as it was told last (budget_stop.hpp).
    int64_t budget_from = 0, budget_until = 0;
    bool over_budget = false;                      // started with --over-budget, so that no budget switches it off
    std::vector<int> open_ports = {};              // beside SSH's, as `tnr ports` has set them
    std::map<std::string, std::string> tags = {};  // the user's own: `--tag project=x`

    // A detached machine wants none, and has none.
    bool has_its_gpu() const { return has_gpu == gpu && (gpu.empty() || has_count == count); }
};

// The text of a record's file, from us or anybody else. The Error says in a few words what is wrong with it.
Result<Record> parse_record(const std::string& text);

// Held by whoever changes a machine, so that two `tnr` do not step on each other; released when it goes, with its file.
class RecordLock {
public:
    RecordLock(std::string file, UniqueFd fd) : file_(std::move(file)), fd_(std::move(fd)) {}
    RecordLock(RecordLock&&) = default;
    ~RecordLock();

private:
    std::string file_;
    UniqueFd fd_;
};

class Records {
public:
    explicit Records(std::string folder) : folder_(std::move(folder)) {}

    Result<std::optional<Record>> find(const std::string& name) const;
    bool exists(const std::string& name) const;  // readable or not
    // By name. A damaged one hides none of the others.
    struct Damaged {
        std::string name;
        Error error;
    };
    struct All {
        std::vector<Record> records;
        std::vector<Damaged> damaged;
    };
    All all() const;
    Result<> save(const Record& record);
    Result<> remove(const std::string& name);
    // Fails with kind remote when another process has it.
    Result<RecordLock> lock(const std::string& name);

private:
    std::string path(const std::string& name) const;
    std::string folder_;
};

}  // namespace tnr::cli
