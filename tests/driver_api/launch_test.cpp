// Launches: arguments, shapes and limits.
#include <unistd.h>

#include <cstdio>
#include <numeric>

#include "gpu.hpp"

using namespace driver_api;

TEST_CASE("arguments of every size arrive in their places", "[launch]") {
    Gpu gpu;
    Module module;
    Memory out(6 * sizeof(int));
    char a = -3;
    double b = 1e6;
    short c = -4000;
    float d = 2.5f;
    long long e = 77ll << 32;
    unsigned char f = 200;
    CU_OK(launch(module.function("mixed"), nullptr, a, b, c, out.address, d, e, f));
    CHECK(out.read<int>(6) == std::vector<int>{-3, 1'000'000, -4000, 2, 77, 200});
}

namespace {
struct Parcel {
    char tag;
    CUdeviceptr out;
    double amount;
    short parts[3];
};
struct Large {
    int values[1000];
};
}  // namespace

TEST_CASE("structs are passed by value with the pointers in them", "[launch]") {
    Gpu gpu;
    Module module;
    Memory out(sizeof(int));
    CU_OK(launch(module.function("take_parcel"), nullptr, Parcel{5, out.address, 100.5, {1000, -20, 3}}));
    CHECK(out.first<int>() == 5 + 100 + 1000 - 20 + 3);
}

