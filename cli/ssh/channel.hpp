// One channel of a connection: a command's streams, or SFTP.
#pragma once

#include <cerrno>

#include "cli/ssh/client.hpp"

namespace tnr::ssh {

// What a call on a non-blocking socket has returned says only that it has to be made again.
inline bool would_block(ssize_t code) {
    return code < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

// Closed and freed when it goes. Must not outlive its Client.
class Channel {
public:
    static Result<Channel> open(Client& client, Deadline deadline);
    Channel(Channel&& other) noexcept : client_(other.client_), channel_(std::exchange(other.channel_, nullptr)) {}
    Channel& operator=(Channel&&) = delete;
    ~Channel();

    LIBSSH2_CHANNEL* get() { return channel_; }
    Client& client() { return *client_; }

    // Sends the request that starts something: "exec" with a command, "shell", "subsystem" with its name.
    Result<> start(const std::string& request, const std::string& message, Deadline deadline);

    // What is there now: bytes, 0 for none yet or no more (ask eof()), negative for a libssh2 error.
    ssize_t read(void* data, size_t length, int stream = 0);
    // How much was taken; 0 while the other side's window is full.
    ssize_t write(const void* data, size_t length);
    bool eof() { return libssh2_channel_eof(channel_) == 1; }

private:
    Channel(Client& client, LIBSSH2_CHANNEL* channel) : client_(&client), channel_(channel) {}
    Client* client_;
    LIBSSH2_CHANNEL* channel_;
};

}  // namespace tnr::ssh
