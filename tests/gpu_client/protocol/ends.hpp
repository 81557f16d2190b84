// A worker's and a client's end of a link, connected over loopback TCP, and scissors.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <thread>

#include "gpu_client/protocol/link.hpp"
#include "tests/gpu_client/protocol/received.hpp"
#include "tests/support/catch.hpp"

namespace tnr::test {

// A socket that listens on a port of the kernel's choice.
inline int listening(uint16_t& port) {
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(::listen(fd, 16) == 0);
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
    port = ntohs(address.sin_port);
    return fd;
}

inline std::unique_ptr<wire::Link> dialled(zmq::context_t& context, uint16_t port, const wire::ClientKeys& keys = {},
                                           size_t lanes = 0) {
    auto channel = wire::Channel::connect(context, "tcp://127.0.0.1:" + std::to_string(port), keys, "session", lanes);
    REQUIRE(channel);
    return std::make_unique<wire::Link>(std::move(*channel));
}

struct Ends {
    zmq::context_t context;
    uint16_t port = 0;
    wire::KeyPair server_keys, client_keys;
    std::unique_ptr<wire::Link> server, client;

    explicit Ends(bool encrypted = false, size_t lanes = 0) : context(static_cast<int>(1 + lanes)) {
        if (encrypted) server_keys = wire::make_key_pair(), client_keys = wire::make_key_pair();
        auto served = wire::Channel::serve(context, listening(port), server_keys, "session", lanes);
        REQUIRE(served);
        server = std::make_unique<wire::Link>(std::move(*served));
        client = dialled(context, port,
                         encrypted ? wire::ClientKeys{server_keys.public_key, client_keys} : wire::ClientKeys{}, lanes);
    }

    // Ends every connection to the server, as a failing box on the way would.
    void cut() const {
        each_client_socket([](int fd) { ::shutdown(fd, SHUT_RDWR); });
    }

    // Ends one of them; which one, `any` decides.
    void cut_one(uint64_t any) const {
        std::vector<int> all;
        each_client_socket([&](int fd) { all.push_back(fd); });
        if (!all.empty()) ::shutdown(all[any % all.size()], SHUT_RDWR);
    }

    // Returns when so many bytes have come in at the client and ZeroMQ has taken them from the kernel.
    void wait_for_bytes_at_client(uint64_t bytes) const {
        for (bool arrived = false; !arrived; std::this_thread::yield())
            each_client_socket([&](int fd) {
                auto received = received_by(fd);
                arrived |= received.bytes >= bytes && received.unread == 0;
            });
    }

private:
    template <class Do>
    void each_client_socket(Do&& what) const {
        for (int fd = 3; fd < 256; ++fd) {
            sockaddr_in peer{};
            socklen_t length = sizeof peer;
            if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
            if (peer.sin_family == AF_INET && ntohs(peer.sin_port) == port) what(fd);
        }
    }
};

inline wire::Bytes numbered(uint64_t value, uint16_t flags = 0) {
    wire::Bytes frame;
    wire::Link::begin(frame);
    wire::Writer writer(frame);
    writer.begin_record(1, flags);
    writer.put(value);
    writer.end_record();
    return frame;
}

inline uint64_t number_in(const wire::Batch& batch) {
    wire::RecordReader reader(batch.records);
    wire::Record record;
    return reader.next(record) ? wire::Reader(record.payload).get<uint64_t>() : 0;
}

// The next event that is one: a thread that sends may wake the one that receives.
inline wire::Link::Event next_event(wire::Link& link, std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    wire::Batch batch;
    auto event = wire::Link::Event::woken;
    while (event == wire::Link::Event::woken) event = link.receive(batch, timeout);
    return event;
}

// The next batch, waiting out events that are none.
inline wire::Batch next_batch(wire::Link& link) {
    wire::Batch batch;
    for (int i = 0; i < 1000; ++i)
        if (link.receive(batch, std::chrono::seconds(5)) == wire::Link::Event::batch) return batch;
    FAIL("no batch came");
    return batch;
}

}  // namespace tnr::test
