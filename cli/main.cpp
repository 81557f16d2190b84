// `tnr`: wires the real world into a Session and runs the command line in it.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iostream>

#include "api_client/base/interrupt.hpp"
#include "api_client/base/paths.hpp"
#include "cli/command_line.hpp"
#include "cli/output.hpp"
#include "cli/ui/time.hpp"

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

// It prints what it gets and obeys nothing: a shell in an editor, a serial console.
bool is_dumb_terminal() {
    const char* kind = std::getenv("TERM");
    return !kind || !*kind || std::strcmp(kind, "dumb") == 0;
}

// Not for users who say they want none (no-color.org).
bool has_colours(bool redraws) {
    const char* none = std::getenv("NO_COLOR");
    return redraws && !(none && *none);
}

ui::Size size_of_window(int fd) {
    winsize size{};
    if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
    return {size.ws_row, size.ws_col};
}

Result<std::unique_ptr<Pool>> open_real_pool(const Session& session, const PoolLogin& login) {
    auto seconds = [&session] { return ui::seconds_of(session.now()).value_or(0); };
    PoolNews news;
    news.learned = [&session, address = login.address](const std::string& key) {
        if (auto saved = session.logins().renew(address, key); !saved) return;  // told again by the next answer
    };
    news.answers = [&session, address = login.address, seconds](bool answers) {
        session.silent_pools().note(address, !answers, seconds());
    };
    const bool silent = session.silent_pools().lately(login.address, seconds());
    return connect_pool(login, std::move(news), silent ? SilentPools::patience : control::default_timeout);
}

void fill(Session& session) {
    session.in_is_terminal = ::isatty(STDIN_FILENO);
    session.out_is_terminal = ::isatty(STDOUT_FILENO);
    session.err_is_terminal = ::isatty(STDERR_FILENO);
    session.out_redraws = session.out_is_terminal && !is_dumb_terminal();
    session.err_redraws = session.err_is_terminal && !is_dumb_terminal();
    session.out_paint = {has_colours(session.out_redraws)};
    session.err_paint = {has_colours(session.err_redraws)};
    session.err_columns = [] { return size_of_window(STDERR_FILENO).columns; };
    session.out_size = [] { return size_of_window(STDOUT_FILENO); };
    session.config_folder = config_dir();
    session.state_folder = state_dir();
    session.cache_folder = cache_dir();
    session.provider_names = provider_names();
    session.world = real_world(interrupt::pause_ms, utc_now);
    session.provider = [&session](const std::string& name) { return open_provider(session, name); };
    session.pool = [&session](const PoolLogin& login) { return open_real_pool(session, login); };
    session.access = [folder = session.config_folder] { return ssh_access(folder); };
    session.now = utc_now;
    session.pause = interrupt::pause_ms;
}

// Started with one of them closed (`tnr … <&-`), the next file or connection would get its number, and what is meant
// for the user would be written there. Results that nobody can get are an error: what is open for reading takes none.
void open_standard_streams() {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
        if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
}

int run(const std::vector<std::string>& words) {
    Output output(STDOUT_FILENO);
    std::ostream results(&output);
    std::cerr.tie(&results);  // what was said before a note comes before it, as on any terminal
    Session session{results};
    fill(session);
    const int code = run_command_line(session, words);
    std::cerr.tie(nullptr);
    return code;
}

}  // namespace
}  // namespace tnr::cli

int main(int argc, char** argv) {
    tnr::cli::open_standard_streams();
    tnr::interrupt::install();
    const int code = tnr::cli::run({argv + 1, argv + argc});
    // A thread that its user did not wait for may still ask a pool, with what exit() would take down under it.
    if (tnr::interrupt::interrupted()) ::_exit(code);
    return code;
}
