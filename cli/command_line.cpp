// See command_line.hpp.
#include "cli/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cli/commands/commands.hpp"
#include "cli/commands/help.hpp"
#include "cli/commands/version.hpp"
#include "cli/json_out.hpp"
#include "cli/usage_error.hpp"
#include "gpu_client/protocol/control.hpp"

namespace tnr::cli {
namespace {

constexpr int nobody_reads_code = 128 + 13;  // what SIGPIPE would leave, had we not to ignore it

// --json and `-o yaml` must hold even when the command line itself is wrong and nothing was parsed.
void take_output(const std::vector<std::string>& words, Session& session) {
    session.json = session.yaml = false;
    for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
        const std::string &word = words[i], &before = i > 0 ? words[i - 1] : word;
        for (const std::string form : {"json", "yaml"}) {
            const bool is_value = word == form && (before == "-o" || before == "--output");
            if (!is_value && word != "--output=" + form && word != "-o" + form && word != "-o=" + form) continue;
            session.json = true;
            session.yaml = form == "yaml";
        }
        session.json |= word == "--json";
    }
}

// Z85 keys may begin with a dash; the line that `tnr-gpu-server user add` prints must still be pasted as it is. So the
// address and the keys go behind a `--`, and options before it.
void protect_keys(std::vector<std::string>& words) {
    constexpr size_t key_length = 40;
    auto is_dashed = [](const std::string& word) { return word.size() == key_length && word[0] == '-'; };
    for (size_t i = 0; i + 3 < words.size(); ++i) {
        if (words[i] != "login" || words[i + 1] != "pool" || !words[i + 2].starts_with("tcp://")) continue;
        const std::string address = words[i + 2];
        const auto own = words.begin() + static_cast<std::ptrdiff_t>(i) + 2;
        if (std::none_of(own, words.end(), is_dashed)) return;
        const auto keys = std::stable_partition(
            own, words.end(), [&](const std::string& word) { return word != address && word.size() != key_length; });
        words.insert(keys, "--");
        return;
    }
}

// The option that `word` begins with, of `command` or of those above it.
const CLI::Option* option_of(const CLI::App* command, const std::string& word) {
    std::string name = word.substr(0, word.find('='));
    for (; command; command = command->get_parent())
        if (const auto* option = command->get_option_no_throw(name)) return option;
    return nullptr;
}

// Of a command that takes a program and its arguments, the first word that is not the command's own begins these: all
// after it is the program's, options too. And what comes after `--` is the program's, also where a name was left out.
void protect_program(const CLI::App& tnr, std::vector<std::string>& words) {
    const CLI::App* command = nullptr;
    size_t names = 0, seen = 0;
    for (size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (command && word == "--") {
            words.insert(words.begin() + static_cast<std::ptrdiff_t>(i), names - seen, "");
            return;
        }
        if (word.size() > 1 && word[0] == '-') {
            const auto* option = option_of(command ? command : &tnr, word);
            if (option && option->get_items_expected_min() > 0 && word.find('=') == std::string::npos) ++i;
            continue;
        }
        if (!command) {
            auto named = tnr.get_subcommands([&](const CLI::App* each) { return each->check_name(word); });
            if (named.empty() || !takes_program(*named.front())) return;
            command = named.front();
            names = command->get_options([](const CLI::Option* option) { return option->get_positional(); }).size() - 1;
            continue;
        }
        if (seen++ < names) continue;
        words.insert(words.begin() + static_cast<std::ptrdiff_t>(i), "--");
        return;
    }
}

// The command that was reached, with the words that lead to it: "login pool"; empty: none.
std::string reached_command(const CLI::App& tnr) {
    std::string path;
    for (const auto* at = &tnr; !at->get_subcommands().empty();) {
        at = at->get_subcommands().front();
        path += (path.empty() ? "" : " ") + at->get_name();
    }
    return path;
}

int report(Session& session, const std::string& command, const Error& error) {
    if (session.json)
        print_document(session, command, nlohmann::json::object(), {{"", error}});
    else
        tell_error(session, error);
    return session.exit_code != exit_done ? session.exit_code : exit_code_of(error);
}

// Results that nobody could read are no success: a full disk behind `tnr status > file`.
int flushed(Session& session, int code) {
    session.out.clear();  // else it does not even try; Output fails again, with its reason
    errno = 0;
    session.out.flush();
    if (session.out) return code;
    int why = errno;
    if (why == EPIPE) return nobody_reads_code;
    tell_error(session, {Error::Kind::internal,
                         std::string("cannot write the results: ") + (why ? std::strerror(why) : "output failed"),
                         why == ENOSPC ? "free some space where stdout goes to" : ""});
    return code == exit_done ? exit_failed : code;
}

int parse_and_run(Session& session, const std::vector<std::string>& words) {
    CLI::App app{"tnr: machines without a GPU that behave as if one were plugged in"};
    app.name("tnr");
    app.require_subcommand(1);
    app.fallthrough();  // options of tnr itself may also come after the command
    app.add_flag("--json", session.json, "Print one JSON document on stdout, also for errors");
    app.add_flag("--explain", session.explain, "Show each request to a cloud on stderr, secrets hidden");
    app.set_version_flag("--version", "tnr " + control::version(), "Print the version and exit");
    app.footer(
        "A first session:\n"
        "  tnr login pool tcp://gpu-node:14900 …    the line that `tnr-gpu-server user add NAME` prints\n"
        "  tnr start demo --gpu h100\n"
        "  tnr sync ./program demo:\n"
        "  tnr connect demo -- ./program\n"
        "  tnr delete demo\n\n"
        "`tnr COMMAND --help` shows more. Exit codes: 0 done, 1 failed, 2 wrong usage, 4 sign in first,\n"
        "130 interrupted; `run` and `connect -- CMD` end with the program's own. NO_COLOR is honoured.");
    Grammar grammar(app);
    add_commands(grammar, session);
    std::vector<std::string> arguments = words;
    protect_keys(arguments);
    protect_program(app, arguments);
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    try {
        app.parse(arguments);
    } catch (const CLI::ParseError& problem) {
        take_output(words, session);
        if (problem.get_exit_code() != 0)
            return report(session, reached_command(app), usage_error(app, problem, words));
        if (dynamic_cast<const CLI::CallForVersion*>(&problem) && session.json)
            (void)version(session);
        else if (dynamic_cast<const CLI::CallForVersion*>(&problem))
            session.out << "tnr " << control::version() << "\n";
        else
            print_help(session, reached_command(app), grammar.places());
        return exit_done;
    }
    if (session.result) return session.exit_code;
    Error error = session.result.error();
    if (auto other = other_way(words); other && error.kind == Error::Kind::not_found) error = *other;
    return report(session, reached_command(app), error);
}

}  // namespace

int run_command_line(Session& session, const std::vector<std::string>& words) {
    return flushed(session, parse_and_run(session, words));
}

}  // namespace tnr::cli
