// Single calls: those that wait, beside bare ZeroMQ ping-pong, and those that must not.
#include "tests/bench/rows.hpp"

namespace tnr::bench {

void launch_and_synchronize(const Options& options) {
    auto program = warm_program();
    against_ping_pong(options, "launch + cuStreamSynchronize", "<= 1.1", 1, [&] {
        program.launch(1);
        CU(cuStreamSynchronize, nullptr);
    });
}

static bool completed(CUevent event) {
    static auto* query = reinterpret_cast<decltype(&cuEventQuery)>(dlsym(test::driver_library(), "cuEventQuery"));
    auto result = query(event);
    if (result != CUDA_ERROR_NOT_READY) check(result, "cuEventQuery");
    return result == CUDA_SUCCESS;
}

void record_and_query(const Options& options) {
    auto program = warm_program();
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CU(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    against_ping_pong(options, "launch, record, query until done", "<= 1.2", 2, [&] {
        program.launch(1, stream);
        CU(cuEventRecord, event, stream);
        while (!completed(event)) {
        }
    });
}

void memory_info(const Options& options) {
    (void)warm_program();
    against_ping_pong(options, "cuMemGetInfo", "no round trip", 1, [&] {
        size_t free = 0, total = 0;
        CU(cuMemGetInfo, &free, &total);
    });
}

// Times of calls that should not wait, and how often they did.
template <class Run>
static void without_waiting(const Options& options, const std::string& what, const std::string& aim, Run&& run) {
    auto program = warm_program();
    int runs = options.times(20'000, 20);
    for (int i = 0; i < 10; ++i) run();
    // Slow ones would take minutes.
    if (!options.quick && seconds(run) > 1e-3) runs = 50;
    program.synchronize();
    auto trips = round_trips();
    auto took = seconds([&] {
        for (int i = 0; i < runs; ++i) run();
    });
    trips = round_trips() - trips;
    figure(what, took / runs * 1e6, "us", aim);
    figure(what + ", round trips per 1,000", 1000.0 * static_cast<double>(trips) / runs, "");
    program.synchronize();
}

void allocate_and_free(const Options& options) {
    without_waiting(options, "alloc + free", "<= 1 us", [] {
        CUdeviceptr address = 0;
        CU(cuMemAlloc, &address, size_t{1} << 20);
        CU(cuMemFree, address);
    });
}

void small_copy(const Options& options) {
    CUdeviceptr target = 0;
    std::vector<std::byte> data(4096, std::byte{1});
    Program program;
    program.start();
    CU(cuMemAlloc, &target, data.size());
    auto copy = [&] { CU(cuMemcpyHtoD, target, data.data(), data.size()); };
    // A burst that is kept here costs the program what the call costs; without end, what the slowest part of the way takes.
    constexpr int burst = 250;
    auto median = median_s(options.times(50, 2), [&] {
        for (int i = 0; i < burst; ++i) copy();
    });
    program.synchronize();
    figure("synchronous 4 KiB to the device, in a burst of 250", median / burst * 1e6, "us", "<= 2 us");
    auto raw = raw_tcp_bytes_per_s(options.way, static_cast<size_t>(options.times(64, 1)) << 20, true);
    figure("4 KiB over raw TCP", static_cast<double>(data.size()) / raw * 1e6, "us");
    without_waiting(options, "synchronous 4 KiB to the device, without end", "<= 2 us", copy);
}

}  // namespace tnr::bench
