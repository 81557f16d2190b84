// Folders, names and records.
#include "api_client/providers/local/machine_store.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api_client/base/files.hpp"
#include "api_client/base/machine_name.hpp"

namespace tnr::local {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

}  // namespace

MachineStore::MachineStore(fs::path root) {
    std::error_code ignored;  // begin() reports a root that cannot be made
    fs::create_directories(root, ignored);
    root_ = fs::weakly_canonical(root, ignored);
    if (root_.empty()) root_ = std::move(root);
}

Result<UniqueFd> MachineStore::lock(const std::string& name) const {
    return lock_file(lock_path(name));
}

void MachineStore::forget_lock(const std::string& name) const {
    std::error_code ignored;
    fs::remove(lock_path(name), ignored);
}

bool MachineStore::exists(const std::string& name) const {
    std::error_code ignored;
    return fs::is_directory(folder(name), ignored);
}

std::vector<std::string> MachineStore::names() const {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(root_, ignored))
        if (const std::string name = entry.path().filename(); check_machine_name(name) && exists(name))
            names.push_back(name);
    std::sort(names.begin(), names.end());
    return names;
}

Result<Record> MachineStore::read(const std::string& name) const {
    auto text = read_file(folder(name) / "machine.json");
    try {
        const json stored = json::parse(text ? *text : "");
        return Record{.name = name,
                      .instance_id = stored.at("instance_id"),
                      .user = stored.at("user"),
                      .cpus = stored.at("cpus"),
                      .memory_mib = stored.at("memory_mib"),
                      .ssh_port = stored.at("ssh_port"),
                      .has_kernel = stored.at("has_kernel")};
    } catch (const json::exception&) {
        return Error{Error::Kind::internal, "the record of '" + name + "' is damaged",
                     "`tnr delete " + name + "` removes what is left of it"};
    }
}

Result<> MachineStore::write(const fs::path& folder, const Record& record) const {
    const json stored = {
        {"instance_id", record.instance_id}, {"user", record.user},         {"cpus", record.cpus},
        {"memory_mib", record.memory_mib},   {"ssh_port", record.ssh_port}, {"has_kernel", record.has_kernel}};
    return write_file(folder / "machine.json", stored.dump(2) + "\n");
}

Result<fs::path> MachineStore::begin(const std::string& name) const {
    std::error_code failed;
    fs::remove_all(unborn(name), failed);  // of one that was interrupted
    if (!failed) fs::create_directories(unborn(name), failed);
    if (failed) return file_error("cannot make", unborn(name), failed.value());
    fs::permissions(unborn(name), fs::perms::owner_all, failed);
    return unborn(name);
}

Result<> MachineStore::publish(const std::string& name) const {
    std::error_code failed;
    fs::rename(unborn(name), folder(name), failed);
    if (failed) return file_error("cannot make", folder(name), failed.value());
    return Ok{};
}

Result<> MachineStore::remove(const std::string& name) const {
    std::error_code failed;
    fs::remove_all(unborn(name), failed);
    fs::remove_all(dead(name), failed);
    if (exists(name)) fs::rename(folder(name), dead(name), failed);
    if (!failed) fs::remove_all(dead(name), failed);
    if (failed) return file_error("cannot remove", folder(name), failed.value());
    return Ok{};
}

}  // namespace tnr::local
