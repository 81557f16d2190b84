// What waiting and launching cost, in what can be counted: round trips, records, wake-ups, lookups, copies of parameters. Seen
// from inside the client library, beside a server (with_server.py).
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cuda_calls.hpp"
#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/stats.hpp"
#include "gpu_client/cuda/thread_state.hpp"
#include "tests/gpu_client/cuda/costs.hpp"

using namespace tnr;
using namespace tnr::cuda;

namespace {

constexpr size_t parameter_bytes = 9000;  // a batch with such a launch is large enough to become a message itself

const char* const code = R"(.version 8.1
.target sm_75
.address_size 64
.visible .entry takes_much(.param .align 8 .b8 much[9000]) { ret; }
)";

// Copies of at least `parameter_bytes` that this thread has made while it counted.
thread_local bool counts_copies = false;
thread_local int copies = 0;

void note_copy(size_t bytes) {
    if (counts_copies && bytes >= parameter_bytes) ++copies;
}

void move_bytes(void* to, const void* from, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from) >= bytes) {
        asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
        return;
    }
    auto* last_to = static_cast<char*>(to) + bytes - 1;
    auto* last_from = static_cast<const char*>(from) + bytes - 1;
    asm volatile("std\n rep movsb\n cld" : "+D"(last_to), "+S"(last_from), "+c"(bytes) : : "memory");
}

}  // namespace

// The C library's are not used in this program: everything that it copies is counted.
extern "C" void* memcpy(void* to, const void* from, size_t bytes) {
    note_copy(bytes);
    move_bytes(to, from, bytes);
    return to;
}
extern "C" void* memmove(void* to, const void* from, size_t bytes) {
    note_copy(bytes);
    move_bytes(to, from, bytes);
    return to;
}

