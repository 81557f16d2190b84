// How fast the emulated GPU's processor is: thread instructions (32 for each of a warp) a second and core.
//
//   interpreter_bench [--quick] [--threads N] [KERNEL...]
//
// Each kernel runs once to warm up, then as often as fits half a second (--quick: once), and the best run counts. What
// comes out is compared with the same computation on the host; a wrong result ends the program with status 1.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <numeric>

#include "gpu_server/emulated_gpu/ptx/ptx.hpp"

namespace {

using namespace tnr::ptx;

// Of all threads of this process together, so that a busy machine does not show.
double processor_seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// All of the host's memory is the device's.
class HostMemory : public Memory {
    Range range_of(uint64_t) const override { return {4096, uint64_t{1} << 47}; }
};

struct Bench {
    std::shared_ptr<const Module> module;
    HostMemory memory;
    unsigned threads = 1;
    bool quick = false;
    double seconds = 0;  // of processors, in the last launch

    // Arguments in order, of the very types of the parameters.
    template <class... Arguments>
    Report launch(const char* name, Dim3 grid, Dim3 block, Arguments... arguments) {
        Launch launch;
        launch.module = module.get();
        for (auto& kernel : module->kernels())
            if (kernel.name == name) launch.kernel = kernel.index;
        auto& kernel = module->kernels()[launch.kernel];
        std::vector<std::byte> bytes(kernel.parameter_bytes);
        size_t index = 0;
        (std::memcpy(bytes.data() + kernel.parameters[index++].offset, &arguments, sizeof arguments), ...);
        launch.grid = grid;
        launch.block = block;
        launch.parameters = bytes;
        launch.memory = &memory;
        double began = processor_seconds();
        auto report = run(launch, threads);
        seconds = processor_seconds() - began;
        return report;
    }
};

void wrong(const char* what) {
    std::cerr << "interpreter_bench: wrong result: " << what << '\n';
    std::exit(1);
}

Report fma_loop(Bench& bench) {
    int rounds = bench.quick ? 100 : 20000;
    std::vector<float> out(256);
    auto report = bench.launch("fma_loop", {2}, {128}, out.data(), rounds);
    float expected = 0;
    for (int chain = 0; chain < 4; ++chain) {
        float value = 7.0f + static_cast<float>(chain);
        for (int k = 0; k < rounds; ++k) value = std::fma(value, 0.5f, 1.0f);
        expected += value;
    }
    if (out[7] != expected) wrong("fma_loop");
    return report;
}

Report tiled_product(Bench& bench) {
    unsigned n = bench.quick ? 32 : 128;
    std::vector<float> a(n * n), b(n * n), c(n * n);
    for (unsigned i = 0; i < n * n; ++i) a[i] = static_cast<float>(i % 7), b[i] = static_cast<float>(i % 5);
    auto report = bench.launch("tiled_product", {n / 16, n / 16}, {16, 16}, a.data(), b.data(), c.data(), n);
    for (unsigned i = 0; i < n * n; i += 31) {
        float sum = 0;
        for (unsigned k = 0; k < n; ++k) sum += a[i / n * n + k] * b[k * n + i % n];
        if (c[i] != sum) wrong("tiled_product");
    }
    return report;
}

Report reduction(Bench& bench) {
    std::vector<int> in(bench.quick ? 10000 : 1000000);
    std::iota(in.begin(), in.end(), -300);
    int sum = 0;
    auto report = bench.launch("reduction", {8}, {256}, in.data(), &sum, static_cast<int>(in.size()));
    unsigned expected = 0;
    for (auto value : in) expected += static_cast<unsigned>(value);
    if (static_cast<unsigned>(sum) != expected) wrong("reduction");
    return report;
}

Report scan(Bench& bench) {
    unsigned blocks = bench.quick ? 2 : 64;
    std::vector<int> in(blocks * 256), out(in.size()), expected(in.size());
    std::iota(in.begin(), in.end(), 3);
    auto report = bench.launch("scan", {blocks}, {256}, in.data(), out.data());
    for (size_t first = 0; first < in.size(); first += 256)
        std::partial_sum(in.data() + first, in.data() + first + 256, expected.data() + first);
    if (out != expected) wrong("scan");
    return report;
}

Report divergence(Bench& bench) {
    unsigned blocks = bench.quick ? 1 : 16;
    std::vector<int> out(blocks * 256);
    auto report = bench.launch("divergence", {blocks}, {256}, out.data());
    for (size_t i = 0; i < out.size(); ++i) {
        int steps = 0;
        for (uint64_t value = i + 1; value != 1; ++steps) value = value % 2 ? 3 * value + 1 : value / 2;
        if (out[i] != steps) wrong("divergence");
    }
    return report;
}

Report options(Bench& bench) {
    int n = bench.quick ? 1000 : 50000;
    std::vector<float> prices(static_cast<size_t>(n)), calls(prices.size());
    for (size_t i = 0; i < prices.size(); ++i) prices[i] = 5.0f + static_cast<float>(i % 500) * 0.1f;
    auto report = bench.launch("options", {8}, {128}, prices.data(), calls.data(), n);
    for (size_t i = 0; i < prices.size(); i += 17) {
        double price = prices[i], spread = 0.3 * std::sqrt(2.0);
        double d1 = (std::log(price / 30) + 0.13) / spread;
        auto normal = [](double d) { return 0.5 * std::erfc(-d / std::sqrt(2.0)); };
        double expected = price * normal(d1) - 30 * std::exp(-0.04) * normal(d1 - spread);
        if (std::abs(calls[i] - expected) > 1e-3) wrong("options");
    }
    return report;
}

Report sort(Bench& bench) {
    unsigned blocks = bench.quick ? 1 : 16;
    std::vector<int> values(blocks * 1024);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(i * 7919 % 4099);
    auto expected = values;
    auto report = bench.launch("sort", {blocks}, {512}, values.data());
    for (auto first = expected.begin(); first != expected.end(); first += 1024) std::sort(first, first + 1024);
    if (values != expected) wrong("sort");
    return report;
}

Report vectors(Bench& bench) {
    int n = bench.quick ? 1000 : 100000;
    std::vector<float> in(static_cast<size_t>(n) * 4), out(in.size());
    std::iota(in.begin(), in.end(), 1.0f);
    auto report = bench.launch("vectors", {8}, {256}, in.data(), out.data(), n);
    for (size_t i = 0; i < in.size(); ++i)
        if (out[i] != in[i ^ 3]) wrong("vectors");
    return report;
}

Report transpose(Bench& bench) {
    unsigned n = bench.quick ? 32 : 256;
    std::vector<int> in(n * n), out(in.size());
    std::iota(in.begin(), in.end(), 1);
    auto report = bench.launch("transpose", {n / 16, n / 16}, {16, 16}, in.data(), out.data(), n);
    for (unsigned i = 0; i < n * n; ++i)
        if (out[i] != in[i % n * n + i / n]) wrong("transpose");
    return report;
}

void measure(Bench& bench, const char* name, Report (*kernel)(Bench&)) {
    kernel(bench);
    double best = 1e9, spent = 0;
    Report report;
    do {
        report = kernel(bench);
        best = std::min(best, bench.seconds);
        spent += bench.seconds;
    } while (!bench.quick && spent < 0.5);
    if (report.outcome != Outcome::done) wrong(report.detail.c_str());
    auto instructions = static_cast<double>(report.warp_instructions);
    std::printf("| %-13s | %8.0f | %8.1f |\n", name, instructions * 32 / best * 1e-6, best / instructions * 1e9);
}

struct Row {
    const char* name;
    Report (*kernel)(Bench&);
};
constexpr Row rows[] = {{"fma_loop", fma_loop},
                        {"tiled_product", tiled_product},
                        {"reduction", reduction},
                        {"scan", scan},
                        {"divergence", divergence},
                        {"options", options},
                        {"sort", sort},
                        {"vectors", vectors},
                        {"transpose", transpose}};

}  // namespace

