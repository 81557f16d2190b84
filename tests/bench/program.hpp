// What the rows of the benchmark share: the measured program, its figures, and what it is told about the network.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/bench/baselines.hpp"
#include "tests/support/cuda_driver.hpp"

namespace tnr::bench {

// Ends the process (125) with the call's name: a benchmark of failing calls says nothing.
void check(CUresult result, const char* what);

// CU(cuMemAlloc, …): as CALL, but looked up once, for what is timed.
#define CU(name, ...)                                                                                  \
    do {                                                                                               \
        static auto* function_of_driver =                                                              \
            reinterpret_cast<decltype(&name)>(dlsym(tnr::test::driver_library(), STRING_OF(name)));    \
        tnr::bench::check(function_of_driver ? function_of_driver(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND, \
                          STRING_OF(name));                                                            \
    } while (false)

struct Options {
    Way way;
    int counts_port = 0;  // the proxy's, 0 without one
    bool quick = false;   // tiny counts: only whether everything works
    uint64_t seed = 1;    // other code than with any other seed: the server keeps what it has seen

    // How often to do something.
    int times(int full, int tiny) const { return quick ? tiny : full; }
};

// One line of JSON on stdout. `aim`: what the figure should reach, in words; empty when it has no aim of its own.
void figure(const std::string& what, double value, const std::string& unit, const std::string& aim = "");
// A figure of counts that has a limit: one above it makes the exit status 1.
void count(const std::string& what, double value, double limit);
bool too_many();

// How often this process has waited for the network so far; the library tells. 0 with a driver that has no such number.
long round_trips();
long resident_kib(const std::string& process = "self");
// Of all workers on this machine.
long workers_resident_kib();
// What has passed through the proxy; all zero without one.
struct Passed {
    double up = 0, down = 0, answers = 0;
};
Passed passed(const Options& options);

struct Program {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction nothing = nullptr;

    // The claim is made here.
    void start(int ordinal = 0);
    void load();
    void launch(int times, CUstream stream = nullptr);
    static void launch_of(CUfunction function, CUstream stream);
    void synchronize();
};
// Ready to be measured: the kernel has run, and what grows once has grown.
Program warm_program();

// The empty kernel "nothing".
extern const char* const empty_kernel;

template <class Run>
double seconds(Run&& run) {
    return median_s(1, run);
}

// In turns with bare ZeroMQ ping-pong, for what a machine takes to wake a thread changes within seconds. Prints the time,
// the ratio and the round trips of one.
template <class Run>
void against_ping_pong(const Options& options, const std::string& what, const std::string& aim, double trips_max,
                       Run&& run) {
    ZmqPingPong ping_pong(options.way);
    Times bare, ours;
    run();
    int turns = options.times(20, 2), runs = options.times(50, 2);
    // A second per figure is enough where the network is slow.
    auto one = seconds(run) + seconds([&] { ping_pong.round_trip(); });
    if (!options.quick && one > 1e-3) turns = 5, runs = 5;
    auto before = round_trips();
    for (int turn = 0; turn < turns; ++turn) {
        bare.add(runs, [&] { ping_pong.round_trip(); });
        ours.add(runs, run);
    }
    auto trips = static_cast<double>(round_trips() - before) / (turns * runs);
    figure("bare ping-pong", bare.median() * 1e6, "us");
    figure(what, ours.median() * 1e6, "us");
    figure(what + " / ping-pong", ours.median() / bare.median(), "x", aim);
    count(what + ", round trips", trips, trips_max);
}

}  // namespace tnr::bench
