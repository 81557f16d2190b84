// See worker_groups.hpp. The files are described in the kernel's Documentation/admin-guide/cgroup-v2.rst.
#include "gpu_server/supervisor/worker_groups.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "api_client/base/handles.hpp"
#include "api_client/base/text.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/handover.hpp"

namespace tnr::server {

namespace fs = std::filesystem;

namespace {

constexpr const char* all_controllers[] = {"memory", "pids", "cpu"};
// Of the processor time that all want at once. Requests are answered however busy workers are.
constexpr const char *supervisor_weight = "1000", *worker_weight = "100";

// Such a file takes its text in one write, or refuses it. Sets errno.
bool put(const fs::path& file, const std::string& text) {
    UniqueFd open_file(open(file.c_str(), O_WRONLY | O_CLOEXEC));
    return open_file && write(open_file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

std::vector<std::string> words_of(const fs::path& file) {
    std::ifstream stream(file);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    return words;
}

// Where cgroup v2 is mounted, which is the group that holds all others; empty where it is not.
fs::path root_group() {
    std::ifstream mounts("/proc/self/mountinfo");
    for (std::string line; std::getline(mounts, line);) {
        // 29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw
        auto type = line.find(" - cgroup2 ");
        std::istringstream words(line);
        std::string number, parent, device, root, where;
        if (type != std::string::npos && words >> number >> parent >> device >> root >> where && root == "/")
            return where;
    }
    return {};
}

// The folder of the group that we are in, which is below `root`.
fs::path our_group(const fs::path& root) {
    std::string path;
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);)
        if (line.starts_with("0::/")) path = line.substr(4);
    return root / path;
}

// Of all_controllers, those that may be used in this group, or those that may not.
std::vector<std::string> controllers_of(const fs::path& group, bool available) {
    auto there = words_of(group / "cgroup.controllers");
    std::vector<std::string> names;
    for (const char* name : all_controllers)
        if ((std::find(there.begin(), there.end(), name) != there.end()) == available) names.emplace_back(name);
    return names;
}

}  // namespace

std::vector<std::string> WorkerGroups::missing_on_this_host() {
    return controllers_of(root_group(), false);
}

WorkerGroups WorkerGroups::divide_ours() {
    WorkerGroups groups;
    auto not_so = [&](const std::string& why) {
        groups.why_not_ = why;
        return groups;
    };
    auto root = root_group();
    if (root.empty()) return not_so("there is no cgroup v2 here");
    auto ours = our_group(root);
    auto wanted = controllers_of(ours, true);
    if (wanted.empty()) return not_so("cgroup v2 controls nothing for " + ours.string());
    auto self = std::to_string(getpid());
    if (words_of(ours / "cgroup.procs") != std::vector{self})
        return not_so("other processes share the group " + ours.string());
    auto supervisor = ours / "supervisor";
    if ((mkdir(supervisor.c_str(), 0755) != 0 && errno != EEXIST) || !put(supervisor / "cgroup.procs", self))
        return not_so("the group " + ours.string() + " is not ours to divide (" + std::strerror(errno) + ")");
    for (auto& name : wanted)
        if (put(ours / "cgroup.subtree_control", "+" + name)) groups.controllers_.push_back(name);
    if (groups.controllers_.empty()) return not_so("nothing may be controlled below " + ours.string());
    groups.ours_ = ours;
    if (groups.holds("cpu")) put(supervisor / "cpu.weight", supervisor_weight);
    return groups;
}

void WorkerGroups::hand_over(Handover& handover) const {
    handover.section("groups") = {{"ours", ours_.string()}, {"controllers", controllers_}, {"why_not", why_not_}};
}

WorkerGroups WorkerGroups::take_over(const Handover& handover) {
    WorkerGroups groups;
    auto& section = handover.at("groups");
    groups.ours_ = section.at("ours").get<std::string>();
    section.at("controllers").get_to(groups.controllers_);
    section.at("why_not").get_to(groups.why_not_);
    return groups;
}

fs::path WorkerGroups::group_of(pid_t process) const {
    return ours_ / ("worker-" + std::to_string(process));
}

bool WorkerGroups::holds(const std::string& controller) const {
    return std::find(controllers_.begin(), controllers_.end(), controller) != controllers_.end();
}

void WorkerGroups::hold(pid_t process, const GroupLimits& limits) {
    if (ours_.empty()) return;
    remove_empty();
    auto group = group_of(process);
    bool done = mkdir(group.c_str(), 0755) == 0;
    if (holds("memory"))
        done = done && put(group / "memory.max", std::to_string(limits.memory_bytes)) &&
               put(group / "memory.oom.group", "1");
    if (holds("pids")) done = done && put(group / "pids.max", std::to_string(limits.threads));
    if (holds("cpu")) done = done && put(group / "cpu.weight", worker_weight);
    if (!done || !put(group / "cgroup.procs", std::to_string(process)))
        log(LogLevel::warning, "worker " + std::to_string(process) + " has no control group (" + std::strerror(errno) +
                                   "): it has its resource limits only");
}

void WorkerGroups::limit_threads(pid_t process, size_t most) {
    if (!ours_.empty() && holds("pids")) put(group_of(process) / "pids.max", std::to_string(most));
}

void WorkerGroups::let_go(pid_t process) {
    if (ours_.empty()) return;
    leaving_.push_back(group_of(process));
    put(leaving_.back() / "cgroup.kill", "1");
    remove_empty();
}

void WorkerGroups::remove_empty() {
    std::erase_if(leaving_, [](const fs::path& group) { return rmdir(group.c_str()) == 0 || errno != EBUSY; });
}

std::string WorkerGroups::summary() const {
    if (!ours_.empty())
        return "workers are held to their part of " + comma_separated(controllers_) + " by control groups";
    return "workers have resource limits but no control groups: " + why_not_ +
           "; a systemd unit with Delegate=yes gives them";
}

}  // namespace tnr::server
