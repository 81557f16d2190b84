// A network with a delay, on loopback: what arrives at a port of one address leaves, so much later and in order, for the
// same port of another.
//
//     delaying_proxy --from 127.0.0.2 --to 127.0.0.1 --delay-us 250 --control PORT PORT...
//
// Prints "ready" when it listens; ends when its stdin is closed. A connection to the control port gets one line with what
// has passed so far, "up BYTES down BYTES answers COUNT", and is closed. An answer: data of the server behind data of the
// client in the same connection, so about a round trip (receipts and heartbeats of the link count as well).
//
// One thread; `queued_bytes_max` per direction, which is what a network with so much bandwidth × delay would hold.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "api_client/base/handles.hpp"

namespace {

using tnr::UniqueFd;
using Clock = std::chrono::steady_clock;

constexpr size_t chunk_bytes = size_t{256} << 10;
constexpr size_t queued_bytes_max = size_t{512} << 20;
constexpr int backlog = 64;

struct Chunk {
    Clock::time_point due;
    std::unique_ptr<std::byte[]> data;
    size_t begin, end;
};

struct Counts {
    std::array<unsigned long long, 2> bytes{};  // up, down
    unsigned long long answers = 0;
};

// One direction of a connection.
struct Flow {
    int from, to;
    std::deque<Chunk> queue;
    size_t queued = 0;
    bool ended = false;    // nothing more comes
    bool closed = false;   // and the other side has been told
    bool blocked = false;  // the receiver takes nothing at the moment

    bool reads() const { return !ended && queued < queued_bytes_max; }
    bool has_due(Clock::time_point now) const { return !queue.empty() && queue.front().due <= now; }
};

struct Connection {
    UniqueFd client, server;
    std::array<Flow, 2> flows;  // up: client to server; down
    int last = 0;               // direction of the last data
    bool broken = false;
};

struct Listener {
    UniqueFd fd;
    int port;
    bool control;
};

class Proxy {
public:
    Proxy(const char* from, const char* to, std::chrono::microseconds delay) : from_(from), to_(to), delay_(delay) {}
    bool listen(int port, bool control);
    void run();

private:
    void accept(const Listener& listener);
    void read(Connection& connection, int direction, Clock::time_point now);
    void write(Connection& connection, int direction, Clock::time_point now);
    void answer_counts(int fd);
    sockaddr_in address(const std::string& host, int port) const;
    std::unique_ptr<std::byte[]> fresh();

    std::string from_, to_;
    std::chrono::microseconds delay_;
    std::vector<Listener> listeners_;
    std::list<Connection> connections_;
    std::vector<std::unique_ptr<std::byte[]>> spare_;
    Counts counts_;
};

sockaddr_in Proxy::address(const std::string& host, int port) const {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, host.c_str(), &address.sin_addr);
    return address;
}

bool Proxy::listen(int port, bool control) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    auto where = address(from_, port);
    if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) != 0 || ::listen(fd.get(), backlog) != 0)
        return false;
    listeners_.push_back({std::move(fd), port, control});
    return true;
}

