// `tnr sync`: copy files to or from a machine.
#include "cli/commands/sync.hpp"

#include <sys/stat.h>

#include "api_client/base/files.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/reach.hpp"
#include "cli/json_out.hpp"
#include "cli/sync/copy.hpp"
#include "cli/sync/endpoints.hpp"

namespace tnr::cli {
namespace {

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

Result<> check(const SyncOptions& options) {
    bool from_machine = !sync::parse_endpoint(options.from).machine.empty();
    bool to_machine = !sync::parse_endpoint(options.to).machine.empty();
    const char* hint =
        "for example `tnr sync ./data demo:` or `tnr sync demo:results .`; a local name with a colon is "
        "written ./a:b";
    if (from_machine && to_machine) return Error{Error::Kind::usage, "one of the two must be on this computer", hint};
    if (!from_machine && !to_machine)
        return Error{Error::Kind::usage, "neither '" + options.from + "' nor '" + options.to + "' names a machine",
                     hint};
    if (!from_machine && !file_exists(options.from))
        return Error{Error::Kind::usage, "there is no '" + options.from + "' here"};
    return Ok{};
}

std::string progress_text(const sync::Tally& tally) {
    std::string text = ui::bytes_text(static_cast<double>(tally.bytes)) + " of " +
                       ui::bytes_text(static_cast<double>(tally.bytes_total)) + ", " + std::to_string(tally.files) +
                       " files";
    return text;
}

// "1 file", "2 files".
std::string files_text(size_t count) {
    return std::to_string(count) + (count == 1 ? " file" : " files");
}

void tell(Session& session, const sync::Tally& tally) {
    session.out << "Copied " << files_text(tally.files) << ", " << ui::bytes_text(static_cast<double>(tally.bytes));
    if (tally.unchanged) session.out << "; " << tally.unchanged << " unchanged";
    session.out << "\n";
    if (tally.others) session.err << "note: left out " << tally.others << " sockets or devices\n";
    if (tally.special)
        session.err << "note: " << files_text(tally.special)
                    << " lost setuid, setgid or sticky bits, which are not copied\n";
    if (tally.times)
        session.err << "note: " << files_text(tally.times)
                    << " got another time: SFTP has none before 1970 or after 2106\n";
}

// What went over the wire is there; what could not be read is told, the first few by name.
Result<> end(Session& session, const sync::Tally& tally) {
    constexpr size_t told_max = 5;
    std::vector<Trouble> troubles;
    for (const auto& error : tally.unreadable) troubles.push_back({"", error});
    if (!session.json) tell(session, tally);
    if (!session.json && troubles.size() > told_max) {
        size_t more = troubles.size() - told_max;
        troubles.resize(told_max);
        troubles.push_back({"", {Error::Kind::remote, "and " + std::to_string(more) + " more could not be read"}});
    }
    auto ended = finish(session, "sync",
                        {{"copied", tally.files},
                         {"unchanged", tally.unchanged},
                         {"bytes", tally.bytes},
                         {"left_out", tally.others},
                         {"without_special_bits", tally.special},
                         {"with_other_times", tally.times}},
                        troubles);
    if (!troubles.empty()) session.exit_code = exit_failed;
    return ended;
}

}  // namespace

Result<sync::Tally> sync_over(ssh::Sftp& sftp, const SyncOptions& options, const sync::Watch& watch) {
    sync::Endpoint from = sync::parse_endpoint(options.from), to = sync::parse_endpoint(options.to);
    if (from.machine.empty()) {
        auto there = is_folder_there(sftp, to.path);
        if (!there) return there.error();
        std::string place = sync::final_place(from.path, is_folder_here(from.path), to.path, *there);
        return sync::upload(sftp, to.machine, from.path, place, watch);
    }
    auto source_is_folder = is_folder_there(sftp, from.path);
    if (!source_is_folder) return source_is_folder.error();
    std::string place = sync::final_place(from.path, *source_is_folder, to.path, is_folder_here(to.path));
    return sync::download(sftp, from.machine, from.path, place, watch);
}

Result<> sync_files(Session& session, const SyncOptions& options) {
    if (auto good = check(options); !good) return good;
    std::string machine = sync::parse_endpoint(options.from).machine + sync::parse_endpoint(options.to).machine;
    auto client = reach(session, machine);
    if (!client) return client.error();
    auto sftp = ssh::Sftp::open(**client);
    if (!sftp) return sftp.error();
    Result<sync::Tally> tally = Error{Error::Kind::internal, ""};
    {
        ui::Progress progress(session.screen());
        progress.begin("copying " + options.from + " to " + options.to);
        tally = sync_over(**sftp, options, [&](const sync::Tally& now) { progress.note(progress_text(now)); });
        if (tally) progress.end(progress_text(*tally));
    }
    if (!tally) return tally.error();
    return end(session, *tally);
}

void add_sync(Grammar& tnr, Session& session) {
    auto options = std::make_shared<SyncOptions>();
    auto command = tnr.command("sync", "Copy files or folders to a machine, or from it");
    command.required("from", options->from, "A path here, or MACHINE:PATH");
    command.required("to", options->to, "A path here, or MACHINE:PATH; MACHINE: alone is the home folder");
    command.footer(
        "Modes, times and links are kept; files of the same size and time are not sent again; nothing is removed.\n"
        "A large file whose copying was cut off goes on where it stopped.\n"
        "What cannot be read is passed over and told at the end, which is then exit code 1.\n"
        "A folder's copy is TO itself, or is put inside TO when TO ends with a slash (or is `MACHINE:` or `.`).\n"
        "A slash after FROM means the folder's contents.\n\n"
        "Examples:\n"
        "  tnr sync ./saxpy demo:             to ~/saxpy\n"
        "  tnr sync ./project demo:project    ~/project becomes a copy; again to send what changed\n"
        "  tnr sync ./project demo:work/      to ~/work/project\n"
        "  tnr sync demo:results .            to ./results\n"
        "  tnr sync demo:/var/log/syslog logs/");
    command.run([&session, options] { session.result = sync_files(session, *options); });
}

}  // namespace tnr::cli