TEST_CASE("nearly four KiB of arguments arrive", "[launch]") {
    Gpu gpu;
    Module module;
    Memory out(sizeof(int));
    Large large{};
    std::iota(large.values, large.values + 1000, 1);
    CU_OK(launch(module.function("sum_large"), nullptr, large, out.address));
    CHECK(out.first<int>() == 500'500);
}

TEST_CASE("arguments may change as soon as the launch has returned", "[launch]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory out(sizeof(int));
    int value = 1;
    void* arguments[] = {&out.address, &value};
    {
        Gate gate(stream);
        CU_OK(cu.cuLaunchKernel(module.function("store"), 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
        value = 2;
        arguments[0] = nullptr;
    }
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(out.first<int>() == 1);
}

TEST_CASE("arguments can be packed into one buffer", "[launch]") {
    Gpu gpu;
    Module module;
    Memory out(sizeof(int));
    struct {
        CUdeviceptr out;
        int value;
    } packed{out.address, 88};
    size_t size = 12;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    CU_OK(cu.cuLaunchKernel(module.function("store"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
    packed.value = 99;
    CHECK(out.first<int>() == 88);
    void* arguments[] = {&packed.out, &packed.value};
    CU_CHECK(cu.cuLaunchKernel(module.function("store"), 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, extra),
             CUDA_ERROR_INVALID_VALUE);  // one way or the other
}

TEST_CASE("of the last parameter in a buffer the end may be missing", "[launch]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory out(sizeof(int));
    struct {
        CUdeviceptr out;
        int count;
        int values[3];
    } begun{out.address, 3, {1, 20, 300}};
    size_t size = sizeof begun;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &begun, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    auto sum = module.function("sum_batch");
    CU_OK(cu.cuLaunchKernel(sum, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, extra));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(out.first<int>() == 321);
    begun.values[0] = 2;
    CU_OK(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU_OK(cu.cuLaunchKernel(sum, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, extra));
    CUgraph captured = nullptr;
    CU_OK(cu.cuStreamEndCapture(stream, &captured));
    CUgraphExec exec = nullptr;
    CU_OK(cu.cuGraphInstantiate(&exec, captured, 0));
    CU_OK(cu.cuGraphLaunch(exec, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(out.first<int>() == 322);
    CU_OK(cu.cuGraphExecDestroy(exec));
    CU_OK(cu.cuGraphDestroy(captured));
    size = 0;
    CU_CHECK(cu.cuLaunchKernel(sum, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, extra), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a kernel without parameters needs no arguments", "[launch]") {
    Gpu gpu;
    Module module;
    CU_OK(cu.cuLaunchKernel(module.function("nothing"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    CU_OK(cu.cuCtxSynchronize());
}

TEST_CASE("every block and thread of a launch runs exactly once", "[launch]") {
    Gpu gpu;
    Module module;
    struct {
        unsigned grid[3], block[3];
    } const shapes[] = {{{1, 1, 1}, {1, 1, 1}},
                        {{3, 2, 4}, {5, 3, 2}},
                        {{7, 1, 1}, {33, 1, 1}},
                        {{1, 5, 1}, {1, 1, 64}},
                        {{2, 1, 2}, {32, 32, 1}}};
    for (auto& shape : shapes) {
        unsigned blocks = shape.grid[0] * shape.grid[1] * shape.grid[2];
        unsigned threads = shape.block[0] * shape.block[1] * shape.block[2];
        Memory out(std::vector<unsigned>(blocks * threads, 0));
        void* arguments[] = {&out.address};
        CU_OK(cu.cuLaunchKernel(module.function("shape"), shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0],
                                shape.block[1], shape.block[2], 0, nullptr, arguments, nullptr));
        std::vector<unsigned> expected(blocks * threads);
        for (unsigned i = 0; i < expected.size(); ++i) expected[i] = i / threads * 1000 + i % threads + 1;
        CHECK(out.read<unsigned>(expected.size()) == expected);
    }
}

TEST_CASE("launches beyond the limits are refused at the call", "[launch]") {
    Gpu gpu;
    Module module;
    CUfunction function = module.function("nothing");
    auto try_launch = [&](std::initializer_list<unsigned> grid, std::initializer_list<unsigned> block,
                          unsigned shared) {
        const unsigned *g = grid.begin(), *b = block.begin();
        return cu.cuLaunchKernel(function, g[0], g[1], g[2], b[0], b[1], b[2], shared, nullptr, nullptr, nullptr);
    };
    CU_CHECK(try_launch({0, 1, 1}, {1, 1, 1}, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(try_launch({1, 0, 1}, {1, 1, 1}, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(try_launch({1, 1, 1}, {0, 1, 1}, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(try_launch({1, 1, 1}, {1, 1, 0}, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(try_launch({1, 65'536, 1}, {1, 1, 1}, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(try_launch({1, 1, 65'536}, {1, 1, 1}, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(try_launch({1u << 31, 1, 1}, {1, 1, 1}, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(try_launch({1, 1, 1}, {1025, 1, 1}, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(try_launch({1, 1, 1}, {1, 1, 65}, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(try_launch({1, 1, 1}, {64, 32, 1}, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(try_launch({1, 1, 1}, {1, 1, 1}, 1 << 20), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(try_launch({1, 1, 1}, {1024, 1, 1}, 0), CUDA_SUCCESS);  // nothing above has broken anything
    CU_OK(cu.cuCtxSynchronize());
}

TEST_CASE("static and dynamic shared memory share one limit", "[launch]") {
    Gpu gpu;
    Module module;
    Memory out(256 * sizeof(int));
    CUfunction function = module.function("use_static_shared");  // has 1024 bytes of its own
    CU_OK(launch_shaped(function, 1, 256, (48 << 10) - 1024, nullptr, out.address));
    CHECK(out.read<int>(1)[0] == 255);
    CU_CHECK(launch_shaped(function, 1, 256, (48 << 10) - 1020, nullptr, out.address), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a launch with more threads than the kernel was compiled for is refused", "[launch]") {
    Gpu gpu;
    Module module;
    Memory out(128 * sizeof(int));
    CU_OK(launch_shaped(module.function("at_most_64_threads"), 1, 64, 0, nullptr, out.address));
    CU_CHECK_EITHER(launch_shaped(module.function("at_most_64_threads"), 1, 65, 0, nullptr, out.address),
                    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

TEST_CASE("a launch of no function is refused", "[launch]") {
    Gpu gpu;
    CU_CHECK_EITHER(cu.cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
                    CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a module's kernels are launched in its own context alone", "[launch]") {
    Gpu gpu;
    Module module;
    Memory out(std::vector<int>{0});
    auto store = module.function("store");
    CUcontext other = nullptr;
    CU_OK(cu.cuCtxCreate(&other, nullptr, 0, gpu.device));
    CU_CHECK(launch(store, nullptr, out.address, 1), CUDA_ERROR_INVALID_HANDLE);
    CU_OK(cu.cuCtxSynchronize());
    CU_OK(cu.cuCtxDestroy(other));
    CU_OK(launch(store, nullptr, out.address, 2));
    CHECK(out.first<int>() == 2);
}

TEST_CASE("a launch described by a struct takes its attributes", "[launch]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory out(sizeof(int)), arrived(std::vector<int>{0}), met(4 * sizeof(int));
    int value = 66;
    void* arguments[] = {&out.address, &value};
    CUlaunchAttribute attributes[2] = {};
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_IGNORE;
    attributes[1].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    CU_OK(cu.cuLaunchKernelEx(&config, module.function("store"), arguments, nullptr));
    config.attrs = attributes;
    config.numAttrs = 2;
    CU_OK(cu.cuLaunchKernelEx(&config, module.function("store"), arguments, nullptr));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(out.first<int>() == 66);

    attributes[0].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[0].value.cooperative = 1;
    config.numAttrs = 1;
    config.gridDimX = 4;
    void* meeting[] = {&arrived.address, &met.address};
    CU_OK(cu.cuLaunchKernelEx(&config, module.function("meet"), meeting, nullptr));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(met.read<int>(4) == std::vector<int>{1, 2, 3, 4});

    attributes[0].id = static_cast<CUlaunchAttributeID>(-1);
    CU_CHECK(cu.cuLaunchKernelEx(&config, module.function("meet"), meeting, nullptr), CUDA_ERROR_INVALID_VALUE);
    config.numAttrs = 0;
    config.blockDimX = 1025;
    CU_CHECK(cu.cuLaunchKernelEx(&config, module.function("store"), arguments, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuLaunchKernelEx(nullptr, module.function("store"), arguments, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("the blocks of a cooperative launch run together", "[launch]") {
    Gpu gpu;
    Module module;
    CUfunction meet = module.function("meet");
    int per_processor = 0;
    CU_OK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, meet, 32, 0));
    int processors = gpu.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    Memory arrived(std::vector<int>{0}), out(8 * sizeof(int));
    void* arguments[] = {&arrived.address, &out.address};
    CU_OK(cu.cuLaunchCooperativeKernel(meet, 8, 1, 1, 32, 1, 1, 0, nullptr, arguments));
    // 8 blocks of 32 threads, each of which arrives: every block saw at least the grid's size.
    CHECK(out.read<int>(8) == std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8});
    unsigned too_many = unsigned(per_processor * processors) + 1;
    CU_CHECK(cu.cuLaunchCooperativeKernel(meet, too_many, 1, 1, 32, 1, 1, 0, nullptr, arguments),
             CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    // Of a block with too much shared memory none fits.
    unsigned too_much = unsigned(gpu.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)) + 1;
    CU_CHECK(cu.cuLaunchCooperativeKernel(meet, 1, 1, 1, 32, 1, 1, too_much, nullptr, arguments),
             CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    CU_CHECK(cu.cuLaunchKernel(meet, 1, 1, 1, 32, 1, 1, too_much, nullptr, arguments, nullptr),
             CUDA_ERROR_INVALID_VALUE);
}

// What comes out of standard output while `run` runs.
template <class Run>
static std::string printed_by(Run&& run) {
    std::fflush(stdout);
    char path[] = "/tmp/driver_api_printf.XXXXXX";
    int file = mkstemp(path);
    REQUIRE(file >= 0);
    unlink(path);
    int kept = dup(STDOUT_FILENO);
    dup2(file, STDOUT_FILENO);
    run();
    std::fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    char text[100] = {};
    CHECK(pread(file, text, sizeof(text) - 1, 0) > 0);
    close(file);
    return text;
}

TEST_CASE("the device's printf is written to standard output by the next synchronisation", "[launch]") {
    Gpu gpu;
    Module module;
    Stream stream;
    CUfunction say = module.function("say");
    CUresult launched = CUDA_ERROR_UNKNOWN, waited = CUDA_ERROR_UNKNOWN;
    auto text = printed_by([&] {
        launched = launch(say, nullptr, 42);
        waited = cu.cuCtxSynchronize();
    });
    CU_OK(launched);
    CU_OK(waited);
    CHECK(text == "the device says 42\n");
    // To know that the kernel is done is not enough.
    text = printed_by([&] {
        launched = launch(say, stream, 43);
        while (cu.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) continue;
        waited = cu.cuStreamSynchronize(stream);
    });
    CU_OK(launched);
    CU_OK(waited);
    CHECK(text == "the device says 43\n");
}

// Its kernel stores how many cycles went by, and how many ns at least and at most.
TEST_CASE("a kernel's clock counts at the rate that the device names", "[launch][emulated]") {
    Gpu gpu;
    Module module(R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 out)
{
    .reg .b64 %rd<10>;
    .reg .pred %p;
    ld.param.u64 %rd1, [out];
    mov.u64 %rd2, %globaltimer;
    mov.u64 %rd3, %clock64;
    mov.u64 %rd4, %globaltimer;
AGAIN:
    mov.u64 %rd5, %globaltimer;
    sub.u64 %rd6, %rd5, %rd4;
    setp.lt.u64 %p, %rd6, 2000000;
    @%p bra AGAIN;
    mov.u64 %rd7, %clock64;
    mov.u64 %rd8, %globaltimer;
    sub.u64 %rd9, %rd7, %rd3;
    st.global.u64 [%rd1], %rd9;
    st.global.u64 [%rd1+8], %rd6;
    sub.u64 %rd9, %rd8, %rd2;
    st.global.u64 [%rd1+16], %rd9;
    ret;
}
)");
    Memory out(3 * sizeof(uint64_t));
    CU_OK(launch(module.function("spin"), nullptr, out.address));
    auto seen = out.read<uint64_t>(3);
    double ghz = gpu.attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1e6, cycles = static_cast<double>(seen[0]);
    // Two clocks of the machine are compared; one of them may be slewed a little.
    CHECK(cycles >= 0.99 * ghz * static_cast<double>(seen[1]));
    CHECK(cycles <= 1.01 * ghz * static_cast<double>(seen[2]));
}
