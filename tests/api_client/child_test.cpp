// Running tools.
#include "api_client/providers/local/child.hpp"

#include <poll.h>
#include <sys/syscall.h>

#include "tests/support/catch.hpp"

#include "api_client/base/interrupt.hpp"
#include "world.hpp"

using namespace tnr;
using namespace tnr::local;

TEST_CASE("a tool's output and exit code come back", "[child]") {
    std::vector<std::string> lines;
    auto finished = run({.argv = {"sh", "-c", "echo one; echo two >&2; exit 3"},
                         .on_line = [&](const std::string& line) { lines.push_back(line); }});
    REQUIRE(finished);
    CHECK(finished->exit_code == 3);
    CHECK(finished->output == "one\ntwo\n");
    CHECK(lines == std::vector<std::string>{"one", "two"});
    CHECK(last_line(finished->output) == "two");
}

TEST_CASE("a tool inherits the one descriptor it is given and no other", "[child]") {
    UniqueFd stray(::dup(2)), kept(::dup(2));  // without FD_CLOEXEC, as a shell leaves its own
    auto finished = run({.argv = {"ls", "/proc/self/fd"}, .keep_fd = kept.get()});
    REQUIRE(finished);
    CHECK(finished->output == "0\n1\n2\n200\n3\n");  // 3 is the folder that ls reads
}

TEST_CASE("a tool that takes too long is ended", "[child]") {
    auto finished = run({.argv = {"sleep", "600"}, .limit_ms = 50});
    REQUIRE(finished);
    CHECK(finished->timed_out);
    CHECK(finished->exit_code == 128 + 9);
}

TEST_CASE("a tool that does not exist says so", "[child]") {
    auto finished = run({.argv = {"no-such-tool-anywhere"}});
    REQUIRE(finished);
    CHECK(finished->exit_code == 127);

    auto found = find_tool("no-such-tool-anywhere", "its-package");
    REQUIRE(!found);
    CHECK(found.error().what == "no-such-tool-anywhere is not installed");
    CHECK(found.error().hint == "run `sudo apt-get install its-package`");
}

TEST_CASE("endless output does not fill our memory", "[child]") {
    auto finished = run({.argv = {"sh", "-c", "yes | head -c 3000000; echo end"}});
    REQUIRE(finished);
    CHECK(finished->output.size() < 200'000);
    CHECK(last_line(finished->output) == "end");
}

TEST_CASE("Ctrl-C ends a tool and all that it has started, and is told as that", "[child]") {
    const test::TemporaryFolder folder;
    std::string inner;
    // As an image builder that is deep in a download: its shell waits for a child, which ignores the terminal's Ctrl-C.
    auto finished = run({.argv = {"sh", "-c", "trap '' INT; sh -c 'echo $$; exec sleep 600'; echo went on"},
                         .on_line = [&](const std::string& line) {
                             inner = line;
                             interrupt::raise_for_test();
                         }});
    interrupt::clear_for_test();
    REQUIRE(!finished);
    CHECK(finished.error().what == "interrupted");
    CHECK(inner != "went on");
    const UniqueFd ended(static_cast<int>(::syscall(SYS_pidfd_open, std::stoi(inner), 0)));
    pollfd wait{ended.get(), POLLIN, 0};
    CHECK((!ended || ::poll(&wait, 1, 10'000) == 1));
}

TEST_CASE("a tool that must run to its end does, and hears nothing of the terminal's Ctrl-C", "[child]") {
    auto finished = run({.argv = {"sh", "-c", "echo begun; ps -o pgid= -p $$; sleep 0.2; echo done"},
                         .to_the_end = true,
                         .on_line = [&](const std::string& line) {
                             if (line == "begun") interrupt::raise_for_test();
                         }});
    interrupt::clear_for_test();
    REQUIRE(finished);
    CHECK(last_line(finished->output) == "done");
    CHECK(finished->output.find(std::to_string(::getpgrp()) + "\n") == std::string::npos);
}
