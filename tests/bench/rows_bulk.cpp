// What is large or happens once: copies, the claim, code.
#include <elf.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/bench/rows.hpp"

namespace tnr::bench {

static long page_faults() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

// A page that is taken from the kernel and given back for each piece costs as much as a third of a copy's time: 256 a MiB.
static constexpr double faults_per_mib_max = 48;

// Raw TCP in the middle, for a machine's speed changes within seconds. The faults are those of the middle one of the copies:
// where threads wait for a core, buffers pile up as never before and the heap grows once more, in some copy or other.
template <class Copy>
static void against_tcp(const Options& options, const std::string& what, size_t bytes, bool up, Copy&& copy) {
    Times ours;
    int runs = options.times(3, 20);
    for (int i = 0; i < runs; ++i) copy();  // by then the heap has grown
    std::vector<long> faults;
    for (int i = 0; i < runs; ++i) {
        auto before = page_faults();
        ours.add(1, copy);
        faults.push_back(page_faults() - before);
    }
    std::nth_element(faults.begin(), faults.begin() + runs / 2, faults.end());
    auto raw = raw_tcp_bytes_per_s(options.way, bytes, up);
    ours.add(options.times(2, 1), copy);
    auto rate = static_cast<double>(bytes) / ours.median();
    figure(what, rate / 1e9, "GB/s");
    figure(what + " / raw TCP", rate / raw, "x", ">= 0.9");
    auto mib = static_cast<double>(bytes >> 20);
    // A long line needs more buffers than are kept.
    if (options.counts_port == 0)
        count(what + ", page faults per MiB", static_cast<double>(faults[runs / 2]) / mib, faults_per_mib_max);
    figure(std::string("raw TCP ") + (up ? "up" : "down"), raw / 1e9, "GB/s");
}

void copies(const Options& options) {
    Program program;
    program.start();
    size_t bytes = static_cast<size_t>(options.times(256, 4)) << 20;
    auto size = std::to_string(bytes >> 20) + " MiB ";
    std::vector<std::byte> data(bytes, std::byte{1});
    CUdeviceptr target = 0;
    CU(cuMemAlloc, &target, bytes);
    against_tcp(options, size + "host to device", bytes, true, [&] { CU(cuMemcpyHtoD, target, data.data(), bytes); });
    against_tcp(options, size + "async pageable to device", bytes, true, [&] {
        CU(cuMemcpyHtoDAsync, target, data.data(), bytes, nullptr);
        CU(cuStreamSynchronize, nullptr);
    });
    against_tcp(options, size + "device to host", bytes, false, [&] { CU(cuMemcpyDtoH, data.data(), target, bytes); });
    CU(cuMemFree, target);
}

// The worker is warm by now or will be in a moment: cuInit has asked about the GPU.
void claim(const Options&) {
    CU(cuInit, 0);
    CUdevice device = 0;
    CU(cuDeviceGet, &device, 0);
    Program program;
    auto took = seconds([&] {
        program.start();
        size_t free = 0, total = 0;
        CU(cuMemGetInfo, &free, &total);
    });
    figure("claim to first answer", took * 1e3, "ms", "<= 20 ms on loopback");
}

// A cubin of so many bytes, as far as its ELF header tells, with contents that compress about as machine code does (to a
// third): runs of numbers with a few random bytes among zeros. The mark is null_driver.cpp's.
static std::vector<std::byte> large_cubin(size_t bytes, uint64_t seed) {
    std::vector<std::byte> image(bytes);
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    std::memcpy(header.e_ident + 9, "BENCH", 5);
    header.e_machine = 190;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = 1;
    header.e_shoff = bytes - sizeof(Elf64_Shdr);
    uint64_t random = seed;
    for (size_t at = sizeof header; at + 16 < header.e_shoff; at += 16) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        auto value = random >> 24;
        std::memcpy(image.data() + at, &value, 5);
    }
    std::memcpy(image.data(), &header, sizeof header);
    return image;
}

// A cuBLASLt carries as much. The program starts, loads it and gets the first kernel's result.
void code(const Options& options) {
    auto bytes = static_cast<size_t>(options.times(400, 4)) * 1'000'000;
    auto image = large_cubin(bytes, options.seed);
    Program program;
    long before_loading = 0;
    auto took = seconds([&] {
        program.start();
        before_loading = round_trips();
        CU(cuModuleLoadData, &program.module, image.data());
        CU(cuModuleGetFunction, &program.nothing, program.module, "nothing");
        program.launch(1);
        program.synchronize();
    });
    figure("cuInit to the first launch with " + std::to_string(bytes / 1'000'000) + " MB of code", took, "s",
           "second run <= 1 s over local");
    // One for the answer of the load, one to synchronize; in a first run one to hear that the server lacks the code.
    count("round trips from loading to the first result", static_cast<double>(round_trips() - before_loading), 3);
}

}  // namespace tnr::bench
