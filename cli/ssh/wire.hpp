// The TCP connection under an SSH session.
//
// libssh2 in non-blocking mode has a trap: when the socket takes only part of a packet, the very next call must
// be the one that was sending it, or the session is ruined (LIBSSH2_ERROR_BAD_USE). With data flowing both ways
// any call may send, so nobody can keep that rule. Hence the Wire: libssh2 sends into it, and it takes
// everything at once; what the socket does not take waits in `outbox_`. No libssh2 call is ever cut in two.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"

namespace tnr::ssh {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// Whoever has bulk data to send waits while this much is still unsent; the small messages of the protocol may
// exceed it. 1 MiB keeps a fast link busy between two turns of the loop.
inline constexpr size_t outbox_bytes_max = size_t{1} << 20;

// Not thread-safe: one thread owns a connection.
class Wire {
public:
    explicit Wire(UniqueFd socket) : socket_(std::move(socket)) {}

    // Waits until the socket has something for us, one of `others` is ready, or the deadline has passed, and
    // sends from the outbox meanwhile. With `listen` false it does not look at incoming data.
    // False: the deadline passed or the user interrupted.
    bool wait(Deadline deadline, std::vector<pollfd>* others = nullptr, bool listen = true);

    int fd() const { return socket_.get(); }
    // When something last came from the machine.
    Deadline heard() const { return heard_; }
    uint64_t received() const { return received_; }  // bytes
    // Nobody was listening until now, so the silence means nothing.
    void excuse_silence() { heard_ = Clock::now(); }
    bool outbox_full() const { return outbox_.size() - sent_ >= outbox_bytes_max; }
    bool outbox_empty() const { return outbox_.size() == sent_; }
    // From now on nothing is sent and reading says "end": lets libssh2 free a session without waiting.
    void cut() { cut_ = true; }

    // What libssh2 calls; both return -errno on failure.
    ssize_t send(const void* data, size_t length);
    ssize_t receive(void* data, size_t length);

private:
    void flush();

    UniqueFd socket_;
    std::string outbox_;
    size_t sent_ = 0;  // how much of outbox_ is gone; erased only now and then, since erasing moves the rest
    int failed_ = 0;   // errno of the first send that failed
    bool cut_ = false;
    Deadline heard_ = Clock::now();
    uint64_t received_ = 0;
};

// Connects to host:port, trying each of its addresses. Turns on what lets a dead peer be noticed.
Result<UniqueFd> connect_tcp(const std::string& host, int port, Deadline deadline);

}  // namespace tnr::ssh
