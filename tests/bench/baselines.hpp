// What the machine itself can do, measured in the same run: raw TCP, and ZeroMQ without anything of ours on top.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>
#include <zmq.hpp>

namespace tnr::bench {

// Bytes per second from one thread to another over a loopback TCP connection, in 1 MiB writes.
double raw_tcp_bytes_per_s(size_t bytes);

// A DEALER and, on a thread of its own, a ROUTER that sends back what it gets, over loopback TCP.
class ZmqPingPong {
public:
    ZmqPingPong();
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
