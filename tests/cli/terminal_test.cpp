// A shell on a machine has a real terminal: ours, with its size, and ours is given back afterwards.
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstring>
#include "tests/support/catch.hpp"
#include "tests/support/complaints.hpp"

#include "cli/ssh/terminal.hpp"
#include "tests/cli/sshd.hpp"

using namespace tnr;
using namespace std::chrono_literals;

namespace {

// The user's side of a terminal: what they type, and what they see.
struct User {
    UniqueFd screen, terminal;
    std::string seen;

    User() {
        int ours = -1, theirs = -1;
        winsize size{33, 101, 0, 0};
        REQUIRE(::openpty(&ours, &theirs, nullptr, nullptr, &size) == 0);
        screen = UniqueFd{ours};
        terminal = UniqueFd{theirs};
    }
    void type(const std::string& text) const { (void)!::write(screen.get(), text.data(), text.size()); }
    // False when it did not appear within ten seconds.
    bool sees(const std::string& text) {
        auto deadline = ssh::Clock::now() + 10s;
        while (seen.find(text) == std::string::npos && ssh::Clock::now() < deadline) {
            pollfd wait{screen.get(), POLLIN, 0};
            if (::poll(&wait, 1, 100) <= 0) continue;
            char piece[4096];
            ssize_t got = ::read(screen.get(), piece, sizeof piece);
            if (got <= 0) break;
            seen.append(piece, static_cast<size_t>(got));
        }
        return seen.find(text) != std::string::npos;
    }
};

termios modes(int fd) {
    termios found{};
    REQUIRE(::tcgetattr(fd, &found) == 0);
    return found;
}

}  // namespace

TEST_CASE("a shell gets a terminal of our size, hears of a new size and of Ctrl-C, and gives the terminal back",
          "[ssh][terminal]") {
    test::Sshd sshd;
    auto client = ssh::Client::connect(sshd.target(), ssh::Clock::now() + 30s);
    REQUIRE(client);
    User user;
    termios before = modes(user.terminal.get());
    Result<int> code = 0;
    test::Complaints complaints;
    {
        ssh::RawTerminal raw{user.terminal.get()};
        CHECK_FALSE(modes(user.terminal.get()).c_lflag & ICANON);
        int fd = user.terminal.get();
        auto main_thread = ::pthread_self();
        std::thread typist([&] {
            user.type("PS1=; stty -echo; stty size\n");
            complaints.expect(user.sees("33 101"), "33 101");
            winsize wider{44, 132, 0, 0};
            ::ioctl(fd, TIOCSWINSZ, &wider);
            ::pthread_kill(main_thread, SIGWINCH);
            // The new size travels before what is typed after it.
            user.type("sleep 0.2; stty size\n");
            complaints.expect(user.sees("44 132"), "44 132");
            user.type("tty; trap 'echo caught' INT; echo ready; sleep 100 & wait\n");
            complaints.expect(user.sees("/dev/pts/"), "/dev/pts/");
            complaints.expect(user.sees("ready"), "ready");
            user.type("\x03");
            complaints.expect(user.sees("caught"), "caught");
            user.type("\nexit 5\n");
        });
        ssh::Command shell{"exec bash --norc -i", raw.pty()};
        code = ssh::run(**client, shell, {fd, fd, fd});
        typist.join();
    }
    CHECK(complaints.text() == "");
    REQUIRE(code);
    CHECK(*code == 5);
    termios after = modes(user.terminal.get());
    CHECK(after.c_lflag == before.c_lflag);
    CHECK(after.c_iflag == before.c_iflag);
    CHECK(after.c_oflag == before.c_oflag);
}
