// Running tools.
#include "api_client/providers/local/child.hpp"

#include "tests/support/catch.hpp"

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
