// `tnr-gpu-server store-image`: writes an image that a worker has handed over. See helpers.hpp.
//
// Nothing waits for the disk: whoever loads the image checks its hash, so one that a power cut has torn is found then.
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "api_client/base/handles.hpp"
#include "gpu_server/supervisor/child.hpp"
#include "gpu_server/supervisor/helpers.hpp"

namespace tnr::server {

// Empty, or what went wrong.
static std::string copy_image(int from, const UniqueFd& to, uint64_t bytes) {
    for (off_t at = 0; static_cast<uint64_t>(at) < bytes;) {
        auto copied = sendfile(to.get(), from, &at, bytes - static_cast<uint64_t>(at));
        if (copied < 0 && errno == EINTR) continue;
        if (copied < 0) return std::strerror(errno);
        if (copied == 0) return "it is shorter than it was said to be";
    }
    return {};
}

static std::string store(int from, const std::string& path, uint64_t bytes) {
    ::unlink(path.c_str());  // of one before that did not end well
    UniqueFd to(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!to) return "cannot make " + path + ": " + std::strerror(errno);
    auto why = copy_image(from, to, bytes);
    auto complete = path.substr(0, path.rfind('.'));
    if (why.empty() && ::rename(path.c_str(), complete.c_str()) != 0) why = std::strerror(errno);
    if (why.empty()) return {};
    ::unlink(path.c_str());
    return "cannot write " + path + ": " + why;
}

int run_store_image(int control_fd, int file, const std::string& path, uint64_t bytes) {
    auto why = store(file, path, bytes);
    if (why.empty())
        send_message(control_fd, {{"stored", bytes}});
    else
        send_message(control_fd, {{"failed", why}});
    return why.empty() ? 0 : 1;
}

}  // namespace tnr::server
