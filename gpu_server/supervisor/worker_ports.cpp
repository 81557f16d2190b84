// See worker_ports.hpp.
#include "gpu_server/supervisor/worker_ports.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <random>

namespace tnr::server {

WorkerPorts::WorkerPorts(std::string host, PortRange range) : host_(std::move(host)), range_(range) {
    if (range.first == 0) return;
    for (int port = range.first; port <= range.last; ++port) free_.push_back(port);
    // Clients of a server that was here a moment ago may still look for their workers: not where it, too, began.
    auto begin = std::random_device{}() % free_.size();
    std::rotate(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(begin), free_.end());
}

// Of the kernel's choice, and yet by number: a socket that was bound so keeps its port whatever is done to it, where a worker
// could take one that the kernel chose to another port of the host (by shutdown() and bind()).
static Result<UniqueFd> bind_anywhere(const std::string& host, Endpoint& endpoint) {
    constexpr int tries_max = 16;  // somebody may take the port in between
    for (int tried = 1;; ++tried) {
        auto chosen = bind_to(host, 0, endpoint);
        if (!chosen) return chosen;
        const int port = endpoint.port;
        chosen->reset();
        auto socket = bind_to(host, port, endpoint);
        if (socket || tried == tries_max) return socket;
    }
}

Result<UniqueFd> WorkerPorts::take(Endpoint& endpoint) {
    if (range_.first == 0) return bind_anywhere(host_, endpoint);
    for (size_t tried = 0, all = free_.size(); tried < all; ++tried) {
        int port = free_.front();
        free_.pop_front();
        auto socket = bind_to(host_, port, endpoint);
        if (socket) return socket;
        free_.push_back(port);  // somebody else's, for now
    }
    return Error{Error::Kind::internal,
                 "no port for a worker on " + host_ + ": all of " + std::to_string(range_.first) + "-" +
                     std::to_string(range_.last) + " are in use",
                 "each worker needs a port of its own: check --worker-address and --worker-ports"};
}

void WorkerPorts::give_back(int port) {
    if (range_.first != 0) free_.push_back(port);
}

void WorkerPorts::is_taken(int port) {
    std::erase(free_, port);
}

size_t WorkerPorts::left() const {
    return range_.first == 0 ? std::numeric_limits<size_t>::max() : free_.size();
}

}  // namespace tnr::server
