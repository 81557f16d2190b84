// `tnr connect`: a shell on a machine, or one command there.
#include <unistd.h>

#include "cli/commands/commands.hpp"
#include "cli/commands/reach.hpp"
#include "cli/ssh/exec.hpp"
#include "cli/ssh/terminal.hpp"

namespace tnr::cli {
namespace {

struct ConnectOptions {
    std::string name;
    std::vector<std::string> words;
    bool no_terminal = false;
};

// The user's language, which Debian's and Ubuntu's sshd accept; the server drops what it does not like.
std::vector<std::pair<std::string, std::string>> language() {
    std::vector<std::pair<std::string, std::string>> variables;
    for (const char* name : {"LANG", "LC_ALL", "LC_CTYPE"})
        if (const char* value = std::getenv(name); value && *value) variables.emplace_back(name, value);
    return variables;
}

// A raw terminal's cursor does not go back by itself.
void tell_silence(Session& session, const std::string& name, std::chrono::milliseconds silent, bool raw) {
    std::string end = raw ? "\r\n" : "\n", begin = raw ? "\r\n" : "";
    session.err << begin << "tnr: '" << name << "' ";
    if (silent.count() == 0)
        session.err << "answers again" << end << std::flush;
    else
        session.err << "has not answered for " << ui::seconds_text(static_cast<double>(silent.count()) / 1000)
                    << "; waiting. " << (raw ? "~. or three Ctrl-C end" : "Ctrl-C ends") << " the connection" << end
                    << std::flush;
}

Result<> connect(Session& session, const ConnectOptions& options) {
    if (session.json)
        return Error{Error::Kind::usage, "`tnr connect` passes streams through and has no --json",
                     "`tnr status --json` tells a machine's address"};
    auto name = this_or_only_machine(session, options.name);
    if (!name) return name.error();
    auto client = reach(session, *name);
    if (!client) return client.error();
    ssh::Command command{options.words.empty() ? "" : ssh::shell_line(options.words), std::nullopt, language()};
    // With all three on a terminal nobody can tell the streams apart anyway, and the program there gets Ctrl-C,
    // colours and the window's size as it would here. In a pipe it gets no terminal, so bytes arrive unchanged.
    bool terminal =
        session.in_is_terminal && session.out_is_terminal && session.err_is_terminal && !options.no_terminal;
    (*client)->on_silence = [&](std::chrono::milliseconds silent) { tell_silence(session, *name, silent, terminal); };
    std::optional<ssh::RawTerminal> raw;
    if (terminal) {
        raw.emplace(STDIN_FILENO);
        command.pty = raw->pty();
    }
    auto code = ssh::run(**client, command, {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO});
    if (!code) return code.error();
    session.exit_code = *code;
    return Ok{};
}

}  // namespace

void add_connect(Grammar& tnr, Session& session) {
    auto options = std::make_shared<ConnectOptions>();
    auto command = tnr.command("connect", "Open a shell on a machine, or run one command there");
    command.option("name", options->name, "The machine, as `tnr status` shows it; may be left out where there is one");
    command.words("command", options->words, "After `--`: a program and its arguments, or one shell line");
    command.flag("-T,--no-terminal", options->no_terminal, "Give the command no terminal, even when you have one");
    command.footer(
        "Ends with the command's own exit code (128 + N when signal N ended it). Several words after `--`\n"
        "arrive as exactly those arguments; a single one is a line for the shell there. Ctrl-C goes to the\n"
        "command, and tnr ends when it does; pressed again, it leaves the command to itself. In a shell all keys\n"
        "go there, but for `~.` at the beginning of a line, which ends the connection (`~~` is a `~`); three Ctrl-C\n"
        "end it when the machine has not answered to them for five seconds.\n\n"
        "Examples:\n"
        "  tnr connect                                  a shell on the only machine\n"
        "  tnr connect demo                             a shell\n"
        "  tnr connect demo -- nvidia-smi\n"
        "  tnr connect demo -- python3 -c 'print(6*7)'\n"
        "  tnr connect demo -- 'cd src && make | tail'  a shell line\n"
        "  tar c data | tnr connect demo -- tar x       streams pass through");
    command.run([&session, options] { session.result = connect(session, *options); });
}

}  // namespace tnr::cli
