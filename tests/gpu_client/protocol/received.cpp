// See received.hpp. Alone in its file: <linux/tcp.h>, which knows the count, and <netinet/tcp.h> exclude each other.
#include "tests/gpu_client/protocol/received.hpp"

#include <linux/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace tnr::test {

Received received_by(int socket) {
    tcp_info info{};
    socklen_t size = sizeof info;
    int unread = 0;
    constexpr int level = 6, name = TCP_INFO;  // IPPROTO_TCP
    bool told = ::getsockopt(socket, level, name, &info, &size) == 0 && ::ioctl(socket, FIONREAD, &unread) == 0;
    return told ? Received{info.tcpi_bytes_received, static_cast<uint64_t>(unread)} : Received{};
}

}  // namespace tnr::test
