// One sync, as both of its ends see it.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"
#include "cli/sync/engine/frames.hpp"

namespace tnr::sync {

struct Tally {
    size_t files = 0;                        // copied
    size_t unchanged = 0;                    // left alone
    size_t removed = 0;                      // by --delete
    size_t ignored = 0;                      // left out by .gitignore or .tnrignore
    size_t others = 0;                       // sockets and devices, left out
    size_t special = 0;                      // copied, but not their setuid, setgid or sticky bits
    size_t times = 0;                        // copied with another time: SFTP has none before 1970 or after 2106
    uint64_t bytes = 0;                      // of content that travelled
    std::vector<Error> unreadable = {};      // what could not be read or removed or kept changing, and was passed over
    bool nothing_removed = false;            // --delete removed nothing, since not all of the source could be read
    std::vector<std::string> copies = {};    // of a dry run: what would be copied, and
    std::vector<std::string> removals = {};  // what would be removed, below the destination
    uint64_t bytes_total = 0;                // of what is to be copied
    uint64_t bytes_found = 0;                // of those, there already
};
// Heard now and then while copying.
using Watch = std::function<void(const Tally&)>;

struct SyncSettings {
    std::string from = {}, to = {};  // as endpoints.hpp reads them, without the machine
    std::string machine = {};        // its name, for messages
    bool here = true;                // this end is the user's computer
    bool remove_extra = false, dry_run = false, ignore = true;

    // A path at this end, as messages call it.
    std::string told(const std::string& path) const { return here ? path : machine + ":" + path; }
};

// What other threads may read while it goes on.
struct Counters {
    std::atomic<uint64_t> files{0}, unchanged{0}, bytes{0}, bytes_found{0}, bytes_total{0};
    Tally now() const {
        Tally tally;
        tally.files = files, tally.unchanged = unchanged, tally.bytes = bytes;
        tally.bytes_found = bytes_found, tally.bytes_total = bytes_total;
        return tally;
    }
};

// The other end. `cut` ends all reading and writing at once; what waits in them returns, or the process ends.
struct Link {
    int in = -1, out = -1;
    std::function<void()> cut;
};

// Both run until all is done, or one end has failed: then both have the same Error. They have threads of their own and leave
// none behind.
Result<Tally> send_tree(const Link& link, Inbox& inbox, Outbox& outbox, const SyncSettings& settings,
                        Counters& counters);
Result<Tally> receive_tree(const Link& link, Inbox& inbox, Outbox& outbox, const SyncSettings& settings,
                           Counters& counters);

// What the client says first, and the server hears.
Message hello(const SyncSettings& settings, bool server_sends);
Result<> read_hello(Fields fields, SyncSettings& settings, bool& server_sends);

// Used by both.
Error read_error(const SyncSettings& settings, const std::string& path, int error_number);
Error write_error(const SyncSettings& settings, const std::string& path, int error_number,
                  const std::string& doing = "cannot write");
Message error_message(uint8_t type, const Error& error);
Error error_of(Fields& fields);
Error not_a_folder(const SyncSettings& settings);  // --delete of one file
Error empty_source();                              // --delete of all there is
Error changes(const std::string& path);            // while it is read
Result<> hear_trouble(Fields& fields, Tally& tally);
Error nonsense();

// Of what only makes a list longer, so much is kept.
inline constexpr size_t troubles_max = 1000;
// Names, links and rules of one sync. A tree of ten million files has less.
inline constexpr uint64_t held_bytes_max = uint64_t{2} << 30;

}  // namespace tnr::sync
