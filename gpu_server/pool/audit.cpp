// See audit.hpp.
#include "gpu_server/pool/audit.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "api_client/base/file_lock.hpp"
#include "api_client/base/files.hpp"
#include "api_client/base/handles.hpp"
#include "gpu_server/pool/clock.hpp"
#include "gpu_server/pool/log.hpp"

namespace tnr::server {

using nlohmann::json;
namespace fs = std::filesystem;

// Peers that are told apart within a window; more than have ever something to be refused at once, but for attackers.
static constexpr size_t windows_max = 4096;

// Several who write at once may each add a line to a full one.
static constexpr size_t audit_text_bytes_max = 2 * audit_file_bytes_max;

static const char* kind_name(AuditEntry::Kind kind) {
    return kind == AuditEntry::Kind::changed ? "changed" : "refused";
}

static fs::path file_at(const fs::path& folder, int number) {
    return folder / (number == 0 ? "audit.log" : "audit.log." + std::to_string(number));
}

// By one process at a time; the others go on writing to the old file, wherever it is by then.
static void rotate(const fs::path& folder) {
    auto lock = open_file(folder / "audit.lock", O_RDWR | O_CREAT);
    if (!lock || try_lock(lock->get()) == Lock::theirs) return;
    std::error_code error;
    if (fs::file_size(file_at(folder, 0), error) < audit_file_bytes_max || error) return;  // another has just done it
    for (int number = audit_files_max - 1; number > 0; --number)
        fs::rename(file_at(folder, number - 1), file_at(folder, number), error);
}

void AuditLog::write(AuditEntry entry) {
    json line = {{"at", entry.at_ms},
                 {"kind", kind_name(entry.kind)},
                 {"who", printable(entry.who)},
                 {"what", printable(entry.what)},
                 {"from", printable(entry.from)}};
    if (entry.times > 1) line["times"] = entry.times;
    // ASCII: a terminal that shows it is not told anything else.
    auto text = line.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
    const auto path = file_at(folder_, 0);
    constexpr int flags = O_WRONLY | O_APPEND | O_CREAT;
    auto file = open_file(path, flags);
    struct stat status {};
    if (file && fstat(file->get(), &status) == 0 && status.st_size >= static_cast<off_t>(audit_file_bytes_max)) {
        rotate(folder_);
        file = open_file(path, flags);
    }
    if (!file) return log(LogLevel::error, "the audit log is not written: " + file.error().what);
    if (::write(file->get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
        log(LogLevel::error, "the audit log cannot be written: " + std::string(std::strerror(errno)));
}

void AuditLog::close(Window& window) {
    for (auto& [kind, entry] : window.left_out) write(entry);
    window = {};
}

void AuditLog::note(const std::string& peer, AuditEntry entry, Clock::time_point now) {
    LockGuard lock(mutex_);
    if (now - all_.began > audit_window) {
        close(all_);
        all_.began = now;
    }
    auto found = windows_.find(peer);
    if (found == windows_.end()) {
        if (windows_.size() >= windows_max)
            found = windows_.try_emplace("others").first;
        else
            found = windows_.try_emplace(peer).first;
    }
    auto& window = found->second;
    if (now - window.began > audit_window) {
        close(window);
        window.began = now;
    }
    entry.at_ms = now_ms();
    bool own = window.lines < audit_lines_per_peer_max, any = all_.lines < audit_lines_max;
    if (own && any) {
        ++window.lines;
        ++all_.lines;
        return write(std::move(entry));
    }
    auto& left_out = (own ? all_ : window).left_out[entry.kind];
    entry.times = left_out.who.empty() && left_out.what.empty() ? 1 : left_out.times + 1;
    if (own) entry.who = "many", entry.from = "many";
    left_out = std::move(entry);
}

void AuditLog::tidy(Clock::time_point now) {
    LockGuard lock(mutex_);
    for (auto each = windows_.begin(); each != windows_.end();) {
        bool over = now - each->second.began > audit_window;
        if (over) close(each->second);
        each = over ? windows_.erase(each) : std::next(each);
    }
    if (now - all_.began > audit_window) close(all_);
}

static bool understand(const std::string& text, AuditEntry& entry) {
    auto line = json::parse(text, nullptr, false);
    if (!line.is_object()) return false;
    try {
        entry.at_ms = line.at("at");
        entry.kind = line.at("kind") == "changed" ? AuditEntry::Kind::changed : AuditEntry::Kind::refused;
        entry.who = line.at("who");
        entry.what = line.at("what");
        entry.from = line.at("from");
        entry.times = line.value("times", uint64_t{1});
        return true;
    } catch (const json::exception&) {
        return false;
    }
}

Result<> read_audit(const fs::path& folder, int64_t since_ms, const std::function<void(const AuditEntry&)>& take) {
    for (int number = audit_files_max - 1; number >= 0; --number) {
        auto text = read_file(file_at(folder, number), audit_text_bytes_max);
        if (!text && text.error().kind == Error::Kind::not_found) continue;
        if (!text) return text.error();
        std::istringstream lines(std::move(*text));
        for (std::string line; std::getline(lines, line);)
            if (AuditEntry entry; understand(line, entry) && entry.at_ms >= since_ms) take(entry);
    }
    return Ok{};
}

std::string source_of(const std::string& address) {
    in6_addr bytes{};
    if (address.starts_with("::ffff:") || inet_pton(AF_INET6, address.c_str(), &bytes) != 1)
        return address.starts_with("::ffff:") ? address.substr(7) : address;
    std::memset(bytes.s6_addr + 8, 0, 8);
    char text[INET6_ADDRSTRLEN] = "";
    return std::string(inet_ntop(AF_INET6, &bytes, text, sizeof text)) + "/64";
}

}  // namespace tnr::server
