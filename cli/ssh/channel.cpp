// Opening, reading and writing without ever blocking.
#include "cli/ssh/channel.hpp"

#include "api_client/base/interrupt.hpp"

namespace tnr::ssh {
namespace {

// How much the machine may send before we have taken it. It bounds our memory when our reader is slow, and one
// stream's throughput to window / round trip: 4 MiB is 400 Mb/s at 80 ms.
constexpr unsigned window_bytes = 4u << 20;
constexpr unsigned packet_bytes = 32768;  // the largest every SSH server must accept
// A polite goodbye may take this long when a channel is closed; then the connection is not worth waiting for.
constexpr std::chrono::seconds goodbye_limit{2};

}  // namespace

Result<Channel> Channel::open(Client& client, Deadline deadline) {
    if (client.companion) client.companion->settle(deadline);
    LIBSSH2_CHANNEL* channel = nullptr;
    long code = client.finish(
        [&]() -> long {
            channel = libssh2_channel_open_ex(client.session(), "session", 7, window_bytes, packet_bytes, nullptr, 0);
            return channel ? 0 : libssh2_session_last_errno(client.session());
        },
        deadline);
    if (code != 0) return client.failure("opening a channel", code);
    return Channel{client, channel};
}

Channel::~Channel() {
    if (!channel_) return;
    // Unfinished closes are libssh2's to clean up with the session; but a closed channel ends what runs there.
    client_->finish([&] { return libssh2_channel_free(channel_); },
                    interrupt::interrupted() || client_->lost() ? Clock::now() : Clock::now() + goodbye_limit);
}

Result<> Channel::start(const std::string& request, const std::string& message, Deadline deadline) {
    long code = client_->finish(
        [&] {
            return libssh2_channel_process_startup(channel_, request.data(), static_cast<unsigned>(request.size()),
                                                   message.empty() ? nullptr : message.data(),
                                                   static_cast<unsigned>(message.size()));
        },
        deadline);
    if (code != 0) return client_->failure("starting " + (message.empty() ? request : message), code);
    return Ok{};
}

ssize_t Channel::read(void* data, size_t length, int stream) {
    ssize_t got = libssh2_channel_read_ex(channel_, stream, static_cast<char*>(data), length);
    return got == LIBSSH2_ERROR_EAGAIN ? 0 : got;
}

ssize_t Channel::write(const void* data, size_t length) {
    if (client_->wire().outbox_full()) return 0;
    ssize_t took = libssh2_channel_write_ex(channel_, 0, static_cast<const char*>(data), length);
    return took == LIBSSH2_ERROR_EAGAIN ? 0 : took;
}

}  // namespace tnr::ssh
