// No command is left running on a machine unnoticed: what becomes of it when the user presses Ctrl-C, tnr is asked to
// end, or nobody reads its output any more. The machine is this computer, so /proc knows what still runs.
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "api_client/base/interrupt.hpp"
#include "cli/ssh/exec.hpp"
#include "tests/cli/sshd.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace std::chrono_literals;

namespace {

struct Pipe {
    UniqueFd out, in;
    Pipe() {
        int ends[2];
        REQUIRE(::pipe(ends) == 0);
        out = UniqueFd{ends[0]};
        in = UniqueFd{ends[1]};
    }
    std::string line() const {
        std::string text;
        for (char c = 0; ::read(out.get(), &c, 1) == 1 && c != '\n';) text += c;
        return text;
    }
};

// A command that says its process id first, and the user who then does something.
struct Running {
    test::Sshd sshd;
    std::unique_ptr<ssh::Client> client;
    Pipe output;
    pid_t pid = 0;
    UniqueFd handle;

    Running() {
        // Whoever runs the tests in the background of a script has made them ignore Ctrl-C.
        for (int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
        interrupt::install();
        auto connected = ssh::Client::connect(sshd.target(), ssh::Clock::now() + 30s);
        if (!connected) FAIL(connected.error().what);
        client = std::move(*connected);
    }
    ~Running() {
        interrupt::clear_for_test();
        // Not by its number, which may be another's once the command has ended.
        if (handle) ::syscall(SYS_pidfd_send_signal, handle.get(), SIGKILL, nullptr, 0);
    }
    void is(const std::string& said) {
        pid = std::atoi(said.c_str());
        handle.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    }
    Result<int> run(const std::string& command, const std::function<void()>& user, std::optional<ssh::Pty> pty = {}) {
        std::thread thread([&] {
            is(output.line());
            user();
        });
        auto code = ssh::run(*client, {"echo $$; " + command, std::move(pty)}, {-1, output.in.get(), -1});
        output.in.reset();  // whatever went wrong, the user does not wait for a line that cannot come
        thread.join();
        return code;
    }
    // False when it still runs after ten seconds.
    bool has_ended() const {
        for (auto deadline = ssh::Clock::now() + 10s; ssh::Clock::now() < deadline; std::this_thread::yield()) {
            std::ifstream stat{"/proc/" + std::to_string(pid) + "/stat"};
            std::string text;
            if (!std::getline(stat, text) || text.find(") Z") != std::string::npos) return true;
        }
        return false;
    }
};

}  // namespace

TEST_CASE("Ctrl-C goes to the command, which ends in its own way and with its own code", "[ssh][signal]") {
    Running running;
    std::string before, after;
    auto code = running.run("trap 'echo saved; exit 9' INT; echo ready; while :; do sleep 0.05; done", [&] {
        before = running.output.line();
        interrupt::raise_for_test();
        after = running.output.line();
    });
    CHECK(before == "ready");
    CHECK(after == "saved");
    REQUIRE(code);
    CHECK(*code == 9);
    CHECK_FALSE(interrupt::interrupted());  // it has been dealt with
}

TEST_CASE("the signal reaches all that the command has started, and is the one that tnr got", "[ssh][signal]") {
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
        Running running;
        auto code = running.run("sleep 100 | sleep 100", [&] { ::kill(::getpid(), signal); });
        REQUIRE(code);
        CHECK(*code == 128 + signal);
        CHECK(running.has_ended());
    }
}

TEST_CASE("a second Ctrl-C leaves a command that does not end, and says so", "[ssh][signal]") {
    Running running;
    auto code = running.run("trap '' INT; exec sleep 100", [] {
        interrupt::raise_for_test();
        auto deadline = ssh::Clock::now() + 10s;
        while (interrupt::interrupted() && ssh::Clock::now() < deadline) std::this_thread::yield();
        interrupt::raise_for_test();
    });
    REQUIRE_FALSE(code);
    CHECK(code.error().what == "interrupted, and left the command on 'demo' to itself");
    CHECK(code.error().hint.find("tnr connect demo") != std::string::npos);
    CHECK(interrupt::exit_code() == 130);
}

TEST_CASE("with a terminal there, a tnr that is asked to end takes the command with it", "[ssh][signal]") {
    Running running;
    ssh::Pty pty{"xterm", [] { return ssh::WindowSize{}; }};
    auto code = running.run(
        "exec sleep 100", [] { ::kill(::getpid(), SIGTERM); }, pty);
    REQUIRE_FALSE(code);
    CHECK(interrupt::exit_code() == 128 + SIGTERM);
    running.client.reset();  // as at tnr's end
    CHECK(running.has_ended());
}

TEST_CASE("a reader that goes away ends the command as SIGPIPE would, though it never writes again", "[ssh][signal]") {
    Running running;
    Pipe input, nobody;
    nobody.out.reset();
    std::thread user([&] {
        running.is(running.output.line());
        (void)!::write(input.in.get(), "go\n", 3);
    });
    auto code = ssh::run(*running.client, {"echo $$ >&2; read go; echo text; exec sleep 100", {}},
                         {input.out.get(), nobody.in.get(), running.output.in.get()});
    running.output.in.reset();
    user.join();
    REQUIRE(code);
    CHECK(*code == 128 + SIGPIPE);
    CHECK(running.has_ended());
}

TEST_CASE("a signal that tnr was started to ignore is ignored", "[ssh][signal]") {
    pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {  // as nohup does
        ::signal(SIGHUP, SIG_IGN);
        ::signal(SIGTERM, SIG_DFL);
        interrupt::install();
        ::raise(SIGHUP);
        bool deaf = !interrupt::interrupted();
        ::raise(SIGTERM);
        ::_exit(deaf && interrupt::interrupted() ? 0 : 1);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    interrupt::clear_for_test();  // the pipe that wakes us is the child's as well
    CHECK(status == 0);
}
