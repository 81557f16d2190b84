// What `tnr-gpu-server` does when the supervisor has started it as a short-lived helper: one answer on the control
// socket, then the end.
#pragma once

#include <cstdint>

namespace tnr::server {

// {"devices": [{"name", "uuid", "memory_bytes", "compute_mode"}]} or {"failed"}. Makes no context.
int run_probe(int control_fd);

// Overwrites the memory of every visible GPU, reads samples back, and leaves zeros: {"wiped": bytes} or {"failed"}.
// `bytes_max`: per GPU; 0: all that can be had.
int run_wipe(int control_fd, uint64_t bytes_max);

}  // namespace tnr::server
