// What remoting costs, as ratios to what the same machine does without it in the same run.
//
//     tests/support/with_server.py --server build/release/bin/tnr-gpu-server --client build/release/lib
//         -- build/release/bin/remoting_bench
//
// Prints one line per number that issue and design ask for. Exit status 1: one of the counts (round trips, memory) is
// over its limit. Times never fail it. `--counts` leaves the times out: that is how ctest runs it.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/bench/baselines.hpp"
#include "tests/support/cuda_driver.hpp"

namespace {

using namespace tnr::bench;

constexpr const char* empty_kernel = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry nothing(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) { ret; }
)";

void check(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return;
    std::fprintf(stderr, "%s failed: %d\n", what, result);
    std::exit(125);
}

long resident_kib(const std::string& process) {
    std::ifstream status("/proc/" + process + "/status");
    for (std::string line; std::getline(status, line);)
        if (line.rfind("VmRSS:", 0) == 0) return std::atol(line.c_str() + 6);
    return 0;
}

// Of all workers on this machine: only growth is looked at, and only ours works meanwhile.
long workers_resident_kib() {
    long sum = 0;
    for (auto& entry : std::filesystem::directory_iterator("/proc")) {
        std::string command;
        std::ifstream file(entry.path() / "cmdline");
        std::getline(file, command, '\0');
        bool server = command.ends_with("tnr-gpu-server");
        std::getline(file, command, '\0');
        if (server && command == "worker") sum += resident_kib(entry.path().filename());
    }
    return sum;
}

// The number the library itself would print at exit. Looked up by name: other drivers do not have it.
long round_trips() {
    auto* count = reinterpret_cast<unsigned long long (*)()>(dlsym(tnr::test::driver_library(), "cuTnrRoundTrips"));
    return count ? static_cast<long>(count()) : -1;
}

struct Program {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction nothing = nullptr;

    void start() {
        CALL(cuInit, 0);
        CALL(cuDeviceGet, &device, 0);
        CALL(cuDevicePrimaryCtxRetain, &context, device);
        CALL(cuCtxSetCurrent, context);
    }
    void load() {
        CALL(cuModuleLoadData, &module, empty_kernel);
        CALL(cuModuleGetFunction, &nothing, module, "nothing");
    }
    void launch(int times) {
        static auto launch =
            reinterpret_cast<decltype(&cuLaunchKernel)>(dlsym(tnr::test::driver_library(), "cuLaunchKernel"));
        CUdeviceptr a = 0, b = 0, c = 0;
        unsigned n = 0;
        void* parameters[] = {&a, &b, &c, &n};
        for (int i = 0; i < times; ++i)
            check(launch(nothing, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr), "cuLaunchKernel");
    }
    void synchronize() { CALL(cuCtxSynchronize); }
};

bool failed = false;
void count(const char* what, long value, long limit) {
    bool good = value <= limit;
    failed |= !good;
    std::printf("%-58s %10ld   (at most %ld)%s\n", what, value, limit, good ? "" : "   TOO MANY");
}
void time_of(const char* what, double value, const char* unit, const char* aim) {
    std::printf("%-58s %10.3f %s   (aim: %s)\n", what, value, unit, aim);
}

double seconds(auto&& run) {
    return median_s(1, run);
}

void measure_copies(size_t bytes) {
    std::vector<std::byte> data(bytes, std::byte{1});
    CUdeviceptr target = 0;
    CALL(cuMemAlloc, &target, bytes);
    CALL(cuMemcpyHtoD, target, data.data(), bytes);  // pages are there now, on both sides
    auto tcp = raw_tcp_bytes_per_s(bytes);
    auto up = static_cast<double>(bytes) / median_s(3, [&] { CALL(cuMemcpyHtoD, target, data.data(), bytes); });
    auto down = static_cast<double>(bytes) / median_s(3, [&] { CALL(cuMemcpyDtoH, data.data(), target, bytes); });
    std::printf("raw TCP on this loopback: %.2f GB/s\n", tcp / 1e9);
    time_of("256 MiB host to device / raw TCP", up / tcp, "x", ">= 0.7");
    time_of("256 MiB device to host / raw TCP", down / tcp, "x", ">= 0.7");
    CALL(cuMemFree, target);
}

// In turns: what the machine takes to wake a thread changes within seconds.
void measure_synchronising(Program& program) {
    ZmqPingPong ping_pong;
    Times bare, ours;
    for (int turn = 0; turn < 40; ++turn) {
        bare.add(100, [&] { ping_pong.round_trip(); });
        ours.add(100, [&] { program.synchronize(); });
    }
    std::printf("bare ZeroMQ ping-pong: %.1f us, cuCtxSynchronize: %.1f us\n", bare.median() * 1e6,
                ours.median() * 1e6);
    time_of("a synchronising call / bare ZeroMQ ping-pong", ours.median() / bare.median(), "x", "<= 1.5");
}

void measure_launches(Program& program, bool times) {
    program.launch(20'000);
    program.synchronize();
    auto before = resident_kib("self"), workers_before = workers_resident_kib();
    auto trips = round_trips();
    auto queued = seconds([&] { program.launch(100'000); });
    program.synchronize();
    count("round trips of 100,000 launches and a synchronise", round_trips() - trips, 1);
    count("client memory grown by 100,000 launches (KiB)", resident_kib("self") - before, 4096);
    count("worker memory grown by them (KiB)", workers_resident_kib() - workers_before, 4096);
    if (times) time_of("one asynchronous launch, client side", queued / 100'000 * 1e6, "us", "<= 2");
    // Bursts that fit the credit window: nothing but the client's own cost.
    auto burst = median_s(50, [&] { program.launch(1000); });
    program.synchronize();
    if (times) time_of("the same in a burst of 1,000", burst / 1000 * 1e6, "us", "<= 2");
}

}  // namespace

int main(int argc, char** argv) {
    bool times = argc < 2 || std::strcmp(argv[1], "--counts") != 0;
    Program program;
    auto begin_trips = round_trips();
    CALL(cuInit, 0);
    // The worker is warm by now or will be in a moment: cuInit has asked about the GPU. Then the claim.
    CALL(cuDeviceGet, &program.device, 0);
    auto claim = seconds([&] {
        program.start();
        size_t free = 0, total = 0;
        CALL(cuMemGetInfo, &free, &total);
    });
    program.load();
    program.launch(1);
    // cuMemGetInfo was our own question, not the program's.
    count("round trips from cuInit to the first launch", round_trips() - begin_trips - 1, 5);
    program.synchronize();
    if (times) time_of("claim with a warm worker to the first answered call", claim * 1e3, "ms", "<= 20");

    measure_launches(program, times);
    if (times) {
        measure_synchronising(program);
        measure_copies(size_t{256} << 20);
    }
    return failed ? 1 : 0;
}
