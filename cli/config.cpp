// See config.hpp.
#include "cli/config.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api_client/base/files.hpp"
#include "api_client/base/text.hpp"
#include "cli/timers.hpp"
#include "cli/ui/text.hpp"

namespace tnr::cli {
namespace {

std::string list_of_settings() {
    std::string list;
    for (const auto& setting : settings()) list += (list.empty() ? "" : ", ") + setting.name;
    return list;
}

}  // namespace

const std::vector<Setting>& settings() {
    static const std::vector<Setting> all = {
        {"provider", "TNR_PROVIDER", "who makes machines"},
        {"region", "TNR_REGION", "where, at that provider"},
        {"size", "TNR_SIZE", "how large, in that provider's words"},
        {"gpu", "TNR_GPU", "GPU type, or TYPE:COUNT"},
        {"pool", "TNR_POOL", "pool of GPUs, tcp://HOST:PORT"},
        {"idle-stop", "TNR_IDLE_STOP", "when a machine that nobody uses switches itself off"},
        {"ttl", "TNR_TTL", "when any machine does"},
    };
    return all;
}

Result<Setting> find_setting(const std::string& name) {
    std::vector<std::string> names;
    for (const auto& setting : settings()) {
        if (setting.name == name) return setting;
        names.push_back(setting.name);
    }
    return Error{Error::Kind::usage, "there is no setting '" + name + "'",
                 did_you_mean(name, names) + "settings: " + list_of_settings()};
}

Result<> check_setting(Session& session, const std::string& name, const std::string& value) {
    if (auto known = find_setting(name); !known) return known.error();
    if (value.empty()) return Error{Error::Kind::usage, "no value for " + name, "`tnr config unset " + name + "`"};
    auto checked = [](const auto& result) { return result ? Result<>{Ok{}} : Result<>{result.error()}; };
    if (name == "gpu") return checked(parse_gpu(value));
    if (name == "pool") return checked(parse_endpoint(value));
    if (name == "idle-stop" || name == "ttl") return checked(parse_duration(value, name));
    const auto& names = session.provider_names;
    if (name != "provider" || std::find(names.begin(), names.end(), value) != names.end()) return Ok{};
    return Error{Error::Kind::usage, "there is no provider '" + value + "'",
                 did_you_mean(value, names) + "providers: " + comma_separated(names)};
}

Config::Config(Session& session) : path_(session.config_folder + "/config.json") {}

Result<std::map<std::string, std::string>> Config::all() const {
    std::map<std::string, std::string> values;
    if (!file_exists(path_)) return values;
    auto text = read_file(path_);
    if (!text) return text.error();
    const auto stored = nlohmann::json::parse(*text, nullptr, false);
    bool good = stored.is_object();
    for (const auto& setting : settings())
        good = good && (!stored.contains(setting.name) || stored[setting.name].is_string());
    if (!good)
        return Error{Error::Kind::internal, path_ + " is damaged: it is no JSON object of texts",
                     "mend it, or remove it and set anew what it had"};
    for (const auto& [name, value] : stored.items())
        if (value.is_string()) values[name] = value.template get<std::string>();
    return values;
}

// Settings of a newer tnr stay, whatever they are.
Result<> Config::set(const std::string& name, const std::string& value) {
    return change_file(path_, [&]() -> Result<> {
        if (auto values = all(); !values) return values.error();
        auto text = read_file(path_);
        auto stored = text ? nlohmann::json::parse(*text) : nlohmann::json::object();
        if (value.empty())
            stored.erase(name);
        else
            stored[name] = value;
        return write_file(path_, stored.dump(2) + "\n");
    });
}

Result<Default> default_of(Session& session, const std::string& name) {
    auto setting = find_setting(name);
    if (!setting) return setting.error();
    if (session.world.variable)
        if (auto value = session.world.variable(setting->variable); !value.empty())
            return Default{value, setting->variable};
    Config config(session);
    auto values = config.all();
    if (!values) return values.error();
    auto found = values->find(name);
    return found == values->end() ? Default{} : Default{found->second, config.path()};
}

Result<> default_to(Session& session, const std::string& name, std::string& option) {
    if (!option.empty()) return Ok{};
    auto found = default_of(session, name);
    if (!found) return found.error();
    if (found->value.empty()) return Ok{};
    if (auto good = check_setting(session, name, found->value); !good) {
        Error error = good.error();
        error.what += " (from " + found->source + ")";
        return error;
    }
    option = found->value;
    return Ok{};
}

}  // namespace tnr::cli
