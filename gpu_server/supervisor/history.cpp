// See history.hpp.
#include "gpu_server/supervisor/history.hpp"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace tnr::server {

History::History(const std::string& path, std::string node) : node_(std::move(node)) {
    if (!path.empty()) file_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
}

void History::note(const std::string& event, nlohmann::json more) {
    if (!wanted()) return;
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    more["t_ms"] = static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
    more["node"] = node_;
    more["event"] = event;
    auto line = more.dump() + "\n";
    (void)!::write(file_.get(), line.data(), line.size());
}

}  // namespace tnr::server
