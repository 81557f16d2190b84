// Copying a tree to or from a machine over SFTP.
//
// What is already there with the same size and modification time is left alone; nothing is ever removed that only
// the destination has. A file arrives under a temporary name beside its place and is renamed when it is whole, with
// its mode and times: under its own name there is always the old file or the new one. What a run that was cut off has left of
// a large file is where the next one goes on (resume.hpp); what nobody goes on with is removed by a later run.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/ssh/sftp.hpp"
#include "cli/sync/tree.hpp"

namespace tnr::sync {

struct Tally {
    size_t files = 0;                    // copied
    size_t unchanged = 0;                // left alone
    size_t others = 0;                   // sockets and devices, left out
    size_t special = 0;                  // copied, but not their setuid, setgid or sticky bits
    size_t times = 0;                    // copied with another time: SFTP has none before 1970 or after 2106
    uint64_t bytes = 0;                  // copied
    std::vector<Error> unreadable = {};  // sources that could not be read, and were passed over
    uint64_t bytes_total = 0;
};
// Heard now and then while copying.
using Watch = std::function<void(const Tally&)>;

// How many files are on their way at once: with small files this hides the round trips, three a file.
inline constexpr size_t files_at_once = 32;

// `to` and `from` on the machine are relative to the login user's home unless they begin with a slash; they are the
// final places (endpoints.hpp turns what the user wrote into them).
Result<Tally> upload(ssh::Sftp& sftp, const std::string& machine, const std::string& from, const std::string& to,
                     const Watch& watch);
Result<Tally> download(ssh::Sftp& sftp, const std::string& machine, const std::string& from, const std::string& to,
                       const Watch& watch);

// The temporary name for the file that shall be `path`.
std::string temporary_name(const std::string& path, const std::string& run, size_t number);
// Whether a file of that name, without its folder, is such a temporary: never copied, and removed from where files are
// copied to once it is older than any run that might still be at work on it.
bool is_temporary(const std::string& name);
inline constexpr std::string_view run_letters = "abcdefghijklmnopqrstuvwxyz234567";
inline constexpr size_t run_length = 8;
inline constexpr std::chrono::seconds temporary_age_max{3600};
// A few letters that tell this run's temporary files from those of others.
std::string new_run();

}  // namespace tnr::sync
