// Who used which GPU how long: the operator's books, which users see their part of. What an hour costs is in store.hpp.
//
// A claim's time is counted by a clock that does not jump, from when it began by the calendar: setting the node's clock
// makes nobody pay for more, nor for less. Running claims are noted every second, so that a crash costs that much of
// them; sync() makes what was noted survive a power cut, too.
//
// A file of the state folder, as the store of keys (store.hpp); several processes may use it at once, and all methods may
// be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"

namespace tnr::server {

// What grows while a claim lasts.
struct ClaimUse {
    int64_t lasted_ms = 0;
    int64_t bytes_up = 0, bytes_down = 0;  // to the GPU, and back
    // How long its GPUs worked: of each GPU the time in which a process had unfinished work on it, as the process's worker
    // finds out by looking some thirty times a second (worker/busy_time.hpp). Two processes that work at once count twice,
    // but never more than the claim's time for each of its GPUs.
    int64_t busy_ms = 0;
};

// What was done to a claim's GPUs after it.
struct WipeRecord {
    int64_t bytes = 0;          // overwritten
    int64_t checked_bytes = 0;  // of these, chosen at random: read back, and as they should be
    int64_t took_ms = 0;
};

struct ClaimRecord {
    int64_t id = 0;
    std::string account, machine;
    std::string gpu;      // type
    std::string devices;  // UUIDs, comma-separated
    std::string node = {};
    int64_t began_ms = 0;  // since 1970
    ClaimUse use = {};
    bool ended = false;
    std::string reason = {};  // why it ended
    // Of all its GPUs; nothing: not yet, or its owner's next claim took them over.
    std::optional<WipeRecord> wipe = {};
    int64_t until_ms() const { return began_ms + use.lasted_ms; }
};

// News of a running claim.
struct ClaimNews {
    int64_t id = 0;
    ClaimUse use = {};
    std::optional<std::string> ended = {};  // why, where it has
};

// Where the next page of the ledger begins.
struct LedgerPlace {
    int64_t until_ms = 0;
    int64_t id = 0;
};

class Ledger {
public:
    virtual ~Ledger() = default;

    // `claim.id` is chosen here and returned.
    virtual Result<int64_t> begin(const ClaimRecord& claim) = 0;
    // All of it or nothing. What has ended already stays as it is.
    virtual Result<> note(const std::vector<ClaimNews>& news) = 0;
    // Once for each of its GPUs.
    virtual Result<> note_wiped(int64_t id, const WipeRecord& wipe) = 0;
    // After a crash: ends the claims that nobody ended, but for those that go on, where they were noted last. Returns them as
    // they are now.
    virtual Result<std::vector<ClaimRecord>> close_open(const std::string& reason,
                                                        const std::set<int64_t>& go_on = {}) = 0;

    // The account's claims (without one: everybody's) behind that place, `most` of them: those that ended first come first, running ones as far as
    // they were noted. Somebody who turns pages may see a running claim twice, and misses none.
    virtual Result<std::vector<ClaimRecord>> claims_of(const std::optional<std::string>& account,
                                                       const LedgerPlace& behind, int most) = 0;

    // Whatever was noted before survives a power cut once this returns. Takes as long as the disk does.
    virtual Result<> sync() = 0;
};

// The `user_version` of the files that this server writes. It opens older ones, and brings them up to date.
inline constexpr int sqlite_ledger_version = 2;
Result<std::unique_ptr<Ledger>> open_sqlite_ledger(const std::string& path);
// Whether that would work, as far as can be told without a change.
Result<> check_sqlite_ledger(const std::string& path);

}  // namespace tnr::server
