// See gpu.hpp.
#include "gpu.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace driver_api {

using namespace std::string_literals;

std::string name_of(CUresult result) {
    const char* name = nullptr;
    if (cu.cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) return "error " + std::to_string(result);
    return name;
}

namespace {
constexpr const char* fresh_process_variable = "TNR_TEST_FRESH_PROCESS";
// That it ran at all: a name Catch2 finds no test for ends in success, too, in some of its versions.
constexpr const char* begun = "the test begins in a process of its own\n";

struct Ended {
    int status = 0;
    std::string output;
};

// Not by fork(): between that and exec() ThreadSanitizer's child can wait for a lock of a thread that it does not have.
Ended start_again_for(const std::string& test_case) {
    std::array<int, 2> ends{};
    REQUIRE(pipe(ends.data()) == 0);
    posix_spawn_file_actions_t actions{};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    std::string name = "driver_api_tests", filter = '"' + test_case + '"', fresh = fresh_process_variable + "=1"s;
    std::vector<char*> environment;
    for (char** variable = environ; *variable; ++variable) environment.push_back(*variable);
    environment.insert(environment.end(), {fresh.data(), nullptr});
    const std::array<char*, 3> arguments{name.data(), filter.data(), nullptr};
    pid_t child = -1;
    REQUIRE(posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments.data(), environment.data()) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    Ended ended;
    std::array<char, 4096> buffer{};
    for (ssize_t got; (got = read(ends[0], buffer.data(), buffer.size())) > 0;)
        ended.output.append(buffer.data(), size_t(got));
    close(ends[0]);
    REQUIRE(waitpid(child, &ended.status, 0) == child);
    return ended;
}
}  // namespace

bool begins_in_fresh_process() {
    if (!std::getenv(fresh_process_variable)) return false;
    if (write(STDOUT_FILENO, begun, std::strlen(begun)) < 0) _exit(1);
    return true;
}

void run_in_fresh_process(const char* test_case) {
    Ended ended = start_again_for(test_case);
    INFO(test_case << " wrote:\n" << ended.output);
    CHECK(ended.output.find(begun) != std::string::npos);
    CHECK(WIFEXITED(ended.status));
    CHECK((WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == 0));
}

Gpu::Gpu(int ordinal) {
    CU_OK(cu.cuInit(0));
    CU_OK(cu.cuDeviceGet(&device, ordinal));
    CU_OK(cu.cuDevicePrimaryCtxRetain(&context, device));
    CU_OK(cu.cuCtxSetCurrent(context));
}

Gpu::~Gpu() {
    cu.cuCtxSetCurrent(nullptr);
    cu.cuDevicePrimaryCtxRelease(device);
}

int Gpu::attribute(CUdevice_attribute which) const {
    int value = -1;
    CU_OK(cu.cuDeviceGetAttribute(&value, which, device));
    return value;
}

Memory::Memory(size_t bytes) {
    CU_OK(cu.cuMemAlloc(&address, bytes));
    CU_OK(cu.cuMemsetD8(address, 0xA5, bytes));  // what no right answer consists of
}

Memory::~Memory() {
    cu.cuMemFree(address);
}

}  // namespace driver_api
