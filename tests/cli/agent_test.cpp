// `tnr connect -A`: programs on the machine ask a real ssh-agent here.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "cli/commands/connect.hpp"
#include "cli/ssh/exec.hpp"
#include "cli/ssh/forward.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace std::chrono_literals;

namespace {

// An agent with one key.
class Agent {
public:
    Agent() {
        std::string program = "ssh-agent", flag = "-D", at = "-a", path = socket();
        char* words[] = {program.data(), flag.data(), at.data(), path.data(), nullptr};
        posix_spawn_file_actions_t quiet;
        posix_spawn_file_actions_init(&quiet);
        posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
        REQUIRE(::posix_spawnp(&child_, "ssh-agent", &quiet, nullptr, words, environ) == 0);
        posix_spawn_file_actions_destroy(&quiet);
        for (int tries = 0; tries < 1000 && !std::filesystem::exists(socket()); ++tries)
            std::this_thread::sleep_for(10ms);
        const std::string key = folder_ / "key";
        REQUIRE(std::system(("ssh-keygen -q -t ed25519 -N '' -C of-the-laptop -f " + key).c_str()) == 0);
        REQUIRE(std::system(("SSH_AUTH_SOCK=" + socket() + " ssh-add -q " + key + " 2>/dev/null").c_str()) == 0);
    }
    ~Agent() { end(); }
    std::string socket() const { return folder_ / "agent"; }
    // It accepts nothing while it stands, and what its socket does not hold has to wait.
    void stand_for(std::chrono::milliseconds time) const {
        ::kill(child_, SIGSTOP);
        std::this_thread::sleep_for(time);
        ::kill(child_, SIGCONT);
    }
    void end() {
        if (child_ <= 0) return;
        ::kill(child_, SIGKILL);
        ::waitpid(std::exchange(child_, -1), nullptr, 0);
    }

private:
    test::TemporaryFolder folder_;
    pid_t child_ = -1;
};

// With an agent there. sshd lets each connection have one once.
Result<std::string> said_by(test::Sshd& sshd, ssh::Forwards& forwards, const std::string& line) {
    test::TemporaryFolder folder;
    auto client = ssh::Client::connect(sshd.target(), ssh::Clock::now() + 30s);
    REQUIRE(client);
    REQUIRE(forwards.attach(**client));
    UniqueFd file{::open((folder / "said").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
    auto code = ssh::run(**client, ssh::Command{line, std::nullopt, {}, true}, {-1, file.get(), -1});
    forwards.detach();
    if (!code) return code.error();
    return test::read_text(folder / "said");
}

}  // namespace

TEST_CASE("programs on a machine ask the agent of this computer", "[ssh][agent]") {
    test::Sshd sshd;
    Agent agent;
    ssh::Forwards forwards([](const std::string&) {});
    CHECK_FALSE(forwards.let_agent("/no/such/agent"));
    CHECK(forwards.empty());
    REQUIRE(forwards.let_agent(agent.socket()));
    CHECK(said_by(sshd, forwards, "ssh-add -l")->find("of-the-laptop") != std::string::npos);
    // Several at once, a signature among them, and one that sends no question at all.
    const std::string sign = "echo x | ssh-keygen -Y sign -q -n file -f <(ssh-add -L) 2>/dev/null | head -n 1";
    CHECK(*said_by(sshd, forwards,
                   "exec bash -c '(sleep 1; :) | python3 -c \"import os,socket; s = socket.socket(socket.AF_UNIX); "
                   "s.connect(os.environ[\\\"SSH_AUTH_SOCK\\\"]); input()\" 2>/dev/null & for i in 1 2 3; do " +
                       sign + " & done; wait'") ==
          "-----BEGIN SSH SIGNATURE-----\n-----BEGIN SSH SIGNATURE-----\n-----BEGIN SSH SIGNATURE-----\n");
    // More at once than the agent has room for, which is busy, and comes back to them.
    {
        std::atomic<bool> over = false;
        std::thread busy([&] {
            while (!over) {
                agent.stand_for(300ms);
                std::this_thread::sleep_for(50ms);
            }
        });
        auto answered = said_by(
            sshd, forwards,
            "exec python3 -c \"import os,socket\nall = []\nfor i in range(200):\n s = socket.socket(socket.AF_UNIX)\n"
            " s.connect(os.environ['SSH_AUTH_SOCK'])\n all.append(s)\n"
            "def asks(s):\n s.send(b'\\0\\0\\0\\1\\13')\n return len(s.recv(1))\n"
            "print(sum(map(asks, all)))\"");
        over = true;
        busy.join();
        CHECK(*answered == "200\n");
    }
    // More than are carried at a time, of which each is answered in its turn or refused, and none for ever.
    CHECK(*said_by(sshd, forwards, "for i in $(seq 300); do ssh-add -l >/dev/null; done; echo $?") == "0\n");
    CHECK(*said_by(
              sshd, forwards,
              "exec python3 -c \"import os,socket\nall = []\nfor i in range(300):\n s = socket.socket(socket.AF_UNIX)\n"
              " s.connect(os.environ['SSH_AUTH_SOCK'])\n s.settimeout(60)\n all.append(s)\n"
              "def ended(s):\n try: return s.recv(1) == b''\n except ConnectionResetError: return True\n"
              "print(sum(map(ended, all[256:])))\"") == "44\n");
    CHECK(said_by(sshd, forwards, "ssh-add -l")->find("of-the-laptop") != std::string::npos);
    agent.end();
    CHECK(said_by(sshd, forwards, "ssh-add -l 2>&1 | head -n 1")->find("of-the-laptop") == std::string::npos);
}

TEST_CASE("who may not have an agent on a machine is told", "[ssh][agent]") {
    test::Sshd sshd("AllowAgentForwarding no\n");
    Agent agent;
    ssh::Forwards forwards([](const std::string&) {});
    REQUIRE(forwards.let_agent(agent.socket()));
    auto refused = said_by(sshd, forwards, "ssh-add -l");
    REQUIRE_FALSE(refused);
    CHECK(refused.error().what.find("takes no SSH agent") != std::string::npos);
}

TEST_CASE("connect -A gives a command the agent, together with forwarded ports", "[cli][agent]") {
    test::FakeSession fake;
    fake.start_demo();
    test::Sshd sshd;
    fake.put_demo_at(sshd);
    Agent agent;
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    UniqueFd out{ends[0]}, in{ends[1]};
    cli::ConnectOptions options{.name = "demo", .words = {"ssh-add", "-l"}, .forwards = {"0:9"}, .agent = true};
    options.streams = {-1, in.get(), -1};
    options.agent_socket = agent.socket();
    REQUIRE(cli::connect(fake.session, options));
    in.reset();
    std::string said;
    for (char c; ::read(out.get(), &c, 1) == 1;) said += c;
    CHECK(fake.session.exit_code == 0);
    CHECK(said.find("of-the-laptop") != std::string::npos);

    options.agent_socket = "/no/such/agent";
    auto none = cli::connect(fake.session, options);
    REQUIRE_FALSE(none);
    CHECK(none.error().what == "no SSH agent answers at /no/such/agent");
    options.agent_socket.clear();
    CHECK(cli::connect(fake.session, options).error().kind == Error::Kind::usage);
}
