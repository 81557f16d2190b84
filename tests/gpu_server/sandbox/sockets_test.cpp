// Sockets inside the sandbox: what is made there reaches nobody, and what was given goes nowhere else.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include "tests/support/catch.hpp"

#include "api_client/base/handles.hpp"
#include "gpu_server/supervisor/worker_ports.hpp"
#include "inside.hpp"

using tnr::UniqueFd;
using namespace tnr::worker;

TEST_CASE("a connection it was given cannot be turned elsewhere", "[sandbox]") {
    UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), out(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(listen(listener.get(), 4) == 0);
    getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
    CHECK(inside({}, true, [&] {
              return errno_of(connect(out.get(), reinterpret_cast<sockaddr*>(&address), sizeof address));
          }) == EPERM);
    CHECK(inside({}, true, [&] {
              return errno_of(
                  sendto(out.get(), "x", 1, MSG_FASTOPEN, reinterpret_cast<sockaddr*>(&address), sizeof address));
          }) == EPERM);
    CHECK(inside({}, true, [&] {
              ifreq interface {};
              interface.ifr_ifindex = 1;
              return errno_of(ioctl(out.get(), SIOCGIFNAME, &interface));
          }) == EPERM);
    CHECK(connect(out.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);  // as it could outside
}

// What a worker could do to its listener, done outside: the sandbox lets it bind, for the driver's local socket.
TEST_CASE("a worker's listener keeps its port", "[sandbox]") {
    sockaddr_in elsewhere{};
    elsewhere.sin_family = AF_INET;
    elsewhere.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    tnr::server::WorkerPorts ports("127.0.0.1", {});
    tnr::server::Endpoint endpoint;
    auto listener = ports.take(endpoint);
    REQUIRE(listener);
    REQUIRE(listen(listener->get(), 4) == 0);
    REQUIRE(shutdown(listener->get(), SHUT_RDWR) == 0);
    CHECK(errno_of(bind(listener->get(), reinterpret_cast<sockaddr*>(&elsewhere), sizeof elsewhere)) == EINVAL);
}

TEST_CASE("where the kernel has a say in it, no TCP socket is bound or connected inside", "[sandbox]") {
    constexpr long create_ruleset = 444, with_network = 4;  // Landlock's, and its version
    if (syscall(create_ruleset, nullptr, 0, 1) < with_network) return;
    sockaddr_in anywhere{};
    anywhere.sin_family = AF_INET;
    const UniqueFd closed(socket(AF_INET, SOCK_STREAM, 0));  // as an accepted one is, once its other end has gone
    CHECK(inside({}, true, [&] {
              return errno_of(bind(closed.get(), reinterpret_cast<sockaddr*>(&anywhere), sizeof anywhere));
          }) == EACCES);
}

// NVIDIA's driver listens at a local socket. What it sends itself is in no list of what a worker holds.
TEST_CASE("a local socket can be listened at, and reaches nobody", "[sandbox]") {
    bool as_root = GENERATE(true, false);
    CAPTURE(as_root);
    static sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strcpy(name.sun_path + 1, "tnr-sandbox-test");
    static auto* const where = reinterpret_cast<sockaddr*>(&name);
    CHECK(inside({}, as_root, [] {
              const int server = socket(AF_UNIX, SOCK_SEQPACKET, 0);
              return bind(server, where, sizeof name) == 0 && listen(server, 4) == 0 ? 0 : errno;
          }) == 0);
    CHECK(inside({}, as_root, [] {
              const int server = socket(AF_UNIX, SOCK_SEQPACKET, 0), client = socket(AF_UNIX, SOCK_SEQPACKET, 0);
              if (bind(server, where, sizeof name) != 0 || listen(server, 4) != 0) return 1000;
              return errno_of(connect(client, where, sizeof name));
          }) == EPERM);
    const auto to_itself = [](const std::function<long(int)>& send) {
        const int own = socket(AF_UNIX, SOCK_DGRAM, 0);
        return bind(own, where, sizeof name) == 0 ? errno_of(send(own)) : 1000;
    };
    static msghdr message{};
    message.msg_name = where;
    message.msg_namelen = sizeof name;
    static mmsghdr messages{message, 0};
    CHECK(inside({}, as_root, [&] {
              return to_itself([](int own) { return sendto(own, "x", 1, 0, where, sizeof name); });
          }) == EPERM);
    CHECK(inside({}, as_root, [&] { return to_itself([](int own) { return sendmsg(own, &message, 0); }); }) == EPERM);
    CHECK(inside({}, as_root, [&] { return to_itself([](int own) { return sendmmsg(own, &messages, 1, 0); }); }) ==
          EPERM);
}

TEST_CASE("messages go to the supervisor alone, by a descriptor that nothing takes the place of", "[sandbox]") {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    SandboxOptions options;
    options.control_socket = ends[0];
    const auto fails = [&](const std::function<long()>& attempt) {
        return inside(options, true, [&] { return errno_of(attempt()); });
    };
    static char byte = 'x';
    static iovec piece{&byte, 1};
    static msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    CHECK(fails([&] { return sendmsg(ends[0], &message, 0); }) == 0);
    CHECK(fails([&] { return sendmsg(dup(ends[0]), &message, 0); }) == EPERM);
    CHECK(fails([&] { return close(ends[0]); }) == EPERM);
    CHECK(fails([&] { return close_range(static_cast<unsigned>(ends[0]), ~0U, 0); }) == EPERM);
    CHECK(fails([&] { return close_range(0, static_cast<unsigned>(ends[0]), 0); }) == EPERM);
    CHECK(fails([&] { return close_range(static_cast<unsigned>(ends[0]) + 1, ~0U, 0); }) == 0);
    CHECK(fails([&] { return dup2(ends[1], ends[0]); }) == EPERM);
    CHECK(fails([&] { return dup3(ends[1], ends[0], O_CLOEXEC); }) == EPERM);
    CHECK(fails([&] { return close(ends[1]); }) == 0);
    close(ends[0]);
    close(ends[1]);
}
