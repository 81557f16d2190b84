// Descriptors that programs we start do not inherit.
#include "api_client/base/descriptors.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/support/catch.hpp"

using namespace tnr;

namespace {

bool closes_on_exec(int fd) {
    return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}

bool waits(int fd) {
    return (::fcntl(fd, F_GETFL) & O_NONBLOCK) == 0;
}

}  // namespace

TEST_CASE("sockets and pipes are ours alone, and wait where they shall", "[base]") {
    for (Waits how : {Waits::yes, Waits::no}) {
        Ends pipe = make_pipe(how);
        REQUIRE(pipe);
        UniqueFd reads{pipe.one}, writes{pipe.other};
        UniqueFd listener = make_socket(AF_INET, SOCK_STREAM, Waits::yes),
                 caller = make_socket(AF_INET, SOCK_STREAM, how);
        sockaddr_in here{};
        here.sin_family = AF_INET;
        here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof here;
        REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&here), length) == 0);
        REQUIRE(::listen(listener.get(), 1) == 0);
        REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&here), &length) == 0);
        (void)!::connect(caller.get(), reinterpret_cast<sockaddr*>(&here), length);
        UniqueFd taken = accept_from(listener.get(), how);
        for (int fd : {reads.get(), writes.get(), caller.get(), taken.get()}) {
            REQUIRE(fd >= 0);
            CHECK(closes_on_exec(fd));
            CHECK(waits(fd) == (how == Waits::yes));
        }
        CHECK(::write(writes.get(), "x", 1) == 1);
        char letter = 0;
        CHECK(::read(reads.get(), &letter, 1) == 1);
    }
    Ends pair = make_socket_pair();
    REQUIRE(pair);
    UniqueFd one{pair.one}, other{pair.other};
    CHECK((closes_on_exec(one.get()) && closes_on_exec(other.get()) && waits(one.get())));
}
