// Runs a tool (qemu-img, the image builder, QEMU until it has daemonized) and waits for it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"

namespace tnr::local {

struct Command {
    std::vector<std::string> argv;      // argv[0] is looked up in PATH
    std::filesystem::path folder = {};  // where it runs; empty: here
    int limit_ms = -1;                  // killed after that; -1: it may take as long as it takes
    int keep_fd = -1;                   // one descriptor of ours that it inherits (a lock), else none
    bool to_the_end = false;            // the user's Ctrl-C waits for it: half of what it does would be worse
    // Each line of its output as it comes.
    std::function<void(const std::string& line)> on_line = {};
};

struct Finished {
    int exit_code = 0;       // 128 + n when signal n ended it, as shells say
    bool timed_out = false;  // we killed it
    std::string output;      // stdout and stderr together, the last `output_bytes_max` of it
};

// A tool that cannot be started at all is an Error. When the user interrupts, it (unless it runs `to_the_end`) and all that it has started in its
// process group get SIGTERM, a few seconds later SIGKILL, and the Error is interrupt::error(). The child dies with us: it
// gets SIGTERM when our process ends, however that happens; one that daemonizes has left that behind.
Result<Finished> run(const Command& command);

// Where PATH has the program; the Error says which Debian package brings it.
Result<std::filesystem::path> find_tool(const std::string& program, const std::string& package);

// What a tool said last, for an error message.
std::string last_line(const std::string& output);

}  // namespace tnr::local
