// What a real shell completes with our script; zsh and fish where there are.
#include "cli/commands/completion.hpp"

#include <cstdio>
#include <cstdlib>

#include "tests/cli/sshd.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

namespace {

const std::vector<cli::Place> places = {
    {"", {{"start", "Make one"}, {"status", "Show all"}, {"login", "Sign in"}}, {{"--json", "As JSON"}}},
    {"start", {}, {{"--gpu", "GPU type"}, {"--gpus", "It's two"}}},
    {"status", {}, {{"--help", "Help"}}},
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
                                 ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_tnr\necho \"${COMPREPLY[@]}\"\n");
}

}  // namespace

TEST_CASE("bash completes commands, commands below them, and their options after a dash", "[cli][completion]") {
    CHECK(offered("tnr ''") == "start status login\n");
    CHECK(offered("tnr st") == "start status\n");
    CHECK(offered("tnr --json sta") == "start status\n");
    CHECK(offered("tnr start --g") == "--gpu --gpus\n");
    CHECK(offered("tnr start demo --gpu") == "--gpu --gpus\n");
    CHECK(offered("tnr start ''") == "\n");  // a name, or whatever the shell offers by itself
    CHECK(offered("tnr login ''") == "pool\n");
    CHECK(offered("tnr login pool -") == "--help\n");
    CHECK(offered("tnr start demo -- --g") == "\n");  // not ours any more
    CHECK_FALSE(cli::completion("tcsh", places));
}

TEST_CASE("fish completes the same", "[cli][completion]") {
    if (!there_is("fish")) return;
    auto offers = [](const std::string& line) {  // fish 3.3 leaves sorting to who shows them
        return output_of("fish", *cli::completion("fish", places) + "\ncomplete -C '" + line + "' | sort\n");
    };
    CHECK(offers("tnr st") == "start\tMake one\nstatus\tShow all\n");
    CHECK(offers("tnr start --gpus") == "--gpus\tIt's two\n");
    CHECK(offers("tnr login p") == "pool\tA pool\n");
}

TEST_CASE("zsh takes bash's script", "[cli][completion]") {
    if (!there_is("zsh")) return;
    CHECK(output_of("zsh -f", "autoload -U compinit && compinit -D\n" + *cli::completion("zsh", places) +
                                  "\necho ${_comps[tnr]}\n") == "_bash_complete -o default -F _tnr\n");
}
