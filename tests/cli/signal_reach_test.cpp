// Whom the line that passes a signal on reaches, and above all whom it does not. A line that is wrong here signals every
// service of its machine, so all this happens in a PID namespace of its own: the visible test case starts this program
// again as the init of one, for the hidden cases.
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "cli/ssh/signals.hpp"
#include "tests/cli/sshd.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace std::chrono_literals;

namespace {

constexpr int cuts_in_all = 200;

// A process in a session and group of its own, as sshd and init start theirs. It has become the program on return.
pid_t spawn(std::vector<std::string> words, std::vector<std::string> variables) {
    std::vector<char*> arguments, environment;
    for (auto& word : words) arguments.push_back(word.data());
    for (auto& variable : variables) environment.push_back(variable.data());
    arguments.push_back(nullptr);
    environment.push_back(nullptr);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    pid_t pid = 0;
    int failed = ::posix_spawnp(&pid, arguments[0], nullptr, &attributes, arguments.data(), environment.data());
    posix_spawnattr_destroy(&attributes);
    return failed == 0 ? pid : -1;
}

int code_of(int status) {
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool lives(pid_t child) {
    return ::waitpid(child, nullptr, WNOHANG) == 0;
}

const std::string search_path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
const std::string our_connection = "SSH_CONNECTION=192.0.2.1 40000 192.0.2.2 22",
                  other_connection = "SSH_CONNECTION=192.0.2.1 4000 192.0.2.2 22";

// What a server that is called `name` had running for our connection and for another one, and what became of it when it
// ran the line with `variables` of its own.
struct Outcome {
    int code = -1;
    bool ours_lives = false, others_lives = false;
};
Outcome run_line(const std::string& name, const std::vector<std::string>& variables,
                 const std::string& login_shell = "sh", const std::string& posix_shell = "/bin/sh") {
    std::string line = ssh::signal_line(SIGTERM), before = "/bin/sh";
    line.replace(line.find(before), before.size(), posix_shell);
    std::vector<std::string> words{login_shell, "-c", line};
    if (auto space = login_shell.find(' '); space != std::string::npos)
        words = {login_shell.substr(0, space), login_shell.substr(space + 1), "-c", line};
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    UniqueFd told{ends[0]}, tell{ends[1]};
    pid_t server = ::fork();
    REQUIRE(server >= 0);
    if (server == 0) {
        ::prctl(PR_SET_NAME, name.c_str());
        pid_t mine = spawn({"sleep", "100"}, {search_path, our_connection}),
              not_mine = spawn({"sleep", "100"}, {search_path, other_connection});
        pid_t runs_line = spawn(words, variables);
        int status = -1;
        ::waitpid(runs_line, &status, 0);
        Outcome seen{code_of(status), false, lives(not_mine)};
        if (seen.code == 0)
            ::waitpid(mine, nullptr, 0);  // it has the signal, and takes its moment
        else
            seen.ours_lives = lives(mine);
        ::_exit(::write(tell.get(), &seen, sizeof seen) == sizeof seen ? 0 : 1);
    }
    Outcome outcome;
    ::waitpid(server, nullptr, 0);
    REQUIRE(::read(told.get(), &outcome, sizeof outcome) == sizeof outcome);
    return outcome;
}

// Its exit code, once the orphan is ours: its parent's sockets close a moment before it has to look for another parent.
int wait_for_orphan(pid_t pid) {
    int status = -1;
    for (auto deadline = ssh::Clock::now() + 10s; ssh::Clock::now() < deadline; std::this_thread::yield())
        if (::waitpid(pid, &status, 0) == pid) return code_of(status);
    return -1;
}

}  // namespace

TEST_CASE("a signal reaches only what its own connection has started", "[ssh][signal]") {
    if (::system("unshare --pid --fork --mount-proc true 2>/dev/null") != 0) {
        WARN("skipped: PID namespaces are not allowed here");
        return;
    }
    std::string self = std::filesystem::read_symlink("/proc/self/exe");
    CHECK(::system(("unshare --pid --fork --kill-child --mount-proc '" + self + "' '[below-init]' >&2").c_str()) == 0);
}

TEST_CASE("a connection that is cut between the request and the line signals nobody", "[.][below-init]") {
    REQUIRE(::getpid() == 1);
    test::TemporaryFolder folder;
    // sshd dies when the request has come, and the line starts as a child of init.
    test::write_text(
        folder / "cut",
        "#!/bin/sh\necho $$ >" + (folder / "pid") +
            "\nkill -KILL $PPID\nuntil read -r _ _ _ parent _ </proc/$$/stat && [ $parent = 1 ]; do :; done\n"
            "exec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"\n");
    REQUIRE(::chmod((folder / "cut").c_str(), 0755) == 0);
    REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
    // In a shell within a shell bash does not read the user's .bashrc, which is slow enough to matter here.
    test::Sshd sshd{"SetEnv SHLVL=2\nForceCommand exec " + (folder / "cut") + "\n"};
    pid_t service = spawn({"sleep", "1000"}, {search_path});
    pid_t left_by_another = spawn({"sleep", "1000"}, {search_path, other_connection});
    for (int cut = 0; cut < cuts_in_all; ++cut) {
        auto client = ssh::Client::connect(sshd.target(), ssh::Clock::now() + 30s);
        REQUIRE(client);
        CHECK_FALSE(ssh::send_signal(**client, SIGTERM));
        int code = wait_for_orphan(std::stoi(test::read_text(folder / "pid")));
        INFO("cut number " << cut);
        REQUIRE(code == 3);
        REQUIRE(lives(service));
        REQUIRE(lives(left_by_another));
    }
}

TEST_CASE("of a server's children only those of the same connection are signalled", "[.][below-init]") {
    REQUIRE(::getpid() == 1);
    auto only_ours = [](const Outcome& outcome) {
        CHECK(outcome.code == 0);
        CHECK_FALSE(outcome.ours_lives);
        CHECK(outcome.others_lives);
    };
    for (const char* server : {"sshd", "sshd-session"}) only_ours(run_line(server, {search_path, our_connection}));
    for (std::string shell : {"bash", "busybox sh", "csh", "dash", "fish", "ksh", "tcsh", "zsh"}) {
        if (::system(("command -v " + shell.substr(0, shell.find(' ')) + " >/dev/null").c_str()) != 0) continue;
        INFO("the login shell is " << shell);
        only_ours(run_line("sshd", {search_path, our_connection, "HOME=/nonexistent"}, shell));
        if (shell.ends_with("csh") || shell == "fish") continue;
        INFO("and so is /bin/sh");
        only_ours(run_line("sshd", {search_path, our_connection}, shell, shell));
    }
}

TEST_CASE("in doubt nobody is signalled", "[.][below-init]") {
    REQUIRE(::getpid() == 1);
    auto nobody = [](const Outcome& outcome) {
        CHECK(outcome.code == 3);
        CHECK(outcome.ours_lives);
        CHECK(outcome.others_lives);
    };
    SECTION("the parent adopts orphans and is no SSH server") {
        nobody(run_line("systemd", {search_path, our_connection}));
    }
    SECTION("the line does not know its own connection") {
        nobody(run_line("sshd", {search_path}));
        nobody(run_line("sshd", {search_path, "SSH_CONNECTION="}));
    }
    SECTION("no child is of this connection") {
        nobody(run_line("sshd", {search_path, "SSH_CONNECTION=192.0.2.1 40000 192.0.2.2 2"}));
    }
}
