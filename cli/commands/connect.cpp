// Ports are bound first, so that a port which is taken is told before the machine is asked, and so that they stay while
// the connection is dialled again.
#include "cli/commands/connect.hpp"

#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "api_client/base/interrupt.hpp"
#include "cli/commands/commands.hpp"
#include "cli/commands/reach.hpp"
#include "cli/json_out.hpp"
#include "cli/ssh/forward.hpp"
#include "cli/ssh/terminal.hpp"

namespace tnr::cli {
namespace {

// A laptop that was asleep finds its network within seconds; who has walked away for longer finds a prompt again.
constexpr std::chrono::minutes redial_limit{10};
constexpr int redial_pause_ms = 1000;  // between two tries that end at once, as without any network

// The user's language, which Debian's and Ubuntu's sshd accept; the server drops what it does not like.
std::vector<std::pair<std::string, std::string>> language() {
    std::vector<std::pair<std::string, std::string>> variables;
    for (const char* name : {"LANG", "LC_ALL", "LC_CTYPE"})
        if (const char* value = std::getenv(name); value && *value) variables.emplace_back(name, value);
    return variables;
}

class Connect {
public:
    Connect(Session& session, const ConnectOptions& options) : session_(session), options_(options) {}

    Result<> run() {
        if (auto sensible = check(); !sensible) return sensible;
        auto name = this_or_only_machine(session_, options_.name);
        if (!name) return name.error();
        name_ = *name;
        if (auto bound = bind(); !bound) return bound;
        auto client = reach(session_, name_);
        if (client)
            for (const auto& forward : bound_) say("forwarding " + to_string(forward) + " on '" + name_ + "'");
        while (client) {
            auto code = use(**client);
            if (code) return session_.exit_code = *code, Result<>{Ok{}};
            bool again = comes_back() && (*client)->broken() && !interrupt::interrupted();
            client->reset();
            if (!again) return code.error();
            client = redial(code.error());
        }
        return client.error();
    }

private:
    Result<> check() const {
        if (session_.json)
            return Error{Error::Kind::usage, "`tnr connect` passes streams through and has no --json",
                         "`tnr status --json` tells a machine's address"};
        if (options_.no_shell && options_.forwards.empty())
            return Error{Error::Kind::usage, "--no-shell is for ports alone, and none is given", "add -L PORT"};
        if (options_.no_shell && !options_.words.empty())
            return Error{Error::Kind::usage, "--no-shell runs no command", "leave one of both out"};
        if (options_.agent && options_.no_shell)
            return Error{Error::Kind::usage, "--forward-agent is for a shell or a command", "leave out --no-shell"};
        if (options_.agent && options_.agent_socket.empty())
            return Error{Error::Kind::usage, "there is no SSH agent here: SSH_AUTH_SOCK is not set",
                         "start one: `eval $(ssh-agent) && ssh-add`; or leave out -A"};
        return Ok{};
    }

    Result<> bind() {
        if (options_.agent)
            if (auto let = forwards_.let_agent(options_.agent_socket); !let) return let;
        for (const auto& text : options_.forwards) {
            auto wanted = ssh::parse_forward(text);
            if (!wanted) return wanted.error();
            auto bound = forwards_.listen(*wanted);
            if (!bound) return bound.error();
            bound_.push_back(*bound);
        }
        return Ok{};
    }

    // With all three on a terminal nobody can tell the streams apart anyway, and the program there gets Ctrl-C, colours
    // and the window's size as it would here. In a pipe it gets no terminal, so bytes arrive unchanged.
    bool terminal() const {
        return session_.in_is_terminal && session_.out_is_terminal && session_.err_is_terminal &&
               !options_.no_terminal && !options_.no_shell;
    }
    bool comes_back() const { return options_.no_shell || (terminal() && options_.words.empty()); }

    // The exit code of what ran there.
    Result<int> use(ssh::Client& client) {
        client.on_silence = [this](std::chrono::milliseconds silent) { tell_silence(silent); };
        if (!forwards_.empty())
            if (auto attached = forwards_.attach(client); !attached) return attached.error();
        auto code = options_.no_shell ? Result<int>{hold_open(client)} : run_there(client);
        forwards_.detach();
        return code;
    }

    Result<int> run_there(ssh::Client& client) {
        ssh::Command command{options_.words.empty() ? "" : ssh::shell_line(options_.words), std::nullopt, language()};
        command.agent = options_.agent;
        std::optional<ssh::RawTerminal> raw;
        if (terminal()) {
            raw.emplace(options_.streams.in);
            command.pty = raw->pty();
        }
        raw_ = terminal();
        auto code = ssh::run(client, command, options_.streams);
        raw_ = false;
        if (!code && raw) session_.err << "\r\n" << std::flush;  // what was on the screen may end in a prompt
        return code;
    }

