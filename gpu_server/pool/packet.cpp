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

// The kernel's SCM_MAX_FD: no packet has more.
static constexpr size_t descriptors_max = 253;

Packet receive_packet(int socket, char* buffer, size_t size) {
    iovec content{buffer, size};
    alignas(cmsghdr) char control[CMSG_SPACE(descriptors_max * sizeof(int)) + CMSG_SPACE(sizeof(ucred))];
    msghdr message{};
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    Packet packet;
    do packet.size = recvmsg(socket, &message, MSG_TRUNC | MSG_CMSG_CLOEXEC);
    while (packet.size < 0 && errno == EINTR);
    if (packet.size < 0) return packet;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET) continue;
        if (header->cmsg_type == SCM_CREDENTIALS) packet.signed_by_kernel = true;
        if (header->cmsg_type != SCM_RIGHTS) continue;
        for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= header->cmsg_len; at += sizeof(int)) {
            int descriptor = -1;
            std::memcpy(&descriptor, CMSG_DATA(header) + at, sizeof descriptor);
            packet.files.emplace_back(descriptor);
        }
    }
    return packet;
}

}  // namespace tnr::server
