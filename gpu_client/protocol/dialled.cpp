// See dialled.hpp.
#include "gpu_client/protocol/dialled.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <zmq.h>

namespace tnr::wire {

void Dialled::note(const Monitor::News& news) {
    if (news.what == ZMQ_EVENT_CONNECTED) connections_[news.fd].reset(::fcntl(news.fd, F_DUPFD_CLOEXEC, 0));
    if (news.what == ZMQ_EVENT_DISCONNECTED) connections_.erase(news.fd);
}

void Dialled::cut() const {
    for (auto& [number, connection] : connections_) (void)::shutdown(connection.get(), SHUT_RDWR);
}

}  // namespace tnr::wire
