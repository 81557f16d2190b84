// See profile_file.hpp.
#include "gpu_client/cuda/profile_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tnr::cuda {

static constexpr std::string_view head = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
// JSON allows no comma behind the last event, so there is always one more: it says what wrote the file.
static constexpr std::string_view tail =
    "{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"tnr\"}}\n]}\n";

static std::string with_process_id(const std::string& path) {
    auto dot = path.rfind('.');
    auto slash = path.rfind('/');
    bool ends = dot == std::string::npos || (slash != std::string::npos && dot < slash);
    auto where = ends ? path.size() : dot;
    return path.substr(0, where) + "." + std::to_string(::getpid()) + path.substr(where);
}

static bool write_all(int fd, std::string_view bytes, uint64_t at) {
    while (!bytes.empty()) {
        auto written = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        bytes.remove_prefix(static_cast<size_t>(written));
        at += static_cast<uint64_t>(written);
    }
    return true;
}

Result<ProfileFile> ProfileFile::create(const std::string& path) {
    constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    std::string chosen = path;
    int fd = ::open(chosen.c_str(), flags, 0666);
    if (fd < 0 && errno == EEXIST) {
        chosen = with_process_id(path);
        fd = ::open(chosen.c_str(), flags, 0666);
    }
    if (fd < 0)
        return Error{Error::Kind::internal, "cannot make the profile " + chosen + ": " + std::strerror(errno),
                     errno == EEXIST ? "remove it, or name another file" : ""};
    ProfileFile file(UniqueFd(fd), chosen);
    if (!write_all(fd, head, 0) || !write_all(fd, tail, head.size()))
        return Error{Error::Kind::internal, "cannot write the profile " + chosen + ": " + std::strerror(errno)};
    file.end_ = head.size();
    return file;
}

bool ProfileFile::add(std::string&& events) {
    auto bytes = events.size();
    if (bytes == 0) return true;
    if (end_ + bytes > bytes_max) return false;
    events += tail;
    if (!write_all(fd_.get(), events, end_)) {
        // What the brackets stood on was ours before, so there is room for them.
        (void)!write_all(fd_.get(), tail, end_);
        (void)!::ftruncate(fd_.get(), static_cast<off_t>(end_ + tail.size()));
        return false;
    }
    end_ += bytes;
    return true;
}

std::string json_text(std::string_view text) {
    std::string out = "\"";
    for (char c : text) {
        auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\')
            (out += '\\') += c;
        else if (byte < 0x20 || byte >= 0x7f) {  // bytes that are no UTF-8 would make it no JSON
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
            out += escaped;
        } else {
            out += c;
        }
    }
    return out + "\"";
}

}  // namespace tnr::cuda
