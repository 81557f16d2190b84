// How long things took, counted into steps: what a Prometheus histogram is made of.
#pragma once

#include <array>
#include <cstdint>

namespace tnr::watch {

struct Histogram {
    // Seconds. From a warm worker's answer to the longest wait that anybody has the patience for.
    static constexpr std::array bounds{0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1,  0.25,  0.5,
                                       1.0,   2.5,    5.0,   10.0, 30.0, 60.0, 300., 1800., 7200.};
    std::array<uint64_t, bounds.size() + 1> counts{};  // each by itself; the last: longer than any bound
    double sum = 0;

    void add(double seconds) {
        size_t step = 0;
        while (step < bounds.size() && seconds > bounds[step]) ++step;
        ++counts[step];
        sum += seconds;
    }
    uint64_t count() const {
        uint64_t all = 0;
        for (auto each : counts) all += each;
        return all;
    }
};

}  // namespace tnr::watch
