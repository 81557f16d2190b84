// What the machine itself can do, measured in the same run and over the same way: raw TCP, and ZeroMQ without anything of
// ours on top.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

namespace tnr::bench {

// How this process reaches a server of its own: it listens at 127.0.0.1 and connects to `host`. With a proxy between the
// two the ports are ones that it forwards; 0: any.
struct Way {
    std::string host = "127.0.0.1";
    int ping_port = 0;
    int tcp_port = 0;
};

// Bytes per second from one thread to another over a TCP connection, in 1 MiB writes.
double raw_tcp_bytes_per_s(const Way& way, size_t bytes, bool up);

// A DEALER and, on a thread of its own, a ROUTER that sends back what it gets.
class ZmqPingPong {
public:
    explicit ZmqPingPong(const Way& way);
    ~ZmqPingPong();
    void round_trip();  // of a 100-byte message

private:
    zmq::context_t server_context_{1}, client_context_{1};
    zmq::socket_t server_, client_;
    std::thread echo_;
};

// What each of many runs takes, in seconds.
class Times {
public:
    template <class Run>
    void add(int runs, Run&& run) {
        for (int i = 0; i < runs; ++i) {
            auto begin = std::chrono::steady_clock::now();
            run();
            times_.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
        }
    }
    double median() {
        auto middle = times_.begin() + static_cast<long>(times_.size() / 2);
        std::nth_element(times_.begin(), middle, times_.end());
        return *middle;
    }

private:
    std::vector<double> times_;
};

template <class Run>
double median_s(int runs, Run&& run) {
    Times times;
    times.add(runs, run);
    return times.median();
}

}  // namespace tnr::bench