namespace {

template <class Work>
int copies_of(Work&& work) {
    copies = 0;
    counts_copies = true;
    work();
    counts_copies = false;
    return copies;
}

class Program {
public:
    Program() {
        OK(cuInit(0));
        OK(cuDevicePrimaryCtxRetain(&context_, 0));
        OK(cuCtxSetCurrent(context_));
        OK(cuModuleLoadData(&module_, code));
        OK(cuModuleGetFunction(&function_, module_, "takes_much"));
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        // What grows once has grown.
        for (int i = 0; i < 500; ++i) OK(launch());
        OK(cuStreamSynchronize(stream));
    }
    ~Program() {
        cuEventDestroy_v2(event);
        cuStreamDestroy_v2(stream);
        cuModuleUnload(module_);
        cuDevicePrimaryCtxRelease_v2(0);
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    CUresult launch() {
        void* parameters[] = {much_};
        return cuLaunchKernel(function_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
    }

    CUstream stream = nullptr;
    CUevent event = nullptr;

private:
    CUcontext context_ = nullptr;
    CUmodule module_ = nullptr;
    CUfunction function_ = nullptr;
    char much_[parameter_bytes] = {};
};

// How often threads of the library that are not ZeroMQ's have gone to sleep.
long naps() {
    long sum = 0;
    for (auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name, line;
        std::getline(std::ifstream(thread.path() / "comm"), name);
        if (name != "tnr") continue;
        std::ifstream status(thread.path() / "status");
        while (std::getline(status, line))
            if (line.starts_with("voluntary_ctxt_switches:")) sum += std::stol(line.substr(line.find(':') + 1));
    }
    return sum;
}

}  // namespace

TEST_CASE("a question that is answered \"not ready\" is one record, and later ones are none", "[costs]") {
    Program program;
    bool of_stream = GENERATE(false, true);
    auto ask = [&] { return of_stream ? cuStreamQuery(program.stream) : cuEventQuery(program.event); };
    Hold hold(program.stream);
    OK(cuEventRecord(program.event, program.stream));
    hold.wait_until_reached();

    auto first = cost_of([&] { CHECK(ask() == CUDA_ERROR_NOT_READY); });
    CHECK(first.round_trips == 1);
    CHECK(first.records == 1);
    auto later = cost_of([&] {
        for (int i = 0; i < 1000; ++i)
            if (ask() != CUDA_ERROR_NOT_READY) FAIL("ready behind a host function that has not returned");
    });
    CHECK(later.round_trips == 0);
    CHECK(later.records == 0);

    hold.open();
    auto last = cost_of([&] {
        while (ask() == CUDA_ERROR_NOT_READY) continue;
    });
    CHECK(last.round_trips <= 1);
}

TEST_CASE("a program that waits for each launch is left alone by the thread that sends for others", "[costs]") {
    Program program;
    // How long it took: on a busy machine longer than it should.
    auto wait_for_launches = [&](std::chrono::milliseconds time) {
        const auto begin = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() < begin + time)
            if (program.launch() != CUDA_SUCCESS || cuStreamSynchronize(program.stream) != CUDA_SUCCESS)
                FAIL("it failed");
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    wait_for_launches(std::chrono::milliseconds(20));  // by then the naps are as long as they get
    long before = naps();
    auto seconds = wait_for_launches(std::chrono::milliseconds(500));
    // 780 naps of 1.28 ms fit into a second, and three times as many where the machine is so busy that some find something
    // unsent. Naps of 160 µs would be 6,000.
    CHECK(static_cast<double>(naps() - before) / seconds <= 3000);
}

TEST_CASE("a launch judges its context and looks up its device once", "[costs]") {
    Program program;
    auto before = lookups;
    OK(program.launch());
    CHECK(lookups.contexts - before.contexts == 1);
    CHECK(lookups.devices - before.devices == 1);
    OK(cuStreamSynchronize(program.stream));
}

TEST_CASE("parameters are copied twice: together, and into the batch that travels", "[costs]") {
    Program program;
    CHECK(copies_of([&] { OK(program.launch()); }) == 2);
    // The batch itself becomes the message.
    OK(program.launch());
    OK(program.launch());
    CHECK(copies_of([&] { OK(cuStreamSynchronize(program.stream)); }) == 0);
}

// Memory that is taken from the kernel and given back for each piece costs 256 page faults a MiB.
TEST_CASE("copies of pageable memory use the same memory again", "[costs]") {
    Program program;
    constexpr size_t mib = 64, bytes = mib << 20;
    CUdeviceptr device = 0;
    OK(cuMemAlloc_v2(&device, bytes));
    // Not by way of malloc: what it keeps depends on what the program has freed.
    auto* host = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    REQUIRE(host != MAP_FAILED);
    auto faults_per_mib = [&](auto&& copy) {
        constexpr int runs = 3;
        auto faults = [] {
            rusage usage{};
            ::getrusage(RUSAGE_SELF, &usage);
            return usage.ru_minflt;
        };
        for (int i = 0; i < runs; ++i) OK(copy());  // by then the heap has grown
        auto before = faults();
        for (int i = 0; i < runs; ++i) OK(copy());
        return static_cast<double>(faults() - before) / (runs * mib);
    };
    constexpr double few = 24;
    CHECK(faults_per_mib([&] { return cuMemcpyDtoH_v2(host, device, bytes); }) < few);
    CHECK(faults_per_mib([&] { return cuMemcpyHtoD_v2(device, host, bytes); }) < few);
    CHECK(faults_per_mib([&] {
              auto result = cuMemcpyHtoDAsync_v2(device, host, bytes, program.stream);
              return result == CUDA_SUCCESS ? cuStreamSynchronize(program.stream) : result;
          }) < few);
    // Copied, not lent.
    CHECK(faults_per_mib([&] {
              auto result = CUDA_SUCCESS;
              for (size_t at = 0; at < bytes && result == CUDA_SUCCESS; at += 1 << 20)
                  result = cuMemcpyHtoD_v2(device + at, static_cast<char*>(host) + at, 1 << 20);
              return result;
          }) < few);
    ::munmap(host, bytes);
    OK(cuMemFree_v2(device));
}
