// Starting our own binary again as a worker or a helper, in a process group of its own, and talking to it.
//
// A child gets nothing of ours but what is listed: descriptor 3 is a control socket (one JSON object per packet),
// descriptor 4 a listening socket (a worker's) or a file (a helper's) if there is one, stderr is ours or what the plan says,
// the environment is what the plan says. It dies with us, whatever ends us.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"

namespace tnr::server {

inline constexpr int child_control_fd = 3;
inline constexpr int child_listen_fd = 4;
inline constexpr int child_file_fd = child_listen_fd;

struct ChildPlan {
    std::string program;                   // path
    std::vector<std::string> arguments;    // without the program itself
    std::vector<std::string> environment;  // NAME=value, all there is
    int listen_fd = -1;                    // what descriptor 4 shall be
    int error_fd = STDERR_FILENO;          // what stderr shall be
    // Process ids of its own: it sees and reaches no process but what it starts. Where the system refuses that, or a /proc
    // that goes with them (containers do, to who is not root), it is started without.
    bool own_process_ids = false;
};

struct Child {
    pid_t pid = -1;
    UniqueFd control;  // non-blocking
};

// Call it on a thread that lives as long as the process: the kernel ties a child's life to the thread that made it.
Result<Child> start_child(const ChildPlan& plan);

// Kills the child and all it has started. It must still be waited for.
void kill_child(pid_t pid);
// The signal that ended a child, if one did. A process with ids of its own is the first of them, which the kernel spares
// signals without a handler: it turns those that end others into codes (see end_on_signals in worker/sandbox.hpp).
std::optional<int> ending_signal(int status);
// "exited with code 1", "was killed by signal 9 (Killed)"
std::string describe_exit(int status);

// What is set in our environment and of use to a child: PATH, locale, TNR_LOG, and what CUDA reads.
std::vector<std::string> inherited_environment();

// Sends one message, and a descriptor if there is one. False when the other end is gone (or hopelessly behind).
bool send_message(int control, const nlohmann::json& message, int file = -1);
struct Received {
    enum class What { message, nothing_now, closed, nonsense } what;
    std::string text;
    UniqueFd file = {};                 // that came with it, if exactly one did
    std::vector<UniqueFd> others = {};  // if more did
};
Received receive_message(int control);

}  // namespace tnr::server
