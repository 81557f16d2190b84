// fork, exec, one pipe for both outputs, and a deadline.
#include "api_client/providers/local/child.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "api_client/base/handles.hpp"
#include "api_client/base/interrupt.hpp"

namespace tnr::local {
namespace {

using Clock = std::chrono::steady_clock;

// Enough for the end of any error message, and a chatty tool cannot fill our memory.
constexpr size_t output_bytes_max = size_t{64} << 10;
// Out of the tools' way: mmdebstrap breaks when the descriptors it opens itself are not below 10.
constexpr int kept_fd = 200;
constexpr int exec_failed = 127;  // as shells say
// For an interrupted tool to remove what it has half made; then it is killed.
constexpr int goodbye_limit_ms = 5000;

// Between fork and exec: only async-signal-safe calls, as other threads may hold any lock.
[[noreturn]] void become(char* const* argv, const char* folder, int output, int keep_fd, pid_t parent) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(exec_failed);  // it died before the line above
    const rlimit no_core{0, 0};                       // a QEMU that aborts is an answer, not a file to keep
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::umask(077);
    sigset_t none;  // what our caller blocks or ignores is not the tool's business
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    const int null = ::open("/dev/null", O_RDONLY);
    if (null < 0 || ::dup2(null, 0) < 0 || ::dup2(output, 1) < 0 || ::dup2(output, 2) < 0) ::_exit(exec_failed);
    if (*folder && ::chdir(folder) != 0) ::_exit(exec_failed);
    // Our caller's own: a QEMU that held a shell's lock or pipe for as long as the machine lives would block the shell.
    ::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
    if (keep_fd >= 0 && ::dup2(keep_fd, kept_fd) < 0) ::_exit(exec_failed);
    ::execvp(argv[0], argv);
    const char message[] = "cannot be started\n";
    [[maybe_unused]] const ssize_t written = ::write(2, message, sizeof message - 1);
    ::_exit(exec_failed);
}

// Keeps the end of the output and hands out whole lines.
class Output {
public:
    explicit Output(const Command& command) : command_(command) {}

    void add(const char* bytes, size_t size) {
        text_.append(bytes, size);
        if (text_.size() > 2 * output_bytes_max) text_.erase(0, text_.size() - output_bytes_max);
        if (!command_.on_line) return;
        for (size_t i = 0; i < size; ++i) {
            if (bytes[i] != '\n') {
                line_ += bytes[i];
                continue;
            }
            command_.on_line(line_);
            line_.clear();
        }
    }
    std::string take() { return std::move(text_); }

private:
    const Command& command_;
    std::string text_, line_;
};

enum class Reading { ended, timed_out, interrupted };

// Reads until the other end closes, the deadline passes, or (with `heed`) the user interrupts.
Reading read_all(int fd, int limit_ms, bool heed, Output& output) {
    const auto deadline = Clock::now() + std::chrono::milliseconds(limit_ms);
    for (;;) {
        int wait_ms = -1;
        if (limit_ms >= 0) {
            wait_ms = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count());
            if (wait_ms <= 0) return Reading::timed_out;
        }
        pollfd waiting[] = {{fd, POLLIN, 0}, {heed ? interrupt::fd() : -1, POLLIN, 0}};
        const int ready = ::poll(waiting, 2, wait_ms);
        if (heed && interrupt::interrupted()) return Reading::interrupted;
        if (ready <= 0) continue;  // a signal, or the deadline: see above
        char bytes[4096];
        const ssize_t size = ::read(fd, bytes, sizeof bytes);
        if (size == 0 || (size < 0 && errno != EINTR)) return Reading::ended;
        if (size > 0) output.add(bytes, static_cast<size_t>(size));
    }
}

int wait_for(pid_t child) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

Result<Finished> run(const Command& command) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return Error{Error::Kind::internal, std::string("no pipe: ") + strerror(errno)};
    UniqueFd reading(ends[0]), writing(ends[1]);

    std::vector<char*> argv;
    for (const std::string& word : command.argv) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) return Error{Error::Kind::internal, std::string("no new process: ") + strerror(errno)};
    if (child == 0) become(argv.data(), command.folder.c_str(), writing.get(), command.keep_fd, parent);
    // Here too: whichever of us is first. A group of its own keeps a terminal's Ctrl-C for us, and lets us end all of it.
    ::setpgid(child, child);
    writing.reset();

    Output output(command);
    Finished finished;
    const Reading read = read_all(reading.get(), command.limit_ms, !command.to_the_end, output);
    finished.timed_out = read == Reading::timed_out;
    if (read == Reading::interrupted) {
        ::kill(-child, SIGTERM);
        (void)read_all(reading.get(), goodbye_limit_ms, false, output);
    }
    if (read != Reading::ended) ::kill(-child, SIGKILL);
    finished.exit_code = wait_for(child);
    if (read == Reading::interrupted) return interrupt::error();
    finished.output = output.take();
    return finished;
}

Result<std::filesystem::path> find_tool(const std::string& program, const std::string& package) {
    const char* path = std::getenv("PATH");
    // The last two are missing from an ordinary user's PATH on Debian, and mke2fs lives there.
    std::istringstream folders(std::string(path ? path : "/usr/bin:/bin") + ":/usr/sbin:/sbin");
    for (std::string folder; std::getline(folders, folder, ':');) {
        const std::filesystem::path candidate = std::filesystem::path(folder) / program;
        if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    }
    return Error{Error::Kind::usage, program + " is not installed", "run `sudo apt-get install " + package + "`"};
}

std::string last_line(const std::string& output) {
    const size_t end = output.find_last_not_of(" \n\r");
    if (end == std::string::npos) return "it said nothing";
    const size_t begin = output.find_last_of('\n', end);
    return output.substr(begin == std::string::npos ? 0 : begin + 1,
                         end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

}  // namespace tnr::local
