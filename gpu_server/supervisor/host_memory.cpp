// See host_memory.hpp.
#include "gpu_server/supervisor/host_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

uint64_t host_bytes_of(pid_t pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    uint64_t kib = 0;
    for (std::string line; std::getline(status, line);)
        for (const char* field : {"RssAnon:", "RssShmem:", "VmSwap:"})
            if (line.starts_with(field)) kib += std::strtoull(line.c_str() + std::string(field).size(), nullptr, 10);
    return kib << 10;
}

uint64_t host_bytes_per_gpu(size_t gpus) {
    auto all = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return std::max(all / 4 * 3 / std::max<size_t>(gpus, 1), host_bytes_per_gpu_min);
}

}  // namespace tnr::server
