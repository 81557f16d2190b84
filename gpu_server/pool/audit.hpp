// Who was refused what, and who changed what anybody may do: the audit log, lines of JSON in the state folder.
//
// {"at": milliseconds since 1970, "kind": "refused"|"changed", "who", "what", "from"}, and "times" where a line stands
// for several. Nobody can fill the disk with it, nor push others' lines out: a peer has some lines a minute, and what is
// beyond them is counted in one more; all together have a few times as many. `serve` and the commands beside it write to the
// same file, each line with one write(). When it is large it becomes audit.log.1, that one audit.log.2, and the last goes.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "api_client/base/mutex.hpp"
#include "api_client/base/result.hpp"

namespace tnr::server {

struct AuditEntry {
    enum class Kind { refused, changed };
    Kind kind = Kind::refused;
    std::string who;    // as far as it has been proven: "alice/trainer", "an unknown key", "root on this host"
    std::string what;   // in words
    std::string from;   // an address, or "this host"
    int64_t at_ms = 0;  // since 1970; set by whoever writes it
    uint64_t times = 1;
};

inline constexpr size_t audit_file_bytes_max = size_t{4} << 20;
inline constexpr int audit_files_max = 5;                 // with the one that is written to: some 100,000 lines
inline constexpr uint64_t audit_lines_per_peer_max = 60;  // in a window
inline constexpr uint64_t audit_lines_max = 3000;         // in a window, of all
inline constexpr std::chrono::seconds audit_window{60};

class AuditLog {
public:
    using Clock = std::chrono::steady_clock;
    explicit AuditLog(std::filesystem::path folder) : folder_(std::move(folder)) {}
    ~AuditLog() { tidy(Clock::time_point::max()); }

    // Any thread. `peer`: whose lines are counted together; the user where it is known, else the address. Never fails: what
    // cannot be written is told in the server's log.
    void note(const std::string& peer, AuditEntry entry, Clock::time_point now = Clock::now());
    // Now and then: writes what has been left out of windows that are over.
    void tidy(Clock::time_point now = Clock::now());

private:
    struct Window {
        Clock::time_point began{};
        uint64_t lines = 0;
        std::map<AuditEntry::Kind, AuditEntry> left_out = {};  // the last of each kind, with how many there were
    };
    void write(AuditEntry entry) TNR_REQUIRES(mutex_);
    void close(Window& window) TNR_REQUIRES(mutex_);

    const std::filesystem::path folder_;
    Mutex mutex_;
    std::map<std::string, Window> windows_ TNR_GUARDED_BY(mutex_);
    Window all_ TNR_GUARDED_BY(mutex_);
};

// From the oldest on, those at or after `since_ms`. Lines that are none are left out.
Result<> read_audit(const std::filesystem::path& folder, int64_t since_ms,
                    const std::function<void(const AuditEntry&)>& take);

// An address without what one stranger can vary at will: of IPv6 the first half.
std::string source_of(const std::string& address);

}  // namespace tnr::server
