// See callers.hpp.
#include "gpu_client/protocol/callers.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <zmq.h>

namespace tnr::wire {

bool Callers::note(const Monitor::News& news) {
    if (news.what == ZMQ_EVENT_ACCEPTED) connections_.insert(news.fd);
    if (news.what != ZMQ_EVENT_DISCONNECTED) return false;
    connections_.erase(news.fd);
    if (news.fd != client_) return false;
    silence_at_end_ = silence();
    client_ = -1;
    look_at_.reset();
    return true;
}

void Callers::client_speaks_on(int fd) {
    client_ = fd;
    look_at_.reset(fd < 0 ? -1 : ::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

std::chrono::milliseconds Callers::silence() const {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (!look_at_) return silence_at_end_;
    if (::getsockopt(look_at_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
    return std::chrono::milliseconds(info.tcpi_last_data_recv);
}

}  // namespace tnr::wire
