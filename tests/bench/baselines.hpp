// What the machine itself can do, measured in the same run: raw TCP, and ZeroMQ without anything of ours on top.
#pragma once

#include <cstddef>

namespace tnr::bench {

// Bytes per second from one thread to another over a loopback TCP connection, in 1 MiB writes.
double raw_tcp_bytes_per_s(size_t bytes);

// Seconds for one DEALER–ROUTER round trip of a 100-byte message over loopback TCP, two threads: the median of
// `rounds`.
double zmq_round_trip_s(int rounds);

// Seconds between two points: the median over `rounds` of what `run` takes.
template <class Run>
double median_s(int rounds, Run&& run);

}  // namespace tnr::bench

#include <algorithm>
#include <chrono>
#include <vector>

template <class Run>
double tnr::bench::median_s(int rounds, Run&& run) {
    std::vector<double> times;
    for (int i = 0; i < rounds; ++i) {
        auto begin = std::chrono::steady_clock::now();
        run();
        times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
    return times[static_cast<size_t>(rounds) / 2];
}
