// `tnr snapshot`: copies of machines' disks, from which `tnr start --image` makes others.
#include "cli/snapshots.hpp"

#include "api_client/base/interrupt.hpp"
#include "api_client/base/text.hpp"
#include "cli/ask.hpp"
#include "cli/commands/commands.hpp"
#include "cli/ui/table.hpp"
#include "cli/ui/time.hpp"

namespace tnr::cli {
namespace {

struct SnapshotOptions {
    std::string machine, label, name, doomed, provider;
    bool list = false, no_wait = false, yes = false;
};

constexpr int snapshot_poll_ms = 2000;
constexpr int snapshot_polls_max = 1800;  // an hour: a full disk of a large machine

nlohmann::json snapshot_json(const FoundSnapshot& found) {
    const Snapshot& snapshot = found.snapshot;
    auto number = [](const std::optional<double>& value) { return value ? nlohmann::json(*value) : nlohmann::json(); };
    return {{"id", snapshot.id},
            {"name", snapshot.name},
            {"provider", found.provider},
            {"size_gib", snapshot.size_gib},
            {"created", or_null(snapshot.created)},
            {"ready", snapshot.ready},
            {"currency", or_null(snapshot.currency)},
            {"per_month", number(snapshot.per_month)}};
}

Result<> end_with(Session& session, const std::vector<FoundSnapshot>& snapshots, const std::vector<Trouble>& troubles,
                  const std::string& deleted = "") {
    auto list = nlohmann::json::array();
    for (const auto& each : snapshots) list.push_back(snapshot_json(each));
    return finish(session, "snapshot", {{"snapshots", list}, {"deleted", or_null(deleted)}}, troubles);
}

Result<> list_snapshots(Session& session, const SnapshotOptions& options) {
    auto all = find_snapshots(session, options.provider);
    if (!session.json && all.found.empty() && all.troubles.empty())
        session.out << "No snapshots. `tnr snapshot NAME` makes one of a machine.\n";
    if (!session.json && !all.found.empty()) {
        std::vector<std::vector<std::string>> rows = {{"NAME", "PROVIDER", "SIZE", "AGE", "COST", "ID"}};
        for (const auto& [provider, snapshot] : all.found)
            rows.push_back({snapshot.name, provider,
                            snapshot.ready ? ui::bytes_text(snapshot.size_gib * (1 << 30)) : "being made",
                            ui::age(snapshot.created, session.now()),
                            price_text(snapshot.currency, snapshot.per_month, "/month"), snapshot.id});
        ui::print_table(session.out, rows, session.out_paint);
    }
    return end_with(session, all.found, all.troubles);
}

// "demo-20260102-0304", unless told.
std::string name_for(const SnapshotOptions& options, const std::string& now) {
    if (!options.label.empty()) return options.label;
    if (!options.name.empty()) return options.name;
    std::string digits;
    for (char letter : now.substr(0, 16))
        if (isdigit(static_cast<unsigned char>(letter))) digits += letter;
    return options.machine + "-" + digits.substr(0, 8) + "-" + digits.substr(8);
}

Result<Snapshot> wait_until_there(Session& session, Provider& provider, const std::string& name, bool wait) {
    for (int polls = 0; polls < snapshot_polls_max; ++polls) {
        auto all = provider.snapshots();
        if (!all) return all.error();
        for (const auto& snapshot : *all)
            if (snapshot.name == name && (snapshot.ready || !wait)) return snapshot;
        if (!session.pause(snapshot_poll_ms)) return interrupt::error();
    }
    return Error{Error::Kind::remote, "the snapshot '" + name + "' is not ready after an hour",
                 "`tnr snapshot --list` shows it"};
}

Result<> take_snapshot(Session& session, const SnapshotOptions& options) {
    auto known = find_machine(session, options.machine);
    if (!known) return known.error();
    auto& provider = *known->provider;
    std::string name = name_for(options, session.now());
    auto before = provider.snapshots();
    if (!before) return before.error();
    for (const auto& each : *before)
        if (each.name == name)
            return Error{Error::Kind::usage, "there is a snapshot '" + name + "' already",
                         "choose another --name, or `tnr snapshot --delete " + name + "`"};
    ui::Progress progress(session.screen());
    progress.begin("copying the disk of '" + options.machine + "'");
    if (auto taken = provider.snapshot(known->machine.id, name); !taken) return taken;
    auto made = wait_until_there(session, provider, name, !options.no_wait);
    if (!made && interrupt::interrupted())
        return Error{made.error().kind, made.error().what,
                     "the snapshot '" + name + "' is being made at provider " + known->record.provider +
                         ": `tnr snapshot --list` shows it, `tnr snapshot --delete " + name + "` removes it"};
    if (!made) return made.error();
    progress.end();
    if (!session.json)
        session.out << "Snapshot '" << name << "' of '" << options.machine << "' ("
                    << price_text(made->currency, made->per_month, "/month") << ")\n  use it:  tnr start NAME --image "
                    << name << "\n  remove:  tnr snapshot --delete " << name << "\n";
    return end_with(session, {{known->record.provider, *made}}, {});
}

Result<FoundSnapshot> find_doomed_snapshot(Session& session, const SnapshotOptions& options) {
    auto all = find_snapshots(session, options.provider);
    std::vector<FoundSnapshot> meant;
    std::vector<std::string> names;
    for (const auto& each : all.found) {
        names.push_back(each.snapshot.name);
        if (each.snapshot.name == options.doomed || each.snapshot.id == options.doomed) meant.push_back(each);
    }
    if (meant.size() == 1) return meant.front();
    if (meant.size() > 1)
        return Error{Error::Kind::usage, "several snapshots are called '" + options.doomed + "'",
                     "say which by its id, and --provider: `tnr snapshot --list`"};
    if (!all.troubles.empty()) return all.troubles.front().error;  // it may be there
    return Error{Error::Kind::not_found, "there is no snapshot '" + options.doomed + "'",
                 did_you_mean(options.doomed, names) + "`tnr snapshot --list` shows yours"};
}

Result<bool> may_delete_snapshot(Session& session, const SnapshotOptions& options) {
    if (options.yes) return true;
    if (!session.in_is_terminal)
        return Error{Error::Kind::usage, "delete the snapshot '" + options.doomed + "'? There is nobody to ask",
                     "say --yes when you mean it"};
    return ask_whether(session, "Delete the snapshot '" + options.doomed + "'?");
}

Result<> delete_snapshot(Session& session, const SnapshotOptions& options) {
    auto doomed = find_doomed_snapshot(session, options);
    if (!doomed) return doomed.error();
    auto agreed = may_delete_snapshot(session, options);
    if (!agreed) return agreed.error();
    if (!*agreed) {
        session.err << "Nothing was deleted\n";
        session.exit_code = exit_failed;
        return end_with(session, {}, {});
    }
    auto provider = session.provider(doomed->provider);
    if (!provider) return provider.error();
    if (auto deleted = (*provider)->delete_snapshot(doomed->snapshot.id); !deleted) return deleted;
    if (!session.json) session.out << "Deleted the snapshot '" << doomed->snapshot.name << "'\n";
    return end_with(session, {}, {}, doomed->snapshot.name);
}

Result<> snapshot(Session& session, const SnapshotOptions& options) {
    int asked = options.list + !options.doomed.empty() + !options.machine.empty();
    if (asked != 1)
        return Error{Error::Kind::usage, asked ? "one thing at a time" : "say which machine",
                     "`tnr snapshot NAME`, `tnr snapshot --list` or `tnr snapshot --delete SNAPSHOT`"};
    if (!options.label.empty() && !options.name.empty() && options.label != options.name)
        return Error{Error::Kind::usage,
                     "the snapshot has two names: '" + options.label + "' and '" + options.name + "'",
                     "say one of them"};
    if (options.list) return list_snapshots(session, options);
    return options.doomed.empty() ? take_snapshot(session, options) : delete_snapshot(session, options);
}

}  // namespace

void add_snapshot(Grammar& tnr, Session& session) {
    auto options = std::make_shared<SnapshotOptions>();
    auto command = tnr.command("snapshot", "Copy a machine's disk, list and delete such copies");
    command.option("machine", options->machine, "The machine, as `tnr status` shows it");
    command.option("label", options->label, "What to call the snapshot, as --name");
    command.option("--name", options->name, "What to call the snapshot; the machine's name and the time unless told");
    command.flag("--list", options->list, "Show the snapshots of all providers");
    command.option("--delete", options->doomed, "Delete the snapshot of this name or id");
    command.option("--provider", options->provider, "Only this one");
    command.flag("--no-wait", options->no_wait, "Return once the provider has accepted");
    command.flag("-y,--yes", options->yes, "Do not ask");
    command.footer(
        "A snapshot outlives its machine, and costs until it is deleted. At local the machine has to be stopped.\n\n"
        "Examples:\n"
        "  tnr snapshot demo --name trained          or: tnr snapshot demo trained\n"
        "  tnr start twin --gpu h100 --image trained\n"
        "  tnr snapshot --list\n"
        "  tnr snapshot --delete trained --yes");
    command.run([&session, options] { session.result = snapshot(session, *options); });
}

}  // namespace tnr::cli
