// See descriptors.hpp.
#include "api_client/base/descriptors.hpp"

#include <fcntl.h>
#include <sys/socket.h>

namespace tnr {
#ifdef SOCK_CLOEXEC

static int socket_flags(Waits waits) {
    return SOCK_CLOEXEC | (waits == Waits::no ? SOCK_NONBLOCK : 0);
}

UniqueFd make_socket(int family, int type, Waits waits) {
    return UniqueFd{::socket(family, type | socket_flags(waits), 0)};
}

UniqueFd accept_from(int listener, Waits waits) {
    return UniqueFd{::accept4(listener, nullptr, nullptr, socket_flags(waits))};
}

Ends make_socket_pair() {
    int ends[2];
    return ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 ? Ends{ends[0], ends[1]} : Ends{};
}

Ends make_pipe(Waits waits) {
    int ends[2];
    return ::pipe2(ends, O_CLOEXEC | (waits == Waits::no ? O_NONBLOCK : 0)) == 0 ? Ends{ends[0], ends[1]} : Ends{};
}

#else  // a program that another thread starts between the steps inherits it after all

static int marked(int fd, Waits waits) {
    if (fd < 0) return fd;
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (waits == Waits::no) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    return fd;
}

static Ends marked(const int (&ends)[2], Waits waits) {
    return {marked(ends[0], waits), marked(ends[1], waits)};
}

UniqueFd make_socket(int family, int type, Waits waits) {
    return UniqueFd{marked(::socket(family, type, 0), waits)};
}

UniqueFd accept_from(int listener, Waits waits) {
    return UniqueFd{marked(::accept(listener, nullptr, nullptr), waits)};
}

Ends make_socket_pair() {
    int ends[2];
    return ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 ? marked(ends, Waits::yes) : Ends{};
}

Ends make_pipe(Waits waits) {
    int ends[2];
    return ::pipe(ends) == 0 ? marked(ends, waits) : Ends{};
}

#endif
}  // namespace tnr
