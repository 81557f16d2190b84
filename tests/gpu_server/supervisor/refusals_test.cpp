// What the operator's commands say that they do not do, and what helps.
#include <dlfcn.h>
#include <sys/stat.h>

#include <exception>
#include <fstream>

#include "server.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::test;

TEST_CASE("what a command is refused for says what to do", "[odd]") {
    Folder folder;
    const auto here = folder.path + "/state", file = folder.path + "/file", no_folder = folder.path + "/none";
    REQUIRE(mkdir(here.c_str(), 0700) == 0);
    REQUIRE(run_server_command({"user", "add", "alice", "--address", "tcp://127.0.0.1:1", "--state", here}).code == 0);
    std::ofstream(file) << "x";
    using Words = std::vector<std::string>;
    const auto serve = [](const Words& more) {
        Words words = {"serve", "--plain", "--listen", "tcp://127.0.0.1:0"};
        words.insert(words.end(), more.begin(), more.end());
        return words;
    };
    const auto library = [] {  // of the C++ this is written in; none of CUDA
        Dl_info info{};
        REQUIRE(dladdr(reinterpret_cast<void*>(&std::terminate), &info) != 0);
        return std::string(info.dli_fname);
    }();
    const std::string other_folder = "hint: name another folder: --state DIR",
                      own_driver = "hint: --driver takes the path of";
    struct {
        Words words;
        std::string what, hint;
    } cases[] = {
        {serve({"--emulate", "h100", "--state", "/proc/x"}), "cannot make /proc/x", other_folder},
        {serve({"--emulate", "h100", "--state", file + "/in"}), "cannot make " + file, other_folder},
        {serve({"--emulate", "h100", "--state", file}), "is not a folder", other_folder},
        {serve({"--emulate", "l4:40", "--state", here}), "at most 32 GPUs", "hint: name fewer"},
        {serve({"--emulate", "h1000", "--state", here}), "known are h100, ", "hint: the line above says why"},
        {serve({"--driver", library, "--state", here}), "the driver lacks cu", own_driver},
        {serve({"--driver", no_folder, "--state", here}), "there is no driver at", own_driver},
        {{"backup", no_folder + "/x", "--state", here},
         "there is no folder " + no_folder + "\n",
         "hint: make it, or name"},
        {{"frob", "--state", here}, "`tnr-gpu-server` has no command 'frob'\n", "hint: commands: serve, user, "},
        {{"user", "frob"}, "`tnr-gpu-server user` has no command 'frob'\n", "hint: commands: add, list, "},
        {{}, "`tnr-gpu-server` needs a command: serve, user, ", "hint: `tnr-gpu-server --help`"},
        {{"user", "add", "--tokn"},
         "`tnr-gpu-server user add` has no option '--tokn'",
         "hint: did you mean '--token'?"},
        {{"user"}, "`tnr-gpu-server user` needs a command: add, list, ", "hint: `tnr-gpu-server user --help`"},
        {{"usr", "list"}, "`tnr-gpu-server` has no command 'usr'\n", "hint: did you mean 'user'? commands: serve, "},
        {{"user", "add"}, "`tnr-gpu-server user add` needs NAME (", "hint: `tnr-gpu-server user add --help`"},
        {{"serve", "--emulat", "h100"},
         "`tnr-gpu-server serve` has no option '--emulat'\n",
         "hint: did you mean '--emulate'? `tnr-gpu-server serve --help`"},
        {{"status", "more"},
         "`tnr-gpu-server status` does not expect 'more'\n",
         "hint: `tnr-gpu-server status --help`"},
        {{"serve", "--listen"}, "--listen needs a value\n", "hint: `tnr-gpu-server serve --help`"},
        {serve({"--listen", "tcp://127.0.0.1:1"}), "--listen is given more than once\n",
         "hint: `tnr-gpu-server serve --"},
        {{"serve", "--plain=maybe"}, "--plain takes no 'maybe'\n", "hint: `tnr-gpu-server serve --help`"},
        {{"serve", "--emulate", "h100", "--driver", "x"},
         "--driver excludes --emulate\n",
         "hint: leave one of them away"},
        {{"user", "limit", "alice", "--gpus", "-1"},
         "--gpus takes 0 to 1000000, not '-1'\n",
         "hint: `tnr-gpu-server us"},
        {{"user", "limit", "alice", "--weight", "x"},
         "--weight takes 0.01 to 100, not 'x'\n",
         "hint: `tnr-gpu-server us"},
        {{"status", "-o", "xml"}, "--output takes table, json, not 'xml'\n", "hint: `tnr-gpu-server status --help`"},
    };
    for (auto& [words, what, hint] : cases) {
        auto output = run_server_command(words);
        INFO(output.err);
        CHECK(output.code != 0);
        CHECK(output.err.find(what) != std::string::npos);
        CHECK(output.err.find(hint) != std::string::npos);
        CHECK(output.err.find("to try without a GPU") == std::string::npos);
    }
}
