// See callers.hpp.
#include "gpu_client/protocol/callers.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <zmq.h>

namespace tnr::wire {

uint16_t port_of(const sockaddr_storage& address) {
    if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
    return address.ss_family == AF_INET ? ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port) : 0;
}

static uint16_t peers_port(int fd) {
    sockaddr_storage there{};
    socklen_t size = sizeof there;
    return ::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size) == 0 ? port_of(there) : 0;
}

// In good order (FIN), not by a reset; and we have not closed it either.
static bool closed_by_peer(int fd) {
    tcp_info info{};
    socklen_t size = sizeof info;
    return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_state == TCP_CLOSE_WAIT;
}

bool Callers::note(const Monitor::News& news) {
    LockGuard lock(mutex_);
    if (news.what == ZMQ_EVENT_ACCEPTED) connections_.insert(news.fd);
    if (news.what != ZMQ_EVENT_DISCONNECTED) return false;
    connections_.erase(news.fd);
    if (news.fd != client_) return false;
    silence_at_end_ = silence_now();
    closed_for_good_ = comes_from_ != 0 && comes_from_ == peers_port(look_at_.get()) && closed_by_peer(look_at_.get());
    client_ = -1;
    look_at_.reset();
    return true;
}

void Callers::client_comes_from(uint64_t port) {
    LockGuard lock(mutex_);
    comes_from_ = port;
}

void Callers::client_speaks_on(int fd) {
    LockGuard lock(mutex_);
    client_ = fd;
    closed_for_good_ = false;
    look_at_.reset(fd < 0 ? -1 : ::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

bool Callers::anybody() const {
    LockGuard lock(mutex_);
    return !connections_.empty();
}

bool Callers::closed_for_good() const {
    LockGuard lock(mutex_);
    return closed_for_good_;
}

std::chrono::milliseconds Callers::silence() const {
    LockGuard lock(mutex_);
    return silence_now();
}

std::chrono::milliseconds Callers::silence_now() const {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (!look_at_) return silence_at_end_;
    if (::getsockopt(look_at_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
    return std::chrono::milliseconds(info.tcpi_last_data_recv);
}

}  // namespace tnr::wire
