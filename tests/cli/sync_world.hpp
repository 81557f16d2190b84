// A machine and this computer, between which files go both ways that `tnr sync` has.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>

#include "cli/commands/sync.hpp"
#include "tests/cli/sshd.hpp"
#include "tests/support/catch.hpp"

namespace tnr::test::sync_world {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

// Both ways that files go must do the same.
enum class Way { server, sftp };

// A machine whose login user has a cache folder of the test's own.
inline std::string cache_at(const test::TemporaryFolder& folder) {
    return "SetEnv XDG_CACHE_HOME=" + folder.path() + "\n";
}

inline constexpr unsigned nobody = 65534;

// On that machine nobody has a shell, as our server needs.
inline std::string shell_for_nobody(const test::TemporaryFolder& folder) {
    std::string passwd = folder / "passwd";
    return "sed 's,^nobody:.*,nobody:x:65534:65534::/:/bin/sh,' /etc/passwd >" + passwd + "\nmount --bind " + passwd +
           " /etc/passwd";
}

struct World {
    test::TemporaryFolder cache, etc;
    test::Sshd sshd;
    std::unique_ptr<ssh::Client> client;
    std::unique_ptr<ssh::Sftp> sftp;
    test::TemporaryFolder here, there;
    Way way;
    cli::SyncOptions options = {};

    explicit World(Way which = Way::server, bool as_nobody = false)
        : sshd(cache_at(cache), as_nobody ? shell_for_nobody(etc) : ""), way(which) {
        auto target = sshd.target();
        if (as_nobody) {
            target.user = "nobody";
            REQUIRE(::chown(cache.path().c_str(), nobody, nobody) == 0);
            REQUIRE(::chown(there.path().c_str(), nobody, nobody) == 0);
        }
        auto connected = ssh::Client::connect(target, ssh::Clock::now() + 30s);
        if (!connected) FAIL(connected.error().what);
        client = std::move(*connected);
        auto opened = ssh::Sftp::open(*client);
        if (!opened) FAIL(opened.error().what);
        sftp = std::move(*opened);
    }
    Result<sync::Tally> copy(
        const std::string& from, const std::string& to, const sync::Watch& watch = [](auto&) {}) {
        options.paths = {from, to};
        if (way == Way::sftp) return cli::sync_by_sftp(*sftp, options, watch);
        std::string note;
        auto tally = cli::sync_over(*client, options, watch, [&](const std::string& why) { note = why; });
        CHECK(note.empty());
        return tally;
    }
    sync::Tally copied(const std::string& from, const std::string& to) {
        auto tally = copy(from, to);
        if (!tally) FAIL(tally.error().what);
        return *tally;
    }
};

inline Way each_way() {
    return GENERATE(Way::server, Way::sftp);
}

inline void age(const std::string& path, time_t mtime) {
    timespec times[2] = {{mtime, 0}, {mtime, 0}};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
}

inline struct stat look(const std::string& path) {
    struct stat found {};
    INFO(path);
    REQUIRE(::lstat(path.c_str(), &found) == 0);
    return found;
}

// Such as cannot be compressed, so that as many are on their way as a test counts.
inline std::string many_bytes(size_t count) {
    std::string text(count, 'x');
    uint64_t state = 1;
    for (char& letter : text) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        letter = static_cast<char>(state >> 56);
    }
    return text;
}

inline size_t count_in(const std::string& folder) {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace tnr::test::sync_world
