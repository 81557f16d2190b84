// See program.hpp.
#include "tests/bench/program.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tnr::bench {

const char* const empty_kernel = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry nothing(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) { ret; }
)";

void check(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return;
    std::fprintf(stderr, "remoting_bench: %s failed: %d\n", what, static_cast<int>(result));
    std::_Exit(125);
}

static bool some_too_many = false;
bool too_many() {
    return some_too_many;
}

static void print(const nlohmann::json& line) {
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
}

void figure(const std::string& what, double value, const std::string& unit, const std::string& aim) {
    nlohmann::json line{{"figure", what}, {"value", value}, {"unit", unit}};
    if (!aim.empty()) line["aim"] = aim;
    print(line);
}

void count(const std::string& what, double value, double limit) {
    some_too_many |= value > limit;
    print({{"figure", what}, {"value", value}, {"unit", ""}, {"limit", limit}, {"too_many", value > limit}});
}

long round_trips() {
    static auto* count = reinterpret_cast<unsigned long long (*)()>(dlsym(test::driver_library(), "cuTnrRoundTrips"));
    return count ? static_cast<long>(count()) : 0;
}

long resident_kib(const std::string& process) {
    std::ifstream status("/proc/" + process + "/status");
    for (std::string line; std::getline(status, line);)
        if (line.rfind("VmRSS:", 0) == 0) return std::atol(line.c_str() + 6);
    return 0;
}

// Only growth is looked at, and only ours works meanwhile.
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

Passed passed(const Options& options) {
    Passed counts;
    if (options.counts_port == 0) return counts;
    int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(options.counts_port));
    inet_pton(AF_INET, options.way.host.c_str(), &address.sin_addr);
    char line[128] = {};
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
        (void)!::recv(fd, line, sizeof line - 1, MSG_WAITALL);
    ::close(fd);
    std::sscanf(line, "up %lf down %lf answers %lf", &counts.up, &counts.down, &counts.answers);
    return counts;
}

void Program::start(int ordinal) {
    CU(cuInit, 0);
    CU(cuDeviceGet, &device, ordinal);
    CU(cuDevicePrimaryCtxRetain, &context, device);
    CU(cuCtxSetCurrent, context);
}

void Program::load() {
    CU(cuModuleLoadData, &module, empty_kernel);
    CU(cuModuleGetFunction, &nothing, module, "nothing");
}

void Program::launch_of(CUfunction function, CUstream stream) {
    CUdeviceptr a = 0, b = 0, c = 0;
    unsigned n = 0;
    void* parameters[] = {&a, &b, &c, &n};
    CU(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
}

void Program::launch(int times, CUstream stream) {
    for (int i = 0; i < times; ++i) launch_of(nothing, stream);
}

void Program::synchronize() {
    CU(cuCtxSynchronize, );
}

Program warm_program() {
    Program program;
    program.start();
    program.load();
    program.launch(20'000);
    program.synchronize();
    return program;
}

}  // namespace tnr::bench