int main(int argc, char** argv) {
    Bench bench;
    std::vector<std::string> wanted;
    for (int k = 1; k < argc; ++k) {
        std::string argument = argv[k];
        if (argument == "--quick") {
            bench.quick = true;
        } else if (argument == "--threads" && k + 1 < argc && std::atoi(argv[k + 1]) > 0) {
            bench.threads = static_cast<unsigned>(std::atoi(argv[++k]));
        } else if (std::ranges::any_of(rows, [&](auto& row) { return row.name == argument; })) {
            wanted.push_back(argument);
        } else {
            std::cerr << "usage: interpreter_bench [--quick] [--threads N] [KERNEL...]\nkernels:";
            for (auto& row : rows) std::cerr << ' ' << row.name;
            std::cerr << '\n';
            return 2;
        }
    }
    std::ifstream file(TNR_BENCH_PTX);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    auto loaded = load(text);
    if (!loaded) {
        std::cerr << "interpreter_bench: " << loaded.error().what << '\n';
        return 1;
    }
    bench.module = *loaded;
    std::printf("| kernel        | M thread instructions/s/core | ns a warp instruction |\n|---|---:|---:|\n");
    for (auto& row : rows)
        if (wanted.empty() || std::ranges::count(wanted, row.name)) measure(bench, row.name, row.kernel);
}
