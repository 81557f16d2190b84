// One packet on the socket between supervisor and worker, with or without file descriptors beside it.
#pragma once

#include <sys/types.h>

#include <string_view>
#include <vector>

#include "api_client/base/handles.hpp"

namespace tnr::server {

// As send(2): -1 and errno when it could not be sent. `file`: the other side gets a descriptor of its own for it.
ssize_t send_packet(int socket, std::string_view text, int file = -1);
struct Packet {
    ssize_t size = 0;  // as recv(2) with MSG_TRUNC: all of it, even if the buffer has less; -1 and errno
    // All that came with it, however many: what was not taken the kernel would close here and now, which can block.
    std::vector<UniqueFd> files;
    bool signed_by_kernel = false;  // of a socket with SO_PASSCRED: a packet, if an empty one, and not the end
};
Packet receive_packet(int socket, char* buffer, size_t size);

}  // namespace tnr::server
