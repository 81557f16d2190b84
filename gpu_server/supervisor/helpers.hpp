// What `tnr-gpu-server` does when the supervisor has started it as a short-lived helper: one answer on the control
// socket, then the end.
#pragma once

#include <cstdint>
#include <string>

namespace tnr::server {

// {"devices": [{"name", "uuid", "memory_bytes", "compute_mode"}]} or {"failed"}. Makes no context.
int run_probe(int control_fd);

// Overwrites the memory of every visible GPU, reads some of it back, and leaves zeros: {"wiped": bytes, "checked": bytes}
// or {"failed"}.
// `bytes_max`: per GPU; 0: all that can be had.
int run_wipe(int control_fd, uint64_t bytes_max);

// Copies `bytes` of the open file to `path`, which appears complete or not at all: {"stored": bytes} or {"failed"}.
int run_store_image(int control_fd, int file, const std::string& path, uint64_t bytes);

}  // namespace tnr::server
