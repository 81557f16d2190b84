// One packet on the socket between supervisor and worker, with or without a file descriptor beside it.
#pragma once

#include <sys/types.h>

#include <string_view>

#include "api_client/base/handles.hpp"

namespace tnr::server {

// As send(2): -1 and errno when it could not be sent. `file`: the other side gets a descriptor of its own for it.
ssize_t send_packet(int socket, std::string_view text, int file = -1);
// As recv(2) with MSG_TRUNC: the packet's whole length, even if the buffer has less. `file` is empty unless exactly one
// descriptor came with it.
ssize_t receive_packet(int socket, char* buffer, size_t size, UniqueFd& file);

}  // namespace tnr::server
