// How much has come in over a TCP connection, as the kernel counts.
#pragma once

#include <cstdint>

namespace tnr::test {

struct Received {
    uint64_t bytes = 0, unread = 0;
};
Received received_by(int socket);

}  // namespace tnr::test