void no_delay(int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void Proxy::answer_counts(int fd) {
    char line[128];
    int length = std::snprintf(line, sizeof line, "up %llu down %llu answers %llu\n", counts_.bytes[0],
                               counts_.bytes[1], counts_.answers);
    (void)!::write(fd, line, static_cast<size_t>(length));
}

// The other side is at once there or it is not: this is loopback. A client of a port where nobody listens is reset.
void Proxy::accept(const Listener& listener) {
    UniqueFd client(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!client) return;
    if (listener.control) return answer_counts(client.get());
    UniqueFd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    auto where = address(to_, listener.port);
    if (::connect(server.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) != 0) {
        linger reset{1, 0};
        setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        return;
    }
    no_delay(client.get());
    no_delay(server.get());
    auto& made = connections_.emplace_back();
    made.flows[0] = {client.get(), server.get(), {}};
    made.flows[1] = {server.get(), client.get(), {}};
    made.client = std::move(client);
    made.server = std::move(server);
}

std::unique_ptr<std::byte[]> Proxy::fresh() {
    if (spare_.empty()) return std::make_unique_for_overwrite<std::byte[]>(chunk_bytes);
    auto one = std::move(spare_.back());
    spare_.pop_back();
    return one;
}

// What one recv() brings is a chunk and leaves as one.
void Proxy::read(Connection& connection, int direction, Clock::time_point now) {
    auto& flow = connection.flows[static_cast<size_t>(direction)];
    if (!flow.reads()) return;
    auto data = fresh();
    auto got = ::recv(flow.from, data.get(), chunk_bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return spare_.push_back(std::move(data));
    if (got < 0) connection.broken = true;
    if (got <= 0) {
        flow.ended = true;
        return;
    }
    if (direction == 1 && connection.last == 0) ++counts_.answers;
    connection.last = direction;
    auto bytes = static_cast<size_t>(got);
    counts_.bytes[static_cast<size_t>(direction)] += bytes;
    flow.queued += bytes;
    if (bytes < chunk_bytes / 4) {  // small messages must not hold a whole chunk while they wait
        auto small = std::make_unique_for_overwrite<std::byte[]>(bytes);
        std::memcpy(small.get(), data.get(), bytes);
        spare_.push_back(std::move(data));
        data = std::move(small);
    }
    flow.queue.push_back({now + delay_, std::move(data), 0, bytes});
}

void Proxy::write(Connection& connection, int direction, Clock::time_point now) {
    auto& flow = connection.flows[static_cast<size_t>(direction)];
    flow.blocked = false;
    while (flow.has_due(now)) {
        auto& chunk = flow.queue.front();
        auto sent =
            ::send(flow.to, chunk.data.get() + chunk.begin, chunk.end - chunk.begin, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) {
            flow.blocked = errno == EAGAIN || errno == EINTR;
            connection.broken |= !flow.blocked;
            return;
        }
        chunk.begin += static_cast<size_t>(sent);
        flow.queued -= static_cast<size_t>(sent);
        if (chunk.begin < chunk.end) continue;
        if (chunk.end >= chunk_bytes / 4 && spare_.size() < 64) spare_.push_back(std::move(chunk.data));
        flow.queue.pop_front();
    }
    if (flow.ended && flow.queue.empty() && !flow.closed) {
        ::shutdown(flow.to, SHUT_WR);
        flow.closed = true;
    }
}

void Proxy::run() {
    std::vector<pollfd> polled;
    while (true) {
        polled.assign(1, {STDIN_FILENO, POLLIN, 0});
        for (auto& listener : listeners_) polled.push_back({listener.fd.get(), POLLIN, 0});
        auto next = Clock::time_point::max();
        for (auto& connection : connections_) {
            auto& [up, down] = connection.flows;
            auto events = [](const Flow& in, const Flow& out) {
                return static_cast<short>((in.reads() ? POLLIN : 0) | (out.blocked ? POLLOUT : 0));
            };
            // Without an event to wait for the kernel would go on telling that the peer has closed.
            auto watch = [&](int fd, short wanted) { polled.push_back({wanted ? fd : -1, wanted, 0}); };
            watch(connection.client.get(), events(up, down));
            watch(connection.server.get(), events(down, up));
            for (auto& flow : connection.flows)
                if (!flow.queue.empty() && !flow.blocked) next = std::min(next, flow.queue.front().due);
        }
        timespec wait{};
        if (auto left = next - Clock::now(); next != Clock::time_point::max() && left.count() > 0)
            wait = {left / std::chrono::seconds(1), left.count() % 1'000'000'000};
        if (::ppoll(polled.data(), polled.size(), next == Clock::time_point::max() ? nullptr : &wait, nullptr) < 0)
            continue;
        if (polled[0].revents) return;
        auto now = Clock::now();
        auto* at = &polled[1 + listeners_.size()];
        for (auto& connection : connections_) {
            for (int direction : {0, 1})
                if ((at++)->revents & (POLLIN | POLLHUP | POLLERR)) read(connection, direction, now);
            for (int direction : {0, 1}) write(connection, direction, now);
        }
        connections_.remove_if([](auto& one) { return one.broken || (one.flows[0].closed && one.flows[1].closed); });
        for (size_t i = 0; i < listeners_.size(); ++i)
            if (polled[1 + i].revents) accept(listeners_[i]);
    }
}

int usage() {
    std::fprintf(stderr,
                 "usage: delaying_proxy --from HOST --to HOST --delay-us MICROSECONDS [--control PORT] PORT...\n");
    return 2;
}

}  // namespace

int main(int count, char** words) {
    const char *from = nullptr, *to = nullptr;
    int control = 0;
    std::chrono::microseconds delay{0};
    std::vector<int> ports;
    for (int i = 1; i < count; ++i) {
        std::string word = words[i];
        if (!word.starts_with("--")) {
            ports.push_back(std::atoi(words[i]));
            continue;
        }
        if (++i == count) return usage();
        if (word == "--from")
            from = words[i];
        else if (word == "--to")
            to = words[i];
        else if (word == "--delay-us")
            delay = std::chrono::microseconds(std::atol(words[i]));
        else if (word == "--control")
            control = std::atoi(words[i]);
        else
            return usage();
    }
    if (!from || !to || ports.empty()) return usage();
    ::prctl(PR_SET_TIMERSLACK, 1UL);  // the kernel's own 50 us would be a fifth of the shortest delay
    Proxy proxy(from, to, delay);
    bool listening = control == 0 || proxy.listen(control, true);
    for (int port : ports) listening = listening && proxy.listen(port, false);
    if (!listening) {
        std::perror("delaying_proxy: cannot listen");
        return 1;
    }
    std::puts("ready");
    std::fflush(stdout);
    proxy.run();
    return 0;
}
