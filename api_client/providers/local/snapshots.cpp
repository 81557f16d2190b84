// See snapshots.hpp.
#include "api_client/providers/local/snapshots.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <ctime>

#include "api_client/base/files.hpp"
#include "api_client/base/machine_name.hpp"
#include "api_client/providers/local/files.hpp"
#include "api_client/providers/local/image.hpp"

namespace tnr::local {
namespace {

namespace fs = std::filesystem;

Result<> fill_snapshot(const fs::path& machine, const fs::path& folder) {
    for (const char* part : {"vmlinuz", "initrd.img"})
        if (file_exists(machine / part))
            if (auto linked = link_or_copy(machine / part, folder / part); !linked) return linked;
    return copy_flat(machine / "disk.qcow2", folder / "disk.qcow2");
}

std::string time_text(std::time_t time) {
    std::tm parts{};
    ::gmtime_r(&time, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

}  // namespace

Result<> Snapshots::take(const fs::path& machine, const std::string& name) const {
    if (auto good = check_machine_name(name); !good) {
        auto error = good.error();
        error.what = "'" + name + "' cannot be a snapshot's name";
        return error;
    }
    const Error taken{Error::Kind::usage, "there is a snapshot '" + name + "' already",
                      "choose another name, or `tnr snapshot --delete " + name + "`"};
    if (image(name)) return taken;
    const fs::path unborn = root_ / (".new-" + name);
    std::error_code failed;
    fs::create_directories(root_, failed);
    auto lock = lock_file(root_ / ".lock");
    if (!lock) return lock.error();
    if (image(name)) return taken;
    fs::remove_all(unborn, failed);  // of one that was interrupted
    fs::create_directories(unborn, failed);
    if (failed) return file_error("cannot make", unborn, failed.value());
    fs::permissions(unborn, fs::perms::owner_all, failed);
    auto filled = fill_snapshot(machine, unborn);
    if (filled) fs::rename(unborn, root_ / name, failed);
    if (filled && failed) filled = file_error("cannot make", root_ / name, failed.value());
    if (!filled) fs::remove_all(unborn, failed);
    return filled;
}

std::vector<Snapshot> Snapshots::all() const {
    std::vector<Snapshot> all;
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(root_, failed)) {
        const std::string name = entry.path().filename();
        struct stat disk = {};
        if (!check_machine_name(name) || ::stat((entry.path() / "disk.qcow2").c_str(), &disk) != 0) continue;
        all.push_back({.id = name,
                       .name = name,
                       .size_gib = static_cast<double>(disk.st_blocks) * 512 / (1 << 30),
                       .created = time_text(disk.st_mtime),
                       .ready = true,
                       .per_month = 0});
    }
    std::sort(all.begin(), all.end(), [](const Snapshot& a, const Snapshot& b) { return a.name < b.name; });
    return all;
}

Result<> Snapshots::remove(const std::string& id) const {
    if (!check_machine_name(id)) return Ok{};  // also keeps "../.." from being removed
    const fs::path dead = root_ / (".gone-" + id);
    std::error_code failed;
    fs::remove_all(dead, failed);
    if (fs::exists(root_ / id, failed)) fs::rename(root_ / id, dead, failed);
    if (!failed) fs::remove_all(dead, failed);
    return failed ? Result<>{file_error("cannot remove", root_ / id, failed.value())} : Result<>{Ok{}};
}

std::optional<fs::path> Snapshots::image(const std::string& id) const {
    const fs::path folder = root_ / id;
    if (!check_machine_name(id) || !file_exists(folder / "disk.qcow2")) return std::nullopt;
    return file_exists(folder / "vmlinuz") ? folder : folder / "disk.qcow2";
}

}  // namespace tnr::local
