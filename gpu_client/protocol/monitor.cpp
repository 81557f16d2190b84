// See monitor.hpp.
#include "gpu_client/protocol/monitor.hpp"

#include <atomic>
#include <cstring>
#include <string>

#include "gpu_client/protocol/uninterrupted.hpp"

namespace tnr::wire {

Monitor::Monitor(zmq::context_t& context, zmq::socket_t& watched, int events) {
    static std::atomic<unsigned> counter{0};
    auto address = "inproc://monitor-" + std::to_string(counter++);
    if (zmq_socket_monitor(watched.handle(), address.c_str(), events) != 0) throw zmq::error_t();
    socket_ = zmq::socket_t(context, ZMQ_PAIR);
    socket_.set(zmq::sockopt::linger, 0);
    uninterrupted([&] { socket_.connect(address); });
    fd_ = socket_.get(zmq::sockopt::fd);
}

void Monitor::stop(zmq::socket_t& watched) {
    if (watched) (void)zmq_socket_monitor(watched.handle(), nullptr, 0);
}

// Two frames: u16 event and u32 value, then the address.
std::optional<Monitor::News> Monitor::next() {
    zmq::message_t first, address;
    auto take = [&](auto& frame, auto flags) { return uninterrupted([&] { return socket_.recv(frame, flags); }); };
    if (!socket_.handle() || !take(first, zmq::recv_flags::dontwait)) return std::nullopt;
    if (first.more()) take(address, zmq::recv_flags::none);
    uint16_t event = 0;
    int32_t value = 0;
    if (first.size() != sizeof event + sizeof value) return News{0, -1};
    std::memcpy(&event, first.data(), sizeof event);
    std::memcpy(&value, first.data<char>() + sizeof event, sizeof value);
    return News{event, value};
}

}  // namespace tnr::wire
