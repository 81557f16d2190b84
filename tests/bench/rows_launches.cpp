// Many launches: the step of a training loop, launches without end, and what they leave behind.
#include <algorithm>

#include "tests/bench/rows.hpp"

namespace tnr::bench {

static constexpr int step_launches = 500;
static constexpr size_t step_copy_bytes = 4096;

// `host`: room for four copies.
static void steps(const Options& options, std::byte* host) {
    auto program = warm_program();
    CUstream stream = nullptr;
    CUdeviceptr memory = 0;
    CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CU(cuMemAlloc, &memory, 4 * step_copy_bytes);
    auto one = [&] {
        for (size_t i = 0; i < 3; ++i)
            CU(cuMemcpyHtoDAsync, memory + i * step_copy_bytes, host + i * step_copy_bytes, step_copy_bytes, stream);
        program.launch(step_launches, stream);
        CU(cuMemcpyDtoHAsync, host + 3 * step_copy_bytes, memory, 4, stream);
        CU(cuStreamSynchronize, stream);
    };
    one();
    int runs = options.times(2000, 5);
    if (auto took = seconds(one); !options.quick) runs = std::min(runs, static_cast<int>(3.0 / took) + 10);
    auto trips = round_trips();
    auto before = passed(options);
    auto took = seconds([&] {
        for (int i = 0; i < runs; ++i) one();
    });
    auto after = passed(options);
    figure("steps", runs / took, "/s", ">= 2,500; >= 32 at 30 ms");
    count("round trips per step", static_cast<double>(round_trips() - trips) / runs, 1);
    if (options.counts_port == 0) return;
    figure("bytes up per step", (after.up - before.up) / runs, "B");
    figure("bytes down per step", (after.down - before.down) / runs, "B");
    figure("answers per step, as the proxy counts", (after.answers - before.answers) / runs, "");
}

void step(const Options& options) {
    Program program;
    program.start();
    std::byte* pinned = nullptr;
    CU(cuMemHostAlloc, reinterpret_cast<void**>(&pinned), 4 * step_copy_bytes, 0);
    steps(options, pinned);
}

// As loss.item() does: the copy into pageable memory waits itself, and nothing is left to wait for behind it.
void step_pageable(const Options& options) {
    std::vector<std::byte> host(4 * step_copy_bytes);
    steps(options, host.data());
}

// Enough to fill the credit window: then a launch costs what the slowest part of the way takes for it.
void launches(const Options& options) {
    auto program = warm_program();
    int all = options.times(2'000'000, 2'000), burst = 1000;
    double queued = 0;
    auto whole = seconds([&] {
        queued = seconds([&] { program.launch(all); });
        program.synchronize();
    });
    figure("asynchronous launch", queued / all * 1e6, "us", "at 30 ms as on loopback");
    figure("launch with its share of the final synchronize", whole / all * 1e6, "us");
    // Bursts that fit the credit window: nothing but the client's own cost.
    auto median = median_s(options.times(50, 2), [&] { program.launch(burst); });
    figure("launch in a burst of 1,000", median / burst * 1e6, "us", "<= 2 us");
    program.synchronize();
}

// As attention kernels and CUTLASS's are launched: what they need is said and asked each time. And flags that streams write.
void launches_with_settings(const Options& options) {
    auto program = warm_program();
    constexpr int shared_bytes = 64 << 10;
    CUdeviceptr flag = 0;
    int blocks = 0, clusters = 0;
    CUlaunchAttribute pairs{};
    pairs.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    pairs.value.clusterDim = {2, 1, 1};
    CUlaunchConfig config{2, 1, 1, 128, 1, 1, 0, nullptr, &pairs, 1};
    CU(cuMemAlloc, &flag, 4);
    auto one = [&] {
        CU(cuFuncSetAttribute, program.nothing, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes);
        CU(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, program.nothing, 128, shared_bytes);
        CU(cuOccupancyMaxActiveClusters, &clusters, program.nothing, &config);
        program.launch(1);
        CU(cuStreamWriteValue32, nullptr, flag, 1, 0);
    };
    one();
    const int times = options.times(100'000, 100);
    auto trips = round_trips();
    auto took = seconds([&] {
        for (int i = 0; i < times; ++i) one();
    });
    figure("attribute set, occupancies asked, launch, flag written", took / times * 1e6, "us", "no wait");
    count("round trips for all of them", static_cast<double>(round_trips() - trips), 0);
    program.synchronize();
    CU(cuMemFree, flag);
}

// Each word of a struct may be an address of pinned memory, which the client looks for once there is any.
void struct_launches(const Options& options) {
    constexpr const char* code = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry wide(.param .align 8 .b8 a[4096]) { ret; }
)";
    auto program = warm_program();
    CUmodule module = nullptr;
    CUfunction wide = nullptr;
    CU(cuModuleLoadData, &module, code);
    CU(cuModuleGetFunction, &wide, module, "wide");
    std::vector<uint64_t> words(512, 1);
    void* parameters[] = {words.data()};
    constexpr int burst = 100;
    auto one = [&] {
        for (int i = 0; i < burst; ++i) CU(cuLaunchKernel, wide, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
    };
    // In the median of bursts that fit the credit window, each waited for aside.
    auto cost = [&] {
        std::vector<double> all;
        for (int i = 0; i < options.times(400, 2); ++i) {
            all.push_back(seconds(one));
            program.synchronize();
        }
        std::nth_element(all.begin(), all.begin() + static_cast<long>(all.size() / 2), all.end());
        return all[all.size() / 2] / burst * 1e6;
    };
    (void)cost();
    const double without = cost();
    std::byte* pinned = nullptr;
    CU(cuMemHostAlloc, reinterpret_cast<void**>(&pinned), step_copy_bytes, 0);
    const double with = cost();
    figure("launch with a struct of 4 KiB", without, "us");
    figure("the same while there is pinned memory", with, "us");
    figure("with pinned memory / without", with / without, "x");
}

void graph_launches(const Options& options) {
    constexpr int nodes = 200, burst = 20;
    warm_program();
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUstream stream = nullptr;
    CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CU(cuGraphCreate, &graph, 0);
    CUgraphNode node = nullptr, before = nullptr;
    for (int i = 0; i < nodes; ++i) {
        CU(cuGraphAddEmptyNode, &node, graph, i == 0 ? nullptr : &before, i == 0 ? 0 : 1);
        before = node;
    }
    CU(cuGraphInstantiateWithFlags, &exec, graph, 0);
    auto bursts = [&](int times) {
        for (int i = 0; i < times; ++i) {
            for (int launch = 0; launch < burst; ++launch) CU(cuGraphLaunch, exec, stream);
            CU(cuStreamSynchronize, stream);
        }
    };
    bursts(10);
    int times = options.times(2000, 5);
    if (auto took = seconds([&] { bursts(10); }) / 10; !options.quick)
        times = std::min(times, static_cast<int>(3.0 / took) + 10);
    auto trips = round_trips();
    auto took = seconds([&] { bursts(times); });
    figure("graph launches", times * burst / took, "/s", ">= 200,000; >= 600 at 30 ms");
    count("round trips per synchronize", static_cast<double>(round_trips() - trips) / times, 1);
    CU(cuGraphExecDestroy, exec);
    CU(cuGraphDestroy, graph);
}

// As XLA makes them: kernels, fills and copies one by one, then other parameters for the kernels of what was instantiated.
void graph_nodes(const Options& options) {
    constexpr size_t nodes = 200, bytes = 4096;
    auto program = warm_program();
    CUdeviceptr memory = 0;
    CU(cuMemAlloc, &memory, 2 * bytes);
    unsigned n = 0;
    void* parameters[] = {&memory, &memory, &memory, &n};
    CUDA_KERNEL_NODE_PARAMS kernel{};
    kernel.func = program.nothing;
    kernel.kernelParams = parameters;
    kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
    CUDA_MEMSET_NODE_PARAMS fill{memory, 0, 0, 4, bytes / 4, 1};
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = memory, copy.dstDevice = memory + bytes;
    copy.WidthInBytes = bytes, copy.Height = copy.Depth = 1;
    CUgraph graph = nullptr;
    std::vector<CUgraphNode> all(nodes);
    auto make = [&] {
        CU(cuGraphCreate, &graph, 0);
        for (size_t i = 0; i < nodes; ++i) {
            auto* before = i == 0 ? nullptr : &all[i - 1];
            const size_t count = i == 0 ? 0 : 1;
            if (i % 8 == 5)
                CU(cuGraphAddMemsetNode, &all[i], graph, before, count, &fill, program.context);
            else if (i % 8 == 6)
                CU(cuGraphAddMemcpyNode, &all[i], graph, before, count, &copy, program.context);
            else if (i % 8 == 7)
                CU(cuGraphAddEmptyNode, &all[i], graph, before, count);
            else
                CU(cuGraphAddKernelNode, &all[i], graph, before, count, &kernel);
        }
    };
    auto trips = round_trips();
    auto took = seconds(make);
    figure("node added to a graph", took / nodes * 1e6, "us", "no wait");
    count("round trips per graph of 200 nodes", static_cast<double>(round_trips() - trips), 0);
    CUgraphExec exec = nullptr;
    CU(cuGraphInstantiateWithFlags, &exec, graph, 0);
    trips = round_trips();
    took = seconds([&] {
        for (int i = 0; i < options.times(100, 2); ++i)
            for (size_t node = 0; node < nodes; ++node)
                if (node % 8 < 5) CU(cuGraphExecKernelNodeSetParams, exec, all[node], &kernel);
    });
    const auto kernels = static_cast<double>(nodes * 5 / 8);
    figure("kernel of an instance changed", took / options.times(100, 2) / kernels * 1e6, "us", "no wait");
    count("round trips for 125 kernels changed", static_cast<double>(round_trips() - trips) / options.times(100, 2), 0);
    CU(cuGraphLaunch, exec, nullptr);
    program.synchronize();
    CU(cuGraphExecDestroy, exec);
    CU(cuGraphDestroy, graph);
    CU(cuMemFree, memory);
}

void memory_growth(const Options& options) {
    Program program;
    auto begin_trips = round_trips();
    program.start();
    program.load();
    program.launch(1);
    count("round trips from cuInit to the first launch", static_cast<double>(round_trips() - begin_trips), 5);
    program.launch(20'000);
    program.synchronize();
    int all = options.times(100'000, 100'000);
    auto before = resident_kib(), workers_before = workers_resident_kib();
    auto trips = round_trips();
    program.launch(all);
    program.synchronize();
    count("round trips of 100,000 launches and a synchronize", static_cast<double>(round_trips() - trips), 1);
    // What may be on its way: at least 2 MiB of records, and on a line with a delay what that line carries (pace.hpp).
    count("client memory grown by them, KiB", static_cast<double>(resident_kib() - before), 8192);
    count("worker memory grown by them, KiB", static_cast<double>(workers_resident_kib() - workers_before), 4096);
}

}  // namespace tnr::bench
