// What a worker takes away from itself before it serves a stranger.
//
// A worker runs a driver on what an unknown client sends. Should that ever break out of the protocol, it finds: no
// network but the connection it was given, a filesystem with system libraries and nothing to write but a private /tmp,
// no device but its GPU's, no capability, no other process in sight or within reach, no way to start a program. Its process
// ids are its own (the supervisor starts it so: ChildPlan::own_process_ids). On a server that is root it is a user of its own,
// too, so that nothing it may do to its user's processes reaches another worker. Only where there is no private filesystem,
// and the driver is where root alone may look, does it act as root, without capabilities.
//
// Where the system does not let us take something away (no namespaces in an unprivileged container), the rest still is,
// and one line in the log says what is missing.
#pragma once

#include <string>
#include <vector>

#include "api_client/base/result.hpp"

namespace tnr::worker {

struct SandboxOptions {
    // Files and folders that stay readable beside the system's libraries: the driver, when it is installed elsewhere.
    std::vector<std::string> readable;
    // Folders that stay writable (the image cache). They must exist.
    std::vector<std::string> writable;
    // Below /dev, beside null, zero, full, random and urandom. Those that do not exist are skipped.
    std::vector<std::string> devices;
    // The socket to the supervisor, which cannot be closed or replaced afterwards; -1: there is none.
    int control_socket = -1;
};

// The devices of the NVIDIA driver that a process needs to use the GPUs numbered `minors` (N of /dev/nvidiaN); of all GPUs
// when it is empty.
std::vector<std::string> nvidia_devices(const std::vector<int>& minors);

// Likewise for the GPUs in TNR_GPU_MINORS ("0,3"), which the supervisor sets where it knows their numbers.
std::vector<std::string> given_nvidia_devices();

// Call it before the process has threads and before it loads the driver. An Error means that the process is in no state
// to go on: end it. The parent's death still ends us afterwards (dropping rights would have cleared that).
Result<> enter_sandbox(const SandboxOptions& options);

// Before a stranger is served: so many threads at most, if that is less than now. Nothing happens where this process is no user
// of its own, since the kernel would count the threads of all such workers for each of them.
void limit_threads(size_t most);

// The first process of its ids (init, to the kernel) is spared signals that it has no handler for, its own abort() among
// them. Makes those that mean "end" end it all the same, with code 128 + the signal. Any process may call it.
void end_on_signals();

}  // namespace tnr::worker
