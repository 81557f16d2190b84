// A CUDA program that notices every command that is lost or done twice: `resume_program ROUNDS`. Whoever runs it breaks
// its connection meanwhile. Prints "round N" after each round, and "right" at the end. With `leave` as second argument it
// returns from main() at once after the last round, when a line has come on stdin.
//
// Each launch adds to a counter on the GPU and each host function to one here; copies of all sizes and kinds go up and
// down again and are compared.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "tests/support/cuda_driver.hpp"

namespace {

constexpr const char* code = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry count(.param .u64 where) {
    .reg .b64 %rd<2>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [where];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r2, %r1, 1;
    st.global.u32 [%rd1], %r2;
    ret;
}
)";

constexpr int launches_per_round = 200, host_functions_per_round = 10;
constexpr size_t bytes_max = size_t{7} << 20;

void check(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return;
    std::printf("%s failed: %d\n", what, result);
    std::exit(3);
}

struct World {
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction count = nullptr;
    CUstream stream = nullptr;
    CUdeviceptr counter = 0, memory = 0;
    std::byte* pinned = nullptr;
    std::vector<std::byte> pageable = std::vector<std::byte>(bytes_max);
    std::mt19937_64 random{1};
    unsigned counted_here = 0;  // by host functions: one at a time

    World() {
        CALL(cuInit, 0);
        CALL(cuDevicePrimaryCtxRetain, &context, 0);
        CALL(cuCtxSetCurrent, context);
        CALL(cuModuleLoadData, &module, code);
        CALL(cuModuleGetFunction, &count, module, "count");
        CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
        CALL(cuMemAlloc, &counter, 4);
        CALL(cuMemsetD32, counter, 0, 1);
        CALL(cuMemAlloc, &memory, bytes_max);
        CALL(cuMemHostAlloc, reinterpret_cast<void**>(&pinned), bytes_max, 0);
        CALL(cuCtxSynchronize);
    }

    std::vector<std::byte> pattern(size_t bytes) {
        std::vector<std::byte> data(bytes);
        for (size_t at = 0; at < bytes; at += 8) {
            uint64_t value = random();
            std::memcpy(data.data() + at, &value, std::min<size_t>(8, bytes - at));
        }
        return data;
    }
    static void compare(const std::vector<std::byte>& wanted, const std::byte* found, const char* what) {
        if (std::memcmp(wanted.data(), found, wanted.size()) == 0) return;
        std::printf("%s of %zu bytes brought something else\n", what, wanted.size());
        std::exit(4);
    }

    void copy_and_wait(size_t bytes) {
        auto data = pattern(bytes);
        auto sent = data;
        CALL(cuMemcpyHtoD, memory, sent.data(), bytes);
        std::memset(sent.data(), 0, bytes);  // the call has returned: the memory is the program's again
        CALL(cuMemcpyDtoH, pageable.data(), memory, bytes);
        compare(data, pageable.data(), "a waiting copy");
    }
    void copy_pinned(size_t bytes) {
        auto data = pattern(bytes);
        std::memcpy(pinned, data.data(), bytes);
        CALL(cuMemcpyHtoDAsync, memory, pinned, bytes, stream);
        CALL(cuStreamSynchronize, stream);
        std::memset(pinned, 0, bytes);
        CALL(cuMemcpyDtoHAsync, pinned, memory, bytes, stream);
        CALL(cuStreamSynchronize, stream);
        compare(data, pinned, "a pinned copy");
    }
    void launch() {
        static auto launch =
            reinterpret_cast<decltype(&cuLaunchKernel)>(dlsym(tnr::test::driver_library(), "cuLaunchKernel"));
        void* arguments[] = {&counter};
        for (int i = 0; i < launches_per_round; ++i)
            check(launch(count, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr), "cuLaunchKernel");
    }
    void call_back() {
        auto add = [](void* data) { ++*static_cast<unsigned*>(data); };
        for (int i = 0; i < host_functions_per_round; ++i) CALL(cuLaunchHostFunc, stream, add, &counted_here);
    }
    unsigned counted_there() {
        unsigned value = 0;
        CALL(cuMemcpyDtoH, &value, counter, sizeof value);
        return value;
    }
};

}  // namespace

int main(int argc, char** argv) {
    int rounds = argc > 1 ? std::atoi(argv[1]) : 10;
    World world;
    for (int round = 1; round <= rounds; ++round) {
        world.launch();
        world.copy_and_wait(1 + world.random() % (size_t{256} << 10));
        world.call_back();
        world.copy_pinned(1 + world.random() % (size_t{2} << 20));
        if (round % 4 == 0) world.copy_and_wait(bytes_max - world.random() % 1000);
        world.launch();
        CALL(cuStreamSynchronize, world.stream);
        std::printf("round %d\n", round);
        std::fflush(stdout);
    }
    if (argc > 2 && std::strcmp(argv[2], "leave") == 0) {
        world.launch();
        std::getchar();
        return 0;
    }
    auto there = world.counted_there();
    auto launched = static_cast<unsigned>(2 * launches_per_round * rounds);
    auto called = static_cast<unsigned>(host_functions_per_round * rounds);
    bool right = there == launched && world.counted_here == called;
    std::printf("%s: %u of %u launches, %u of %u host functions\n", right ? "right" : "wrong", there, launched,
                world.counted_here, called);
    return right ? 0 : 4;
}
