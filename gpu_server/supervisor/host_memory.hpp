// The host's own memory, which workers use beside that of their GPUs: staging, code, whatever their clients make them keep.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace tnr::server {

// What workers hold that is their own: neither code nor files on a disk.
//
// The kernel counts to a process what it has mapped. What lies in its files in memory (memfd_create, its private /tmp), or
// in memory for sharing that it has unmapped, is found by looking at each such file. That takes some milliseconds for each
// worker, so it is done when the host's shared memory has grown or shrunk, and for some workers each time. What is small,
// or another's before, is seen some seconds later. Only root may look; where the server is not, such memory is held by
// control groups alone.
class HostMemory {
public:
    // These are all workers that there are, and our own descriptors of what they have lent each other (Exchange::files). Now and
    // then.
    void look_at(const std::vector<pid_t>& workers, const std::map<pid_t, std::vector<int>>& lent);
    // 0 when it is gone.
    uint64_t bytes_of(pid_t worker) const;

private:
    uint64_t shared_by_all_ = 0;  // of the host, when the files were last looked at
    std::chrono::steady_clock::time_point looked_at_;
    std::vector<pid_t> not_looked_at_;    // since then
    std::map<pid_t, uint64_t> in_files_;  // as they were seen last
};

// In files in memory of this process, be they mapped, open, or in its /tmp and /dev/shm; or lent, and perhaps neither mapped
// nor open there any more.
uint64_t bytes_in_files_of(pid_t process, const std::vector<int>& lent);

// What the workers of one claim may hold for each of its GPUs, on a node with this many, unless the operator says otherwise.
uint64_t host_bytes_per_gpu(size_t gpus);

}  // namespace tnr::server