    Result<std::unique_ptr<ssh::Client>> redial(const Error& why) {
        say(why.what);
        say("dialling '" + name_ + "' again; Ctrl-C ends that");
        auto begun = ssh::Clock::now();
        for (;;) {
            auto client = reach(session_, name_);
            if (client) say("connected to '" + name_ + "' again" + (options_.no_shell ? "" : ", with a new shell"));
            if (client || client.error().kind != Error::Kind::network) return client;
            if (ssh::Clock::now() - begun > redial_limit) return client;
            if (!session_.pause(redial_pause_ms)) return interrupt::error();
        }
    }

    void tell_silence(std::chrono::milliseconds silent) {
        if (silent.count() == 0) return say("'" + name_ + "' answers again");
        say("'" + name_ + "' has not answered for " + ui::seconds_text(static_cast<double>(silent.count()) / 1000) +
            "; waiting. " + (raw_ ? "~. or three Ctrl-C end" : "Ctrl-C ends") + " the connection");
    }

    // A raw terminal's cursor does not go back by itself.
    void say(const std::string& line) {
        session_.err << (raw_ ? "\r\n" : "") << "tnr: " << line << (raw_ ? "\r\n" : "\n") << std::flush;
    }

    Session& session_;
    const ConnectOptions& options_;
    std::string name_;
    bool raw_ = false;
    std::vector<ssh::Forward> bound_;
    ssh::Forwards forwards_{[this](const std::string& line) { say(line); }};
};

}  // namespace

Result<> connect(Session& session, const ConnectOptions& options) {
    return Connect{session, options}.run();
}

void add_connect(Grammar& tnr, Session& session) {
    auto options = std::make_shared<ConnectOptions>();
    auto command = tnr.command("connect", "Open a shell on a machine, run one command there, or forward its ports");
    command.alias("ssh");
    command.option("name", options->name, "The machine, as `tnr status` shows it; may be left out where there is one");
    command.words("command", options->words, "After `--`: a program and its arguments, or one shell line");
    command.flag("-T,--no-terminal", options->no_terminal, "Give the command no terminal, even when you have one");
    command.flag("-A,--forward-agent", options->agent, "Let programs there ask the SSH agent here, for git and ssh");
    command.options("-L,-t,--forward", options->forwards,
                    "A port here that leads to the machine: PORT, PORT:PORT or\n"
                    "PORT:HOST:PORT as ssh has it; several times for several");
    command.flag("-N,--no-shell", options->no_shell, "Only forward ports, until Ctrl-C");
    command.footer(
        "Ends with the command's own exit code (128 + N when signal N ended it). Several words after `--`\n"
        "arrive as exactly those arguments; a single one is a line for the shell there. Ctrl-C goes to the\n"
        "command, and tnr ends when it does; pressed again, it leaves the command to itself. In a shell all keys\n"
        "go there, but for `~.` at the beginning of a line, which ends the connection (`~~` is a `~`); three Ctrl-C\n"
        "end it when the machine has not answered to them for five seconds. A shell that loses its connection,\n"
        "and ports alone, dial again by themselves; a command is never run twice. Forwarded ports are open while\n"
        "tnr runs, at 127.0.0.1 unless ADDRESS:PORT:HOST:PORT says otherwise. With -A, whoever is root on the machine "
        "can\n"
        "have things signed by your agent for as long as tnr runs; keys never leave it.\n\n"
        "Examples:\n"
        "  tnr connect                                  a shell on the only machine\n"
        "  tnr connect demo                             a shell\n"
        "  tnr connect demo -L 8888                     and the machine's port 8888 at localhost:8888\n"
        "  tnr connect demo -N -L 8080:80 -L 5432:db:5432\n"
        "  tnr connect demo -- nvidia-smi\n"
        "  tnr connect -A demo -- git clone git@host:project\n"
        "  tnr connect demo -- python3 -c 'print(6*7)'\n"
        "  tnr connect demo -- 'cd src && make | tail'  a shell line\n"
        "  tar c data | tnr connect demo -- tar x       streams pass through");
    command.run([&session, options] {
        if (const char* agent = std::getenv("SSH_AUTH_SOCK")) options->agent_socket = agent;
        session.result = connect(session, *options);
    });
}

}  // namespace tnr::cli
