// See asker.hpp.
#include "gpu_server/supervisor/asker.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace tnr::server {

Asker::Asker(int connection) : connection_(connection < 0 ? -1 : fcntl(connection, F_DUPFD_CLOEXEC, 0)) {}

bool Asker::gone() const {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (!connection_ || getsockopt(connection_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
    return info.tcpi_state != TCP_ESTABLISHED;
}

}  // namespace tnr::server
