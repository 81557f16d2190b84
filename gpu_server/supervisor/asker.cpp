// See asker.hpp.
#include "gpu_server/supervisor/asker.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace tnr::server {

uint64_t socket_number(int descriptor) {
    uint64_t number = 0;
    socklen_t size = sizeof number;
    return getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &number, &size) == 0 ? number : 0;
}

Asker::Asker(PeerConnection connection)
    : connection_(connection.descriptor < 0 ? -1 : fcntl(connection.descriptor, F_DUPFD_CLOEXEC, 0)),
      closed_(connection.descriptor >= 0 && (!connection_ || socket_number(connection_.get()) != connection.socket)) {
    if (closed_) connection_.reset();
}

void Asker::cut() const {
    if (connection_) (void)shutdown(connection_.get(), SHUT_RDWR);
}

bool Asker::gone() const {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (!connection_) return closed_;
    return getsockopt(connection_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
           info.tcpi_state != TCP_ESTABLISHED;
}

}  // namespace tnr::server
