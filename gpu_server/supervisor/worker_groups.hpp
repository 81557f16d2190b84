// Control groups (cgroup v2) of workers: the kernel holds each to its memory, its threads and a fair part of the
// processors, whatever its client makes it do, and before our own look at its memory (host_memory.hpp) comes round.
//
// We divide the group that we were started in, if it holds nobody else: that of a systemd unit with Delegate=yes, or a
// container's. We move into `supervisor` below it; each worker gets a group beside that. Elsewhere (in a shell, on a host
// with cgroup v1) there are no groups, workers have their resource limits only, and `summary` says why.
//
// Thread: the event loop's. Writing to these files takes microseconds.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tnr::server {

class Handover;

struct GroupLimits {
    uint64_t memory_bytes = 0;  // beyond it, the kernel ends the worker
    int threads = 0;            // beyond it, it makes none
};

class WorkerGroups {
public:
    // Divides our group; call it once, before there are workers. Never fails: see `summary`.
    static WorkerGroups divide_ours();
    // Those that an earlier server in this process has divided (handover.hpp): its workers are in them.
    void hand_over(Handover& handover) const;
    static WorkerGroups take_over(const Handover& handover);

    // Of "memory", "pids" and "cpu", what this host's kernel does not control by groups of version 2.
    static std::vector<std::string> missing_on_this_host();

    // Puts a process that has just been started, with all it starts, into a group of its own.
    void hold(pid_t process, const GroupLimits& limits);
    void limit_threads(pid_t process, size_t most);
    // After it has been waited for. Ends what it may have left in its group.
    void let_go(pid_t process);

    // What is held by groups, of "memory", "pids" and "cpu".
    const std::vector<std::string>& controllers() const { return controllers_; }
    // For the log: what groups hold, or why there are none and what mends it.
    std::string summary() const;

private:
    std::filesystem::path group_of(pid_t process) const;
    bool holds(const std::string& controller) const;
    void remove_empty();

    std::filesystem::path ours_;  // empty: there are no groups
    std::vector<std::string> controllers_;
    std::string why_not_;
    std::vector<std::filesystem::path> leaving_;  // groups whose last process may still be ending
};

}  // namespace tnr::server
