// Records as JSON files, and their locks.
#include "cli/records.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "api_client/base/files.hpp"
#include "cli/newer_fields.hpp"
#include "gpu_client/protocol/control.hpp"

namespace tnr::cli {
namespace {

using Json = nlohmann::json;

constexpr std::array step_names = {"keys", "enrolled", "ordered", "installed", "proven"};

// A step we do not know may be one with a machine that costs money: no guessing.
Result<Step> step_of(const std::string& name) {
    auto found = std::find(step_names.begin(), step_names.end(), name);
    if (found == step_names.end())
        return Error{Error::Kind::internal, "its step '" + name + "' is none that this tnr knows",
                     "where a newer tnr has written it, use that one"};
    return static_cast<Step>(found - step_names.begin());
}

Json to_json(const Record& record) {
    return {{"name", record.name},
            {"provider", record.provider},
            {"id", record.id},
            {"gpu", record.gpu},
            {"count", record.count},
            {"pool", record.pool},
            {"step", to_string(record.step)},
            {"host_key", record.host_key},
            {"host_secret", record.host_secret},
            {"machine_key", {{"public", record.machine_key.public_key}, {"secret", record.machine_key.secret_key}}},
            {"created", record.created},
            {"size", record.size},
            {"region", record.region},
            {"image", record.image},
            {"has_gpu", record.has_gpu},
            {"has_count", record.has_count},
            {"login_key", record.login_key},
            {"own_key", record.own_key},
            {"setup", record.setup},
            {"setup_done", record.setup_done},
            {"idle_stop_s", record.idle_stop_s},
            {"ttl_s", record.ttl_s},
            {"ttl_ends", record.ttl_ends},
            {"budget_from", record.budget_from},
            {"budget_until", record.budget_until},
            {"over_budget", record.over_budget},
            {"open_ports", record.open_ports},
            {"tags", record.tags}};
}

Result<int> count_of(const Json& json) {
    if (json.is_number_integer() && json >= 1 && json <= control::gpus_per_claim_max) return json.get<int>();
    return Error{Error::Kind::internal, "'count' is no number of GPUs"};
}

Result<Record> record_from_json(const Json& json) {
    Record record;
    record.name = json.at("name");
    record.provider = json.at("provider");
    record.id = json.at("id");
    record.gpu = json.at("gpu");
    auto count = count_of(json.at("count"));
    if (!count) return count.error();
    record.count = *count;
    record.pool = json.at("pool");
    auto step = step_of(json.at("step"));
    if (!step) return step.error();
    record.step = *step;
    record.host_key = json.at("host_key");
    record.host_secret = json.at("host_secret");
    record.machine_key = {json.at("machine_key").at("public"), json.at("machine_key").at("secret")};
    record.created = json.at("created");
    // What records of older versions do not have.
    bool installed = record.step >= Step::installed;
    record.size = json.value("size", "");
    record.region = json.value("region", "");
    record.image = json.value("image", "");
    record.has_gpu = json.value("has_gpu", installed ? record.gpu : "");
    record.has_count = json.value("has_count", installed ? record.count : 0);
    record.login_key = json.value("login_key", "");
    record.own_key = json.value("own_key", false);
    record.setup = json.value("setup", "");
    record.setup_done = json.value("setup_done", false);
    record.idle_stop_s = json.value("idle_stop_s", int64_t{0});
    record.ttl_s = json.value("ttl_s", int64_t{0});
    record.ttl_ends = json.value("ttl_ends", int64_t{0});
    record.budget_from = json.value("budget_from", int64_t{0});
    record.budget_until = json.value("budget_until", int64_t{0});
    record.over_budget = json.value("over_budget", false);
    record.open_ports = json.value("open_ports", std::vector<int>{});
    record.tags = json.value("tags", std::map<std::string, std::string>{});
    return record;
}

}  // namespace

Result<Record> parse_record(const std::string& text) try {
    return record_from_json(Json::parse(text));
} catch (const Json::parse_error&) {
    return Error{Error::Kind::internal, "it is no JSON"};
} catch (const Json::exception&) {
    return Error{Error::Kind::internal, "a field is missing or is of the wrong kind"};
}

std::string to_string(Step step) {
    return step_names[static_cast<size_t>(step)];
}

std::string Records::path(const std::string& name) const {
    return folder_ + "/" + name + ".json";
}

bool Records::exists(const std::string& name) const {
    return file_exists(path(name));
}

Result<std::optional<Record>> Records::find(const std::string& name) const {
    if (!file_exists(path(name))) return std::optional<Record>{};
    auto text = read_file(path(name));
    if (!text) return text.error();
    auto record = parse_record(*text);
    // The name is a path's part and a host's name: what another program wrote there is not trusted.
    if (record && record->name == name) return std::optional<Record>{*record};
    std::string why = record ? "it is about '" + record->name + "'" : record.error().what;
    std::string hint = record || record.error().hint.empty() ? "" : record.error().hint + "; otherwise ";
    if (check_machine_name(name))
        hint += "`tnr delete " + name + "` removes the machine and its record, " + path(name);
    else  // nothing that could be part of a command
        hint += "it is no machine's: remove " + path(name);
    return Error{Error::Kind::internal, "the record of '" + name + "' is damaged: " + why, hint};
}

Records::All Records::all() const {
    All all;
    std::error_code none;  // no folder yet: no machines
    for (const auto& file : std::filesystem::directory_iterator(folder_, none)) {
        if (file.path().extension() != ".json") continue;
        std::string name = file.path().stem().string();
        auto record = find(name);
        if (!record) all.damaged.push_back({name, record.error()});
        if (record && *record) all.records.push_back(**record);
    }
    auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
    std::sort(all.records.begin(), all.records.end(), by_name);
    std::sort(all.damaged.begin(), all.damaged.end(), by_name);
    return all;
}

Result<> Records::save(const Record& record) {
    Json json = to_json(record);
    auto text = read_file(path(record.name));
    keep_newer_fields(json, text ? Json::parse(*text, nullptr, false) : Json());
    return write_file(path(record.name), json.dump(2) + "\n", 0600);
}

Result<> Records::remove(const std::string& name) {
    return remove_file(path(name));
}

Result<RecordLock> Records::lock(const std::string& name) {
    if (auto made = make_folders(folder_); !made) return made.error();
    std::string file = folder_ + "/" + name + ".lock";
    auto fd = try_lock_file(file);
    if (!fd) return fd.error();
    if (*fd) return RecordLock{file, std::move(**fd)};
    return Error{Error::Kind::remote, "another tnr is working on '" + name + "' right now",
                 "wait for it to end, or see who it is: `fuser " + file + "`"};
}

RecordLock::~RecordLock() {
    if (fd_) ::unlink(file_.c_str());  // while it is still ours: whoever has opened it meanwhile notices
}

}  // namespace tnr::cli
