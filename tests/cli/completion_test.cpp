// What real shells complete with our script; zsh, and all of them at a terminal: shells_test.py.
#include "cli/commands/completion.hpp"

#include <cstdio>
#include <cstdlib>

#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

namespace {

const std::vector<cli::Place> places = {
    {"", {{"start", "Make one"}, {"status", "Show all", {"ls"}}, {"login", "Sign in"}}, {{"--json", "As JSON"}}},
    {"start",
     {},
     {{"--gpu", "GPU type", {"-g"}, true}, {"--gpus", "It's two"}, {"--image", "A file", {}, true}},
     {{"name", "A machine"}, {"gpu", "A type"}}},
    {"status", {}, {{"--help", "Help"}}, {{"name", "Machines", {}, false, false, true}}},
    {"login", {{"pool", "A pool"}}, {{"--help", "Help"}}},
    {"login pool", {}, {{"--help", "Help"}}},
};

bool there_is(const std::string& shell) {
    if (std::system(("command -v " + shell + " >/dev/null").c_str()) == 0) return true;
    WARN("no " + shell + " here: its completion is not tested");
    return false;
}

std::string output_of(const std::string& program, const std::string& script) {
    test::TemporaryFolder folder;
    test::write_text(folder / "script", script);
    std::unique_ptr<FILE, int (*)(FILE*)> pipe{::popen((program + " " + (folder / "script") + " 2>&1").c_str(), "r"),
                                               ::pclose};
    std::string text;
    for (int byte; (byte = std::fgetc(pipe.get())) != EOF;) text += static_cast<char>(byte);
    return text;
}

// What bash offers for the last of `words`.
std::string offered(const std::string& words) {
    return output_of("bash", *cli::completion("bash", places) + "\nCOMP_WORDS=(" + words +
                                 ")\ntnr() { echo \"VALUES:$3\"; }\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_tnr\necho "
                                 "\"${COMPREPLY[@]}\"\n");
}

}  // namespace

TEST_CASE("bash completes commands, commands below them, and their options after a dash", "[cli][completion]") {
    CHECK(offered("tnr ''") == "start status login\n");
    CHECK(offered("tnr st") == "start status\n");
    CHECK(offered("tnr --json sta") == "start status\n");
    CHECK(offered("tnr start --g") == "--gpu --gpus\n");
    CHECK(offered("tnr start demo --gpu") == "--gpu --gpus\n");
    CHECK(offered("tnr start demo h100 ''") == "\n");  // whatever the shell offers by itself
    CHECK(offered("tnr login ''") == "pool\n");
    CHECK(offered("tnr login pool -") == "--help\n");
    CHECK(offered("tnr start demo -- --g") == "\n");  // not ours any more
    CHECK_FALSE(cli::completion("tcsh", places));
}

TEST_CASE("bash completes machines, providers and types where one stands", "[cli][completion]") {
    CHECK(offered("tnr start ''") == "VALUES:name\n");
    CHECK(offered("tnr --json start demo ''") == "VALUES:gpu\n");
    CHECK(offered("tnr start --gpu ''") == "VALUES:gpu\n");
    CHECK(offered("tnr start -g ''") == "VALUES:gpu\n");
    CHECK(offered("tnr start --gpu h100 ''") == "VALUES:name\n");  // the option's value is no argument
    CHECK(offered("tnr start --gpus ''") == "VALUES:name\n");
    CHECK(offered("tnr status one two ''") == "VALUES:name\n");
    CHECK(offered("tnr ls ''") == "VALUES:name\n");  // by its other name
    CHECK(offered("tnr start -") == "--gpu --gpus --image\n");
}

TEST_CASE("the values are what there is, and nobody is asked for them", "[cli][completion]") {
    test::FakeSession fake;
    auto values = [&](const std::string& kind) {
        CHECK(fake.tnr({"completion", "--values", kind}) == 0);
        return fake.out.str();
    };
    CHECK(values("name").empty());
    fake.start_demo();
    fake.start_demo("other");
    CHECK(values("name") == "demo\nother\n");
    CHECK(values("gpu").empty());
    REQUIRE(fake.tnr({"gpus"}) == 0);
    fake.world.pool_reachable = false;
    CHECK(values("gpu") == "a100\nh100\n");
    CHECK(values("provider") == "local\n");
    CHECK(values("output") == "table\nwide\njson\nyaml\nname\n");
    CHECK(values("by") == "machine\ngpu\nprovider\nday\ntag\nuser\n");
    CHECK(values("shell") == "bash\nzsh\nfish\n");
    CHECK(values("any").empty());
    CHECK(fake.tnr({"completion"}) == 2);
}

TEST_CASE("bash completes with the whole grammar", "[cli][completion]") {
    test::FakeSession fake;
    REQUIRE(fake.tnr({"completion", "bash"}) == 0);
    auto offers = [&](const std::string& words) {
        return output_of("bash", fake.out.str() + "\nCOMP_WORDS=(" + words +
                                     ")\ntnr() { echo \"VALUES:$3\"; }\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_tnr\n"
                                     "echo \"${COMPREPLY[@]}\"\n");
    };
    CHECK(offers("tnr stop demo ''") == "VALUES:name\n");
    CHECK(offers("tnr rm ''") == "VALUES:name\n");
    CHECK(offers("tnr attach demo ''") == "VALUES:gpu\n");
    CHECK(offers("tnr offers --provider ''") == "VALUES:provider\n");
    CHECK(offers("tnr status -o ''") == "VALUES:output\n");
    CHECK(offers("tnr ssh ''") == "VALUES:name\n");
    CHECK(offers("tnr login pool ''") == "\n");
}

TEST_CASE("fish completes the same", "[cli][completion]") {
    if (!there_is("fish")) return;
    auto offers = [](const std::string& line) {  // fish 3.3 leaves sorting to who shows them
        return output_of("fish", *cli::completion("fish", places) +
                                     "\nfunction tnr; echo VALUES:$argv[3]; end\ncomplete -C '" + line + "' | sort\n");
    };
    CHECK(offers("tnr st") == "start\tMake one\nstatus\tShow all\n");
    CHECK(offers("tnr start --gpus") == "--gpus\tIt's two\n");
    CHECK(offers("tnr start ") == "VALUES:gpu\nVALUES:name\n");
    CHECK(offers("tnr start --gpu ") == "VALUES:gpu\tGPU type\n");
    CHECK(offers("tnr login p") == "pool\tA pool\n");
    CHECK(offers("tnr ls --h") == "--help\tHelp\n");
}
