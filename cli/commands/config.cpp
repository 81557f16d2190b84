// `tnr config`: the user's own defaults.
#include "cli/config.hpp"

#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"
#include "cli/ui/table.hpp"

namespace tnr::cli {
namespace {

struct ConfigOptions {
    std::string name, value;
};

nlohmann::json setting_json(const Setting& setting, const Default& found) {
    return {{"name", setting.name},
            {"value", or_null(found.value)},
            {"source", or_null(found.source)},
            {"variable", setting.variable}};
}

Result<> print_settings(Session& session, const std::vector<Setting>& wanted) {
    auto list = nlohmann::json::array();
    std::vector<std::vector<std::string>> rows = {{"SETTING", "VALUE", "FROM", "WHAT"}};
    for (const auto& setting : wanted) {
        auto found = default_of(session, setting.name);
        if (!found) return found.error();
        list.push_back(setting_json(setting, *found));
        rows.push_back({setting.name, found->value, found->source, setting.what});
    }
    if (session.json)
        print_document(session, "config", {{"settings", list}});
    else
        ui::print_table(session.out, rows, session.out_paint);
    return Ok{};
}

// For scripts: the value alone, and exit code 1 where there is none.
Result<> get_setting(Session& session, const std::string& name) {
    auto setting = find_setting(name);
    if (!setting) return setting.error();
    auto found = default_of(session, name);
    if (!found) return found.error();
    if (found->value.empty()) session.exit_code = exit_failed;
    if (session.json) return print_settings(session, {*setting});
    if (!found->value.empty()) session.out << found->value << "\n";
    return Ok{};
}

Result<> set_setting(Session& session, const std::string& name, const std::string& value) {
    auto setting = find_setting(name);
    if (!setting) return setting.error();
    if (!value.empty())
        if (auto good = check_setting(session, name, value); !good) return good;
    if (auto set = Config(session).set(name, value); !set) return set;
    auto found = default_of(session, name);
    if (found && found->source == setting->variable)
        session.err << "note: " << setting->variable << " is set and comes before it: " << found->value << "\n";
    return session.json ? print_settings(session, {*setting}) : Ok{};
}

}  // namespace

void add_config(Grammar& tnr, Session& session) {
    auto options = std::make_shared<ConfigOptions>();
    auto config = tnr.command("config", "Show and set your own defaults");
    config.requires_command();
    std::string all = "Settings: ";
    for (const auto& setting : settings()) all += (all.back() == ' ' ? "" : ", ") + setting.name;
    config.footer(
        all +
        ".\nAn option on the command line comes first, then what a machine that exists has, then the environment\n"
        "(TNR_PROVIDER and so on), then these. region and size hold for the default provider alone.\n\n"
        "Examples:\n"
        "  tnr config set provider hetzner\n"
        "  tnr config set idle-stop 1h\n"
        "  tnr config get gpu\n"
        "  tnr config list\n"
        "  tnr config unset idle-stop");
    auto list = config.command("list", "Show all settings, and where each comes from");
    list.run([&session] { session.result = print_settings(session, settings()); });
    list.footer("Example:\n  tnr config list");
    auto get = config.command("get", "Print one setting; exit code 1 where it has no value");
    get.required("name", options->name, "The setting");
    get.run([&session, options] { session.result = get_setting(session, options->name); });
    get.footer("Example:\n  tnr config get provider");
    auto set = config.command("set", "Set one");
    set.required("name", options->name, "The setting");
    set.required("value", options->value, "Its value");
    set.run([&session, options] { session.result = set_setting(session, options->name, options->value); });
    set.footer("Examples:\n  tnr config set gpu h100\n  tnr config set ttl 12h");
    auto unset = config.command("unset", "Take one out");
    unset.required("name", options->name, "The setting");
    unset.run([&session, options] { session.result = set_setting(session, options->name, ""); });
    unset.footer("Example:\n  tnr config unset ttl");
}

}  // namespace tnr::cli
