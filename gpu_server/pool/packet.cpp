// See packet.hpp.
#include "gpu_server/pool/packet.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace tnr::server {

ssize_t send_packet(int socket, std::string_view text, int file) {
    iovec content{const_cast<char*>(text.data()), text.size()};  // sendmsg's signature; it does not write
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof file)] = {};
    msghdr message{};
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    if (file >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof file);
        std::memcpy(CMSG_DATA(header), &file, sizeof file);
    }
    ssize_t sent;
    do sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent;
}

// There is room for one descriptor; the kernel closes whatever else a sender adds.
ssize_t receive_packet(int socket, char* buffer, size_t size, UniqueFd& file) {
    file.reset();
    iovec content{buffer, size};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t received;
    do received = recvmsg(socket, &message, MSG_TRUNC | MSG_CMSG_CLOEXEC);
    while (received < 0 && errno == EINTR);
    if (received < 0) return received;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        int descriptor = -1;
        bool one = header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
                   header->cmsg_len == CMSG_LEN(sizeof descriptor);
        if (!one) continue;
        std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
        file.reset(descriptor);
    }
    return received;
}

}  // namespace tnr::server
