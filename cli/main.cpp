// `tnr`: wires the real world into a Session, lets the grammar pick a command, and alone prints errors and picks the
// exit code.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>

#include "api_client/base/paths.hpp"
#include "cli/commands/commands.hpp"
#include "cli/interrupt.hpp"
#include "cli/json_out.hpp"
#include "cli/usage_error.hpp"
#include "gpu_client/protocol/control.hpp"

namespace tnr::cli {
namespace {

std::string utc_now() {
    std::time_t now = std::time(nullptr);
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

void fill(Session& session) {
    session.in_is_terminal = ::isatty(STDIN_FILENO);
    session.out_is_terminal = ::isatty(STDOUT_FILENO);
    session.err_is_terminal = ::isatty(STDERR_FILENO);
    session.config_folder = config_dir();
    session.state_folder = state_dir();
    session.cache_folder = cache_dir();
    session.provider_names = provider_names();
    session.world = real_world(interrupt::pause_ms, utc_now);
    session.provider = [&session](const std::string& name) { return open_provider(session, name); };
    session.pool = connect_pool;
    session.access = [folder = session.config_folder] { return ssh_access(folder + "/ssh_key"); };
    session.now = utc_now;
    session.pause = interrupt::pause_ms;
}

int exit_code_of(const Error& error) {
    if (interrupt::interrupted()) return interrupt::exit_code();
    if (error.kind == Error::Kind::usage) return exit_usage;
    return error.kind == Error::Kind::auth ? exit_sign_in : exit_failed;
}

int report(Session& session, const Error& error) {
    if (session.json) {
        print_json(session.out, {{"error", error_json(error)}});
        return exit_code_of(error);
    }
    session.err << "tnr: " << error.what << "\n";
    std::istringstream hints{error.hint};
    for (std::string hint; std::getline(hints, hint);) session.err << "hint: " << hint << "\n";
    return exit_code_of(error);
}

// --json must hold even when the command line itself is wrong and nothing was parsed.
bool wants_json(int argc, char** argv) {
    for (int i = 1; i < argc && std::string(argv[i]) != "--"; ++i)
        if (std::string(argv[i]) == "--json") return true;
    return false;
}

// Z85 keys may begin with a dash; the line that `tnr-gpu-server enroll` prints must still be pasted as it is.
std::vector<std::string> arguments(int argc, char** argv) {
    constexpr size_t key_length = 40;
    std::vector<std::string> words(argv + 1, argv + argc);
    for (size_t i = 0; i + 3 < words.size(); ++i) {
        bool login = words[i] == "login" && words[i + 1] == "pool" && words[i + 2].compare(0, 6, "tcp://") == 0;
        bool dashed = false;
        for (size_t k = i + 3; k < words.size() && k < i + 5; ++k)
            dashed |= words[k].size() == key_length && words[k][0] == '-';
        if (!login || !dashed) continue;
        words.insert(words.begin() + static_cast<std::ptrdiff_t>(i) + 2, "--");
        break;
    }
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    return words;
}

int run_command(int argc, char** argv, Session& session) {
    CLI::App app{"tnr: machines without a GPU that behave as if one were plugged in"};
    app.name("tnr");
    app.require_subcommand(1);
    app.fallthrough();  // options of tnr itself may also come after the command
    app.add_flag("--json", session.json, "Print one JSON document on stdout, also for errors");
    app.add_flag("--explain", session.explain, "Show each request to a cloud on stderr, secrets hidden");
    app.set_version_flag("--version", "tnr " + control::version(), "Print the version and exit");
    app.footer(
        "A first session:\n"
        "  tnr login pool tcp://gpu-node:14900 …    the line that `tnr-gpu-server enroll NAME` prints\n"
        "  tnr start demo --gpu h100\n"
        "  tnr sync ./program demo:\n"
        "  tnr connect demo -- ./program\n"
        "  tnr delete demo\n\n"
        "`tnr COMMAND --help` shows more. Exit codes: 0 done, 1 failed, 2 wrong usage, 4 sign in first,\n"
        "130 interrupted; `run` and `connect -- CMD` end with the program's own.");
    Grammar grammar(app);
    add_commands(grammar, session);
    try {
        app.parse(arguments(argc, argv));
    } catch (const CLI::ParseError& problem) {
        if (problem.get_exit_code() == 0) return app.exit(problem, session.out, session.err);
        session.json = wants_json(argc, argv);
        return report(session, usage_error(app, problem, {argv + 1, argv + argc}));
    }
    session.out.flush();
    return session.result ? session.exit_code : report(session, session.result.error());
}

// Started with one of them closed (`tnr … <&-`), the next file or connection would get its number, and what is meant
// for the user would be written there.
void open_standard_streams() {
    int fd = ::open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO) fd = ::dup(fd);
    if (fd >= 0) ::close(fd);
}

}  // namespace
}  // namespace tnr::cli

int main(int argc, char** argv) {
    tnr::cli::open_standard_streams();
    tnr::interrupt::install();
    tnr::cli::Session session;
    tnr::cli::fill(session);
    return tnr::cli::run_command(argc, argv, session);
}
