// `tnr sync`: copy files to or from a machine.
#include "cli/commands/sync.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>

#include "api_client/base/files.hpp"
#include "api_client/base/interrupt.hpp"
#include "api_client/base/text.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/reach.hpp"
#include "cli/commands/sync_progress.hpp"
#include "cli/json_out.hpp"
#include "cli/sync/agent.hpp"
#include "cli/sync/engine/endpoints.hpp"
#include "cli/sync/sftp_tree.hpp"
#include "cli/sync/watch.hpp"

namespace tnr::cli {
namespace {

constexpr size_t told_max = 5;  // of what could not be read, by name
constexpr int reconnect_pause_ms = 1000;

bool is_folder_here(const std::string& path) {
    struct stat found;
    return ::stat(path.empty() ? "." : path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

Result<bool> is_folder_there(ssh::Sftp& sftp, const std::string& path) {
    bool folder = false;
    sftp.stat(path.empty() ? "." : path, [&](ssh::Reply reply) {
        folder = reply.ok() && sync::kind_of(reply.attributes.mode.value_or(0)) == sync::Kind::folder;
    });
    if (auto settled = sftp.settle(); !settled) return settled.error();
    return folder;
}

struct Pair {
    sync::Endpoint from, to;
    const std::string& machine() const { return from.machine.empty() ? to.machine : from.machine; }
    bool up() const { return from.machine.empty(); }
};

Pair endpoints(const SyncOptions& options) {
    return {sync::parse_endpoint(options.paths[0]), sync::parse_endpoint(options.paths[1])};
}

sync::SyncSettings settings_of(const SyncOptions& options) {
    Pair pair = endpoints(options);
    sync::SyncSettings settings{pair.from.path, pair.to.path, pair.machine()};
    settings.remove_extra = options.remove_extra;
    settings.dry_run = options.dry_run;
    settings.ignore = !options.no_ignore;
    return settings;
}

Result<> check(const SyncOptions& options) {
    const char* hint =
        "for example `tnr sync ./data demo:` or `tnr sync demo:results .`; a local name with a colon is "
        "written ./a:b";
    if (options.paths.size() < 2) return Error{Error::Kind::usage, "say what to copy, and where to", hint};
    std::string to_machine = sync::parse_endpoint(options.paths.back()).machine, from_machine;
    for (size_t i = 0; i + 1 < options.paths.size(); ++i) {
        auto from = sync::parse_endpoint(options.paths[i]);
        if (i > 0 && from.machine != from_machine)
            return Error{Error::Kind::usage, "what is copied together must be in one place", hint};
        from_machine = from.machine;
        if (!from_machine.empty() && !to_machine.empty())
            return Error{Error::Kind::usage, "one of the two must be on this computer", hint};
        if (from_machine.empty() && to_machine.empty())
            return Error{Error::Kind::usage,
                         "neither '" + options.paths[i] + "' nor '" + options.paths.back() + "' names a machine", hint};
        if (from_machine.empty() && !file_exists(options.paths[i]))
            return Error{Error::Kind::usage, "there is no '" + options.paths[i] + "' here"};
    }
    if (options.watch && !from_machine.empty())
        return Error{Error::Kind::usage, "--watch is for what is copied to a machine"};
    if (options.remove_extra && options.paths.size() > 2)
        return Error{Error::Kind::usage, "--delete is for one folder at a time"};
    return Ok{};
}

// A name may have any bytes.
std::string on_a_line(const std::string& path) {
    return ui::plain(path, "\n\t\\");
}

void tell(Session& session, const SyncOptions& options, const sync::Tally& tally) {
    for (const auto& path : tally.copies) session.out << "copy   " << on_a_line(path) << "\n";
    for (const auto& path : tally.removals) session.out << "remove " << on_a_line(path) << "\n";
    session.out << (options.dry_run ? "Would copy " : "Copied ") << counted(tally.files, "file") << ", "
                << ui::bytes_text(static_cast<double>(options.dry_run ? tally.bytes_total : tally.bytes));
    if (tally.unchanged) session.out << "; " << tally.unchanged << " unchanged";
    if (tally.removed) session.out << "; " << tally.removed << (options.dry_run ? " would be" : "") << " removed";
    session.out << "\n";
    if (tally.nothing_removed) session.err << "note: nothing was removed, since not all of the source could be read\n";
    if (tally.ignored)
        session.err << "note: left out " << tally.ignored
                    << " that git or .tnrignore ignores; --no-ignore copies them\n";
    if (tally.others) session.err << "note: left out " << tally.others << " pipes, sockets or devices\n";
    if (tally.special)
        session.err << "note: " << counted(tally.special, "file")
                    << " lost setuid, setgid or sticky bits, which are not copied\n";
    if (tally.times)
        session.err << "note: " << counted(tally.times, "file")
                    << " got another time: SFTP has none before 1970 or after 2106\n";
}

void add_up(sync::Tally& all, const sync::Tally& one) {
    all.files += one.files, all.unchanged += one.unchanged, all.removed += one.removed, all.ignored += one.ignored;
    all.others += one.others, all.special += one.special, all.times += one.times;
    all.bytes += one.bytes, all.bytes_found += one.bytes_found, all.bytes_total += one.bytes_total;
    all.nothing_removed = all.nothing_removed || one.nothing_removed;
    all.unreadable.insert(all.unreadable.end(), one.unreadable.begin(), one.unreadable.end());
    all.copies.insert(all.copies.end(), one.copies.begin(), one.copies.end());
    all.removals.insert(all.removals.end(), one.removals.begin(), one.removals.end());
}

// What went over the wire is there; what could not be read is told, the first few by name.
Result<> end(Session& session, const SyncOptions& options, const sync::Tally& tally) {
    std::vector<Trouble> troubles;
    for (const auto& error : tally.unreadable) troubles.push_back({"", error});
    if (!session.json) tell(session, options, tally);
    if (!session.json && troubles.size() > told_max) {
        size_t more = troubles.size() - told_max;
        troubles.resize(told_max);
        troubles.push_back(
            {"", {Error::Kind::remote, "and " + std::to_string(more) + " more could not be read or removed"}});
    }
    auto ended = finish(session, "sync",
                        {{"copied", tally.files},
                         {"unchanged", tally.unchanged},
                         {"bytes", tally.bytes},
                         {"left_out", tally.others},
                         {"without_special_bits", tally.special},
                         {"with_other_times", tally.times},
                         {"dry_run", options.dry_run},
                         {"removed", tally.removed},
                         {"ignored", tally.ignored},
                         {"to_copy", tally.copies},
                         {"to_remove", tally.removals}},
                        troubles);
    if (!troubles.empty()) session.exit_code = exit_failed;
    return ended;
}

// One source after the other, over one connection.
Result<sync::Tally> sync_all(ssh::Client& client, const SyncOptions& options, const sync::Watch& watch,
                             const std::function<void(const std::string&)>& notes) {
    sync::Tally all;
    SyncOptions one = options;
    std::string to = options.paths.back();
    // Several can only go into a folder.
    if (options.paths.size() > 2 && to.back() != '/' && to.back() != ':') to += '/';
    for (size_t i = 0; i + 1 < options.paths.size(); ++i) {
        one.paths = {options.paths[i], to};
        auto tally = sync_over(client, one, watch, notes);
        if (!tally) return tally;
        add_up(all, *tally);
    }
    return all;
}

Result<sync::Tally> sync_shown(Session& session, ssh::Client& client, const SyncOptions& options) {
    ui::Progress progress(session.screen());
    std::string what;
    for (size_t i = 0; i + 1 < options.paths.size(); ++i) what += (i ? ", " : "") + options.paths[i];
    progress.begin((options.dry_run ? "comparing " : "copying ") + what + (options.dry_run ? " with " : " to ") +
                   options.paths.back());
    SyncProgress text;
    auto tally = sync_all(
        client, options, [&](const sync::Tally& now) { progress.note(text(now, SyncProgress::Clock::now())); },
        [&](const std::string& note) {
            if (options.verbose) progress.say("note: " + note);
        });
    if (tally) progress.end(text(*tally, SyncProgress::Clock::now()));
    return tally;
}

Result<> look_at_sources(sync::Watcher& watcher, const SyncOptions& options) {
    Result<> all = Ok{};
    for (size_t i = 0; i + 1 < options.paths.size(); ++i)
        if (auto looked = watcher.look(options.paths[i]); !looked && all) all = looked;
    return all;
}

// A machine that cannot be reached for a while is waited for.
Result<sync::Tally> sync_in_the_end(Session& session, const SyncOptions& options, const std::string& machine,
                                    std::unique_ptr<ssh::Client>& client) {
    auto tally = sync_all(*client, options, [](const sync::Tally&) {}, {});
    while (!tally && tally.error().kind == Error::Kind::network && session.pause(reconnect_pause_ms)) {
        session.err << "note: " << tally.error().what << "; connecting again\n" << std::flush;
        auto again = reach(session, machine);
        if (!again && again.error().kind != Error::Kind::network) return again.error();
        if (!again) continue;
        client = std::move(*again);
        tally = sync_all(*client, options, [](const sync::Tally&) {}, {});
    }
    return tally;
}

// Whenever something changes, until the user ends it.
Result<> keep_syncing(Session& session, const SyncOptions& options, const std::string& machine,
                      std::unique_ptr<ssh::Client> client, sync::Watcher& watcher) {
    session.err << "watching for changes; Ctrl-C ends it\n" << std::flush;
    for (;;) {
        if (auto changed = watcher.wait(); !changed) return interrupt::interrupted() ? Result<>{Ok{}} : changed;
        auto looked = look_at_sources(watcher, options);
        auto tally = sync_in_the_end(session, options, machine, client);
        if (interrupt::interrupted()) return Ok{};
        if (!tally)
            tell_error(session, tally.error());
        else if (!looked)  // a source that is gone is told of once
            tell_error(session, looked.error());
        if (tally && (tally->files || tally->removed)) tell(session, options, *tally);
        for (size_t i = 0; tally && i < std::min(tally->unreadable.size(), told_max); ++i)
            tell_error(session, tally->unreadable[i]);
        session.out << std::flush;
    }
}

}  // namespace

Result<sync::Tally> sync_by_sftp(ssh::Sftp& sftp, const SyncOptions& options, const sync::Watch& watch) {
    auto [from, to] = endpoints(options);
    sync::SyncSettings settings = settings_of(options);
    if (from.machine.empty()) {
        auto there = is_folder_there(sftp, to.path);
        if (!there) return there.error();
        settings.to = sync::final_place(from.path, is_folder_here(from.path), to.path, *there);
        return sync::upload(sftp, settings, watch);
    }
    return sync::download(sftp, settings, watch);
}

Result<sync::Tally> sync_over(ssh::Client& client, const SyncOptions& options, const sync::Watch& watch,
                              const std::function<void(const std::string&)>& notes) {
    std::string unusable;
    sync::SyncSettings settings = settings_of(options);
    auto tally = sync::sync_by_server(client, settings, endpoints(options).up(), watch, unusable);
    if (unusable.empty()) return tally;
    if (notes) notes(tally.error().what + "; using SFTP, which is slower and sends changed files whole");
    auto sftp = ssh::Sftp::open(client);
    if (!sftp) return sftp.error();
    return sync_by_sftp(**sftp, options, watch);
}

Result<> sync_files(Session& session, const SyncOptions& options) {
    if (auto good = check(options); !good) return good;
    if (options.watch && session.json)
        return Error{Error::Kind::usage, "--watch has no end that a document could tell of"};
    std::string machine = endpoints({{options.paths.front(), options.paths.back()}}).machine();
    auto client = reach(session, machine);
    if (!client) return client.error();
    auto watcher = sync::Watcher::make(!options.no_ignore);
    if (!watcher) return watcher.error();
    // Before the first run: what changes while it goes on is for the second.
    if (auto looked = options.watch ? look_at_sources(*watcher, options) : Ok{}; !looked) return looked;
    auto tally = sync_shown(session, **client, options);
    if (!tally) return tally.error();
    auto ended = end(session, options, *tally);
    return options.watch ? keep_syncing(session, options, machine, std::move(*client), *watcher) : ended;
}

void add_sync(Grammar& tnr, Session& session) {
    auto options = std::make_shared<SyncOptions>();
    auto recursive = std::make_shared<bool>(false);  // says nothing new, and is no error
    auto command = tnr.command("sync", "Copy files or folders to a machine, or from it");
    command.alias("scp");
    command.flag("-r,--recursive", *recursive, "For who is used to scp: folders are always copied whole");
    command.required_words("paths", options->paths,
                           "SRC... DST: paths here or MACHINE:PATH; MACHINE: alone is the home folder");
    command.flag("--delete", options->remove_extra, "Remove from DST what SRC does not have");
    command.flag("-n,--dry-run", options->dry_run, "Only say what would be copied and removed");
    command.flag("-w,--watch", options->watch, "Go on copying whatever changes, until Ctrl-C");
    command.flag("--no-ignore", options->no_ignore, "Copy what git, .gitignore and .tnrignore leave out, too");
    command.flag("-v,--verbose", options->verbose, "Say which way the files go");
    command.footer(
        "Modes, times and links are kept; files of the same size and time are not sent again, and of a changed file "
        "only\n"
        "what changed. Without --delete nothing is removed. A large file whose copying was cut off goes on where it "
        "stopped.\n"
        "What .gitignore and .tnrignore name, by git's rules, is neither copied nor removed. Where SRC is in a git\n"
        "repository, that is what git itself leaves out: rules of the folders above SRC, .git/info/exclude and your\n"
        "core.excludesFile count, and what git tracks is copied all the same, unless .tnrignore names it.\n"
        "What cannot be read is passed over and told at the end, which is then exit code 1.\n"
        "Owners, ACLs and extended attributes are not copied; of hard links each name becomes a file, holes stay "
        "holes.\n"
        "Where a machine does not let a program of ours run, files go over SFTP, and changed ones whole.\n"
        "A folder's copy is DST itself, or is put inside DST when DST ends with a slash (or is `MACHINE:` or `.`, or "
        "there are\n"
        "several SRC). A slash after SRC means the folder's contents.\n\n"
        "Examples:\n"
        "  tnr sync ./saxpy demo:             to ~/saxpy\n"
        "  tnr sync ./project demo:project    ~/project becomes a copy; again to send what changed\n"
        "  tnr sync -w ./project demo:project and goes on with every change\n"
        "  tnr sync ./project demo:work/      to ~/work/project\n"
        "  tnr sync --delete -n ./src demo:src   what would it do?\n"
        "  tnr sync demo:results .            to ./results\n"
        "  tnr sync demo:/var/log/syslog logs/");
    command.run([&session, options, recursive] { session.result = sync_files(session, *options); });
}

}  // namespace tnr::cli
