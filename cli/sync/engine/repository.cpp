// See repository.hpp.
#include "cli/sync/engine/repository.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

#include "api_client/base/descriptors.hpp"
#include "cli/sync/engine/ignore.hpp"

extern char** environ;

namespace tnr::sync {
namespace {

namespace fs = std::filesystem;

// The user's, without what points git at another repository (as in a hook). A repository may have come from a machine, so nothing
// that its settings name is run: no transport is allowed, nothing is fetched.
std::vector<std::string> environment_of_git() {
    std::vector<std::string> all;
    for (char** each = environ; *each; ++each)
        if (std::string_view(*each).substr(0, 4) != "GIT_") all.emplace_back(*each);
    for (const char* own : {"GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1", "GIT_OPTIONAL_LOCKS=0"})
        all.emplace_back(own);
    return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
    std::vector<char*> pointers;
    for (auto& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    return pointers;
}

// All that comes until its end; nothing when that takes too long.
std::optional<std::string> everything_from(int fd, std::chrono::milliseconds patience) {
    using std::chrono::steady_clock;
    const auto limit = steady_clock::now() + patience;
    std::string text;
    char piece[16384];
    for (;;) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - steady_clock::now()).count();
        pollfd readable{fd, POLLIN, 0};
        const int ready = left > 0 ? ::poll(&readable, 1, static_cast<int>(left)) : 0;
        if (ready == 0) return std::nullopt;
        const ssize_t got = ready > 0 ? ::read(fd, piece, sizeof piece) : -1;
        if (got == 0) return text;
        if (got < 0 && errno != EINTR) return std::nullopt;
        if (got > 0) text.append(piece, static_cast<size_t>(got));
    }
}

pid_t start_git(std::vector<std::string> words, int output) {
    auto environment = environment_of_git();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    // The thread that walks has signals blocked, which git would inherit: Ctrl-C shall end it.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    pid_t pid = -1;
    const int failed =
        ::posix_spawnp(&pid, "git", &actions, &attributes, pointers_to(words).data(), pointers_to(environment).data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return failed ? -1 : pid;
}

class Git {
public:
    explicit Git(std::chrono::milliseconds patience) : patience_(patience) {}
    // What it prints; nothing when it is not there, refuses, or there is trouble.
    std::optional<std::string> say(const std::string& folder, const std::vector<std::string>& arguments);
    // It was killed or does not answer. What it leaves out is not known then, and may be what --delete shall spare.
    const std::optional<Error>& trouble() const { return trouble_; }

private:
    std::optional<std::string> no_answer(const std::string& folder, const std::string& why) {
        trouble_ = Error{Error::Kind::internal, "git does not say what it leaves out of " + folder + ": " + why,
                         "--no-ignore copies without asking it"};
        return std::nullopt;
    }

    const std::chrono::milliseconds patience_;
    std::optional<Error> trouble_;
};

std::optional<std::string> Git::say(const std::string& folder, const std::vector<std::string>& arguments) {
    std::vector<std::string> words = {"git", "-C", folder, "-c", "core.fsmonitor=false"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const Ends pipe = make_pipe(Waits::yes);
    UniqueFd reads{pipe.one}, writes{pipe.other};
    if (trouble_) return std::nullopt;
    if (!reads) return no_answer(folder, "no pipe can be made");
    const pid_t pid = start_git(std::move(words), writes.get());
    writes.reset();
    if (pid < 0) return std::nullopt;
    auto text = everything_from(reads.get(), patience_);
    if (!text) ::kill(pid, SIGKILL);
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!text) return no_answer(folder, "it takes too long");
    if (!WIFEXITED(status)) return no_answer(folder, "it was killed");
    return WEXITSTATUS(status) == 0 ? text : std::nullopt;
}

std::string without_newline(std::string line) {
    if (!line.empty() && line.back() == '\n') line.pop_back();
    return line;
}

// The folder of the repository that it is in, which may be itself.
std::optional<fs::path> root_of_repository(fs::path folder) {
    for (;; folder = folder.parent_path()) {
        std::error_code failed;
        const fs::path git = folder / ".git";
        // A file there is a worktree's or a submodule's.
        if (fs::is_regular_file(git, failed) || fs::exists(git / "HEAD", failed)) return folder;
        if (folder == folder.root_path()) return std::nullopt;
    }
}

// ~/.config/git/ignore, where the user has set no other.
std::string default_excludes() {
    const char* config = std::getenv("XDG_CONFIG_HOME");
    if (config && *config) return std::string(config) + "/git/ignore";
    const char* home = std::getenv("HOME");
    return home && *home ? std::string(home) + "/.config/git/ignore" : "";
}

// Rules that lie in one place, for the folder `at` of the repository and all below.
struct Level {
    std::string at;
    std::vector<std::string> texts;
};

// What holds in the whole repository, whose own files have the last word; nothing without git's word. What the rules say goes to
// the machine, and a repository may have come from one: neither its settings nor a link in it say which file that is.
std::vector<Level> levels_of_git(Git& git, const fs::path& root) {
    auto own = git.say(root, {"rev-parse", "--git-path", "info/exclude"});
    auto excludes = git.say("/", {"config", "--path", "--get", "core.excludesFile"});
    if (!own) return {};
    const std::string users = excludes ? without_newline(*excludes) : default_excludes();
    return {{"", {read_ignore_file(AT_FDCWD, users, Links::followed), ""}},
            {"", {read_ignore_file(AT_FDCWD, root / without_newline(*own), Links::refused), ""}}};
}

Level level_of_folder(const fs::path& root, const std::string& at) {
    Level level{at, {}};
    for (auto name : ignore_files) level.texts.push_back(read_ignore_file(AT_FDCWD, root / at / name, Links::refused));
    return level;
}

// All that hold above the folder `inside` of the repository; nothing when they leave it out.
std::vector<Level> levels_above(Git& git, const fs::path& root, const fs::path& inside) {
    std::vector<Level> levels = levels_of_git(git, root);
    if (levels.empty()) return {};
    std::shared_ptr<const IgnoreRules> rules;
    for (const auto& level : levels) rules = IgnoreRules::make(level.at, level.texts, rules);
    std::string at;
    for (const auto& name : inside) {
        levels.push_back(level_of_folder(root, at));
        rules = IgnoreRules::make(at, levels.back().texts, rules);
        at += (at.empty() ? "" : "/") + name.string();
        if (rules && rules->ignored(at, true)) return {};
    }
    return levels;
}

void add_tracked(Repository& repository, const std::string& list) {
    for (size_t at = 0; at < list.size();) {
        const size_t end = std::min(list.find('\0', at), list.size());
        std::string path = list.substr(at, end - at);
        for (size_t slash = path.rfind('/'); slash != std::string::npos; slash = path.rfind('/', slash - 1)) {
            if (!repository.folders_of_tracked.insert(path.substr(0, slash)).second || slash == 0) break;
        }
        repository.tracked.insert(std::move(path));
        at = end + 1;
    }
}

}  // namespace

Result<Repository> repository_of(const std::string& folder, std::chrono::milliseconds patience) {
    std::error_code failed;
    const fs::path whole = fs::canonical(folder.empty() ? "." : folder, failed);
    auto root = failed ? std::nullopt : root_of_repository(whole);
    if (!root) return Repository{};
    Git git(patience);
    Repository repository;
    const fs::path inside = whole == *root ? fs::path() : whole.lexically_relative(*root);
    for (const auto& level : levels_above(git, *root, inside)) {
        const std::string here = level.at.empty() ? inside.string() : inside.lexically_relative(level.at).string();
        repository.rules = IgnoreRules::make("", level.texts, repository.rules, here);
    }
    if (auto list = git.say(whole, {"ls-files", "-z", "-c", "-i", "--exclude-standard"}))
        add_tracked(repository, *list);
    if (git.trouble()) return *git.trouble();
    return repository;
}

}  // namespace tnr::sync
