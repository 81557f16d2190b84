// One `tnr sync` to or from an SSH server at a port of this computer: sync_bench PORT KEY HOST_KEY.pub SRC DST [--sftp] [--delete]
// The machine is called "m". All that the command does, from connecting on; prints what travelled.
#include <pwd.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "api_client/base/files.hpp"
#include "cli/commands/sync.hpp"

int main(int argc, char** argv) {
    using namespace tnr;
    std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() < 5) return 2;
    auto key = ssh::load_key(words[1]);
    auto host_key = read_file(words[2]);
    if (!key || !host_key) return 2;
    bool sftp_alone = words.back() == "--sftp";
    auto client =
        ssh::Client::connect({"m", "127.0.0.1", std::stoi(words[0]), ::getpwuid(::geteuid())->pw_name, *host_key, *key},
                             ssh::Clock::now() + std::chrono::seconds(30));
    if (!client) return std::fprintf(stderr, "%s\n", client.error().what.c_str()), 1;
    cli::SyncOptions options;
    options.paths = {words[3], words[4]};
    options.remove_extra = words.back() == "--delete";
    Result<sync::Tally> tally = Error{Error::Kind::internal, ""};
    std::string note;
    auto watch = [](const sync::Tally&) {};
    if (sftp_alone) {
        auto sftp = ssh::Sftp::open(**client);
        if (sftp) tally = cli::sync_by_sftp(**sftp, options, watch);
    } else {
        tally = cli::sync_over(**client, options, watch, [&](const std::string& said) { note = said; });
    }
    if (!tally || !note.empty())
        return std::fprintf(stderr, "%s %s\n", tally ? "" : tally.error().what.c_str(), note.c_str()), 1;
    std::printf("{\"files\": %zu, \"unchanged\": %zu, \"bytes\": %llu}\n", tally->files, tally->unchanged,
                static_cast<unsigned long long>(tally->bytes));
}
