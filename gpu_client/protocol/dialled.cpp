// See dialled.hpp.
#include "gpu_client/protocol/dialled.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <zmq.h>

#include "gpu_client/protocol/callers.hpp"

namespace tnr::wire {

// Takes effect whoever else has a descriptor of it (connect(2): AF_UNSPEC).
static void reset(int connection) {
    const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
    (void)::connect(connection, &nobody, sizeof nobody);
}

void Dialled::note(const Monitor::News& news) {
    if (news.what == ZMQ_EVENT_CONNECTED) connections_[news.fd].reset(::fcntl(news.fd, F_DUPFD_CLOEXEC, 0));
    if (news.what != ZMQ_EVENT_DISCONNECTED) return;
    if (auto ended = connections_.extract(news.fd); ended && !ending_) reset(ended.mapped().get());
}

void Dialled::cut(bool anew) {
    ending_ |= !anew;
    for (auto& [number, connection] : connections_)
        if (anew)
            reset(connection.get());
        else
            (void)::shutdown(connection.get(), SHUT_RDWR);
}

uint16_t Dialled::port() const {
    sockaddr_storage here{};
    socklen_t size = sizeof here;
    if (connections_.empty() ||
        ::getsockname(connections_.begin()->second.get(), reinterpret_cast<sockaddr*>(&here), &size) != 0)
        return 0;
    return port_of(here);
}

}  // namespace tnr::wire
