// Running one command, or a shell, on a machine: its streams are connected to file descriptors of ours and its
// exit code comes back as its own.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/ssh/client.hpp"

namespace tnr::ssh {

struct WindowSize {
    int columns = 80;
    int rows = 24;
};

// A terminal on the machine's side. `size` is asked again whenever SIGWINCH may have come.
struct Pty {
    std::string term;
    std::function<WindowSize()> size;
    int resized_fd = -1;  // readable when the window may have changed; -1: never
};

// -1 for a stream: nothing comes in, what comes out is dropped. The descriptors stay the caller's, and their
// blocking mode is left alone: others (the user's shell) share it.
struct Streams {
    int in = -1;
    int out = -1;
    int err = -1;
};

struct Command {
    std::string line;  // for the login shell; empty: the login shell itself
    std::optional<Pty> pty;
    std::vector<std::pair<std::string, std::string>> environment = {};  // the server may drop these
    bool agent = false;  // programs there find an SSH agent, which Forwards::let_agent() has made ready
};

// The command's exit code; 128 + n when signal n ended it, and 141 (SIGPIPE) when nobody reads our output any more. The
// first signal to us (interrupt.hpp) goes on to the command, which then has its own time to end; with a terminal over
// there the connection is closed instead, and the terminal's end tells it. Errors are tnr's own: the connection was
// lost, the user interrupted twice.
Result<int> run(Client& client, const Command& command, const Streams& streams);

// Like run() without input, for a command whose output is shown by us: `said` hears both streams as they come.
Result<int> follow(Client& client, const std::string& line, const std::function<void(std::string_view)>& said);

struct Output {
    int code = 0;
    std::string out;
    std::string err;
};
// For commands of our own: feeds `in`, collects the output, gives up at the deadline.
Result<Output> capture(Client& client, const std::string& line, const std::string& in, Deadline deadline);

// One argument for a POSIX shell, quoted so that it arrives as it is.
std::string quoted(const std::string& argument);
// Words after `--`. One word is a shell line and may use pipes; several are a program and its arguments, and
// arrive exactly as given.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace tnr::ssh
