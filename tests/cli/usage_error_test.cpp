// What `tnr` answers to command lines that it does not understand, with its own grammar.
#include "cli/usage_error.hpp"

#include <CLI/CLI.hpp>

#include "cli/commands/commands.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

namespace {

Error error_for(std::vector<std::string> words) {
    test::FakeSession user;
    CLI::App app{"", "tnr"};
    app.require_subcommand(1);
    app.fallthrough();
    app.add_flag("--json", user.session.json, "");
    cli::Grammar grammar(app);
    cli::add_commands(grammar, user.session);
    try {
        app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    } catch (const CLI::ParseError& problem) {
        return cli::usage_error(app, problem, words);
    }
    return {Error::Kind::internal, "it was understood"};
}

}  // namespace

TEST_CASE("a command line that is not understood is answered in the user's words", "[cli][usage]") {
    struct {
        std::vector<std::string> words;
        std::string what, hint;
    } cases[] = {
        {{"bogus", "x"}, "there is no command 'bogus'", "commands: start, connect, "},
        {{}, "`tnr` needs a command: start, connect, ", "`tnr --help` shows"},
        {{"--json"}, "`tnr` needs a command: ", "`tnr --help` shows"},
        {{"login"}, "`tnr login` needs a command: pool", "`tnr login --help` shows"},
        {{"login", "pool"}, "`tnr login pool` needs ADDRESS (", "`tnr login pool --help` shows"},
        {{"stop"}, "`tnr stop` needs NAME (the machines, as `tnr status` shows them)", "`tnr stop --help` shows"},
        {{"run", "--"},
         "`tnr run` needs COMMAND (after `--`: the program and its arguments)",
         "`tnr run --help` shows"},
        {{"start", "demo", "--gpu"}, "--gpu needs a value", "`tnr start --help` shows"},
        {{"start", "demo", "--gpu", "a100", "--gpu", "h100"},
         "--gpu is given more than once",
         "`tnr start --help` shows"},
        {{"start", "demo", "--max-price", ""}, "--max-price: its value is empty", "`tnr start --help` shows"},
        {{"start", "demo", "--max-price="}, "--max-price needs a value", "`tnr start --help` shows"},
        {{"start", "demo", "--tag", ""}, "--tag: its value is empty", "`tnr start --help` shows"},
        {{"start", "demo", "extra"}, "`tnr start` does not expect 'extra'", "`tnr start --help` shows"},
        {{"start", "--", "demo", "--provider", "local"},
         "`tnr start` has no option '--provider'",
         "what comes after `--` is no option: '--provider' goes before it; "},
        {{"support", "--bogus"}, "`tnr support` has no option '--bogus'", "`tnr support --help` shows"},
        {{"start", "demo", "--yes=maybe"}, "--yes takes no value", "`tnr start --help` shows"},
        {{"--", "status"}, "`--` goes behind the command, not before 'status'", "`tnr --help` shows"},
        // What the original tnr has, where it has no meaning.
        {{"resize", "demo", "--num-gpus", "2"},
         "`tnr resize` has no option '--num-gpus'",
         "the number of GPUs is part of --gpu"},
        {{"resize", "demo", "--mode=production"},
         "`tnr resize` has no option '--mode=production'",
         "the mode is part of a size"},
        {{"resize", "--template", "base"}, "`tnr resize` has no option '--template'", "it is called --image here; "},
        {{"modify", "0", "--gpu", "h100"},
         "there is no command 'modify'",
         "it is called `tnr resize` here; commands: "},
        {{"device", "a100"}, "there is no command 'device'", "`tnr attach NAME TYPE` gives a machine another GPU; "},
        {{"update"}, "there is no command 'update'", "what has installed tnr updates it: pipx, pip or apt; "},
        {{"login", "--token", "a-token"}, "`tnr login --token` is called otherwise here", "`tnr login thunder` asks"},
        {{"--json", "snapshot", "create", "--instance-id", "0"},
         "`tnr snapshot create` is called otherwise here",
         "`tnr snapshot NAME --name SNAPSHOT`"},
        {{"ports", "forward", "0", "--add", "8080"},
         "`tnr ports forward` is called otherwise here",
         "`tnr ports NAME open PORT…`"},
        {{"--verison"}, "`tnr` has no option '--verison'", "`tnr --help` shows"},
        {{"delete", "--nonsense"}, "`tnr delete` has no option '--nonsense'", "`tnr delete --help` shows"},
        {{"--bogus", "status"}, "`tnr status` has no option '--bogus'", "`tnr status --help` shows"},
    };
    for (const auto& one : cases) {
        auto error = error_for(one.words);
        INFO(error.what << " / " << error.hint);
        CHECK(error.kind == Error::Kind::usage);
        CHECK(error.what.starts_with(one.what));
        CHECK(error.hint.starts_with(one.hint));
    }
}

TEST_CASE("what the original tnr says in two words is told here, unless a machine is called so", "[cli][usage]") {
    test::FakeSession user;
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"snapshot", "list"}, {"snapshot", "delete", "old"}, {"ports", "list"}}) {
        user.err.str("");
        CHECK(user.tnr(words) == 2);
        CHECK(user.err.str().find("`tnr " + words[0] + " " + words[1] + "` is called otherwise here") !=
              std::string::npos);
    }
    REQUIRE(user.tnr({"start", "list", "--gpu", "h100"}) == 0);
    CHECK(user.tnr({"ports", "list"}) == 0);
}
