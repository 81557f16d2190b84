// Non-blocking TCP with an outbox.
#include "cli/ssh/wire.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "api_client/base/descriptors.hpp"
#include "api_client/base/interrupt.hpp"

namespace tnr::ssh {
namespace {

// How long the peer may leave data unacknowledged before the kernel gives the connection up. Long enough for a
// Wi-Fi that comes back, short enough that a dead laptop or machine does not hang a script.
constexpr unsigned peer_silence_ms = 60'000;

using Addresses = Handle<addrinfo, freeaddrinfo>;

int poll_ms(Deadline deadline) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    return static_cast<int>(std::clamp<long long>(left, 0, 3'600'000));
}

void tune(int socket) {
    int on = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
#ifdef TCP_USER_TIMEOUT  // elsewhere whoever waits notices the silence alone
    ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &peer_silence_ms, sizeof peer_silence_ms);
#endif
}

// Waits for a connect() in progress; 0 or the errno it ended with.
int finish_connect(int socket, Deadline deadline) {
    for (;;) {
        pollfd waits[] = {{socket, POLLOUT, 0}, {interrupt::fd(), POLLIN, 0}};
        int ready = ::poll(waits, 2, poll_ms(deadline));
        if (interrupt::interrupted()) return EINTR;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return ETIMEDOUT;
        int error = 0;
        socklen_t length = sizeof error;
        ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
        return error;
    }
}

int try_address(const addrinfo& address, Deadline deadline, UniqueFd& connected) {
    UniqueFd socket = make_socket(address.ai_family, SOCK_STREAM, Waits::no);
    if (!socket) return errno;
    tune(socket.get());
    int error = ::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) error = finish_connect(socket.get(), deadline);
    if (error == 0) connected = std::move(socket);
    return error;
}

}  // namespace

Result<UniqueFd> connect_tcp(const std::string& host, int port, Deadline deadline) {
    addrinfo wanted{}, *list = nullptr;
    wanted.ai_socktype = SOCK_STREAM;
    int failure = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &list);
    if (failure != 0) return Error{Error::Kind::network, "cannot find " + host + ": " + ::gai_strerror(failure)};
    Addresses addresses{list};
    int error = EADDRNOTAVAIL;
    for (auto* address = list; address; address = address->ai_next) {
        UniqueFd connected;
        error = try_address(*address, deadline, connected);
        if (connected) return connected;
        if (error == EINTR) return interrupt::error();
    }
    return Error{Error::Kind::network,
                 "cannot connect to " + host + " port " + std::to_string(port) + ": " + std::strerror(error)};
}

ssize_t Wire::send(const void* data, size_t length) {
    if (cut_) return static_cast<ssize_t>(length);
    if (failed_) return -failed_;
    outbox_.append(static_cast<const char*>(data), length);
    flush();
    return static_cast<ssize_t>(length);
}

ssize_t Wire::receive(void* data, size_t length) {
    if (cut_) return 0;
    ssize_t got = ::recv(socket_.get(), data, length, MSG_DONTWAIT);
    if (got > 0) {
        heard_ = Clock::now();
        received_ += static_cast<uint64_t>(got);
    }
    return got < 0 ? -errno : got;
}

void Wire::flush() {
    while (!failed_ && sent_ < outbox_.size()) {
        ssize_t took =
            ::send(socket_.get(), outbox_.data() + sent_, outbox_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (took < 0 && errno == EINTR) continue;
        if (took < 0 && errno != EAGAIN) failed_ = errno;
        if (took < 0) break;
        sent_ += static_cast<size_t>(took);
    }
    if (sent_ == outbox_.size() || sent_ >= outbox_bytes_max) {
        outbox_.erase(0, sent_);
        sent_ = 0;
    }
}

bool Wire::wait(Deadline deadline, std::vector<pollfd>* others, bool listen) {
    short events = static_cast<short>((listen ? POLLIN : 0) | (outbox_empty() ? 0 : POLLOUT));
    std::vector<pollfd> waits{{socket_.get(), events, 0}, {interrupt::fd(), POLLIN, 0}};
    if (others) waits.insert(waits.end(), others->begin(), others->end());
    int ready = ::poll(waits.data(), waits.size(), poll_ms(deadline));
    if (interrupt::interrupted()) return false;
    if (ready < 0) return errno == EINTR;  // a signal of the caller's own, such as a resized window
    if (waits[0].revents & POLLOUT) flush();
    if (others) std::copy(waits.begin() + 2, waits.end(), others->begin());
    return ready > (waits[1].revents ? 1 : 0);
}

}  // namespace tnr::ssh
