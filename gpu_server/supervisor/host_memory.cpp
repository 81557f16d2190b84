// See host_memory.hpp.
#include "gpu_server/supervisor/host_memory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "api_client/base/handles.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

namespace {

// The sum of these fields of a file in /proc: "RssAnon:   1234 kB".
uint64_t bytes_in_fields(const std::string& path, std::initializer_list<const char*> fields) {
    std::ifstream file(path);
    uint64_t kib = 0;
    for (std::string line; std::getline(file, line);)
        for (const char* field : fields)
            if (line.starts_with(field)) kib += std::strtoull(line.c_str() + std::string(field).size(), nullptr, 10);
    return kib << 10;
}

std::string process_folder(pid_t process) {
    return "/proc/" + std::to_string(process);
}

// Whom the files that it makes belong to.
uid_t user_of(const std::string& process) {
    std::ifstream status(process + "/status");
    uid_t real = 0, effective = 0, saved = 0, of_files = 0;
    for (std::string word; status >> word;)
        if (word == "Uid:" && status >> real >> effective >> saved >> of_files) break;
    return of_files;
}

// The device that all memory files and all memory for sharing are on.
dev_t device_of_memory_files() {
    UniqueFd file(memfd_create("tnr-probe", MFD_CLOEXEC));
    struct stat status {};
    return file && fstat(file.get(), &status) == 0 ? status.st_dev : 0;
}

void for_each_entry(const std::string& folder, const std::function<void(const struct stat&)>& look) {
    Handle<DIR, closedir> entries(opendir(folder.c_str()));
    while (auto* entry = entries ? readdir(entries.get()) : nullptr) {
        struct stat status {};
        if (fstatat(dirfd(entries.get()), entry->d_name, &status, 0) == 0) look(status);
    }
}

// What is in a folder of its own that is kept in memory. Where its view of the filesystem is ours, so is the folder.
uint64_t bytes_in_private(const std::string& process, const std::string& folder) {
    const auto theirs = process + "/root" + folder;
    struct stat there {};
    struct stat here {};
    struct statfs room {};
    if (stat(theirs.c_str(), &there) != 0 || (stat(folder.c_str(), &here) == 0 && there.st_dev == here.st_dev))
        return 0;
    if (statfs(theirs.c_str(), &room) != 0 || room.f_type != TMPFS_MAGIC) return 0;
    return (room.f_blocks - room.f_bfree) * static_cast<uint64_t>(room.f_bsize);
}

}  // namespace

// What another process has made is counted there: processes of a claim lend each other memory.
uint64_t bytes_in_files_of(pid_t process, const std::vector<int>& lent) {
    static const dev_t device = device_of_memory_files();
    const auto folder = process_folder(process);
    const uid_t user = user_of(folder);
    std::set<ino_t> seen;
    uint64_t bytes = 0;
    auto count = [&](const struct stat& file) {
        if (file.st_dev == device && seen.insert(file.st_ino).second)
            bytes += static_cast<uint64_t>(file.st_blocks) * 512;  // stat(2)'s unit
    };
    for (const char* files : {"/fd", "/map_files"})
        for_each_entry(folder + files, [&](const struct stat& file) {
            if (file.st_uid == user) count(file);
        });
    for (int file : lent) {
        struct stat status {};
        if (fstat(file, &status) == 0) count(status);
    }
    return bytes + bytes_in_private(folder, "/tmp") + bytes_in_private(folder, "/dev/shm");
}

void HostMemory::look_at(const std::vector<pid_t>& workers, const std::map<pid_t, std::vector<int>>& lent) {
    std::erase_if(in_files_,
                  [&](auto& each) { return std::find(workers.begin(), workers.end(), each.first) == workers.end(); });
    const auto shared = bytes_in_fields("/proc/meminfo", {"Shmem:"});
    const auto changed = std::max(shared, shared_by_all_) - std::min(shared, shared_by_all_);
    const auto now = std::chrono::steady_clock::now();
    // One worker may have taken what another has given back.
    const bool is_time =
        changed > memory_files_looked_at_after || now - looked_at_ > memory_files_looked_at_again_after;
    if (not_looked_at_.empty() && is_time) {
        not_looked_at_ = workers;
        shared_by_all_ = shared;
        looked_at_ = now;
    }
    const auto until = now + memory_files_looked_at_for;
    while (!not_looked_at_.empty() && std::chrono::steady_clock::now() < until) {
        const auto worker = not_looked_at_.back();
        auto theirs = lent.find(worker);
        in_files_[worker] = bytes_in_files_of(worker, theirs == lent.end() ? std::vector<int>() : theirs->second);
        not_looked_at_.pop_back();
    }
}

uint64_t HostMemory::bytes_of(pid_t worker) const {
    const auto status = process_folder(worker) + "/status";
    auto files = in_files_.find(worker);
    const auto mapped = bytes_in_fields(status, {"RssShmem:"});
    return bytes_in_fields(status, {"RssAnon:", "VmSwap:", "VmPTE:"}) +
           std::max(mapped, files == in_files_.end() ? 0 : files->second);
}

uint64_t host_bytes_per_gpu(size_t gpus) {
    auto all = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return std::max(all / 4 * 3 / std::max<size_t>(gpus, 1), host_bytes_per_gpu_min);
}

}  // namespace tnr::server
