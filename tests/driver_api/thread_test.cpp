// Several host threads at once.
#include <atomic>
#include <thread>

#include "gpu.hpp"

using namespace driver_api;

namespace {
// Catch's macros are for one thread: workers report through this.
class Workers {
public:
    template <class Body>
    void start(CUcontext context, Body body) {
        threads_.emplace_back([this, context, body] {
            try {
                if (cu.cuCtxSetCurrent(context) != CUDA_SUCCESS || !body()) ++failures_;
            } catch (...) {
                ++failures_;
            }
        });
    }
    int failures() {
        for (auto& thread : threads_) thread.join();
        threads_.clear();
        return failures_;
    }

private:
    std::vector<std::thread> threads_;
    std::atomic<int> failures_{0};
};

constexpr int threads = 4, rounds = 40;

bool chain_in_own_stream(CUfunction advance) {
    CUstream stream = nullptr;
    CUdeviceptr value = 0;
    int last = -1;
    bool right = cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    right = right && cu.cuMemAlloc(&value, sizeof(int)) == CUDA_SUCCESS;
    right = right && cu.cuMemsetD32Async(value, 0, 1, stream) == CUDA_SUCCESS;
    for (int i = 0; i < rounds && right; ++i) right = launch(advance, stream, value, i, i + 1) == CUDA_SUCCESS;
    right = right && cu.cuMemcpyDtoHAsync(&last, value, sizeof(int), stream) == CUDA_SUCCESS;
    right = right && cu.cuStreamSynchronize(stream) == CUDA_SUCCESS;
    cu.cuMemFree(value);
    cu.cuStreamDestroy(stream);
    return right && last == rounds;
}

// Everything at once, in a stream of its own: copies both ways from pageable and pinned memory, launches, events, waits.
bool copy_launch_and_wait(CUfunction add, int seed) {
    constexpr int count = 1000, times = 12;
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CUdeviceptr values = 0;
    void* pinned = nullptr;
    bool right = cu.cuStreamCreate(&stream, seed % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT) == CUDA_SUCCESS &&
                 cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
                 cu.cuMemAlloc(&values, count * sizeof(int)) == CUDA_SUCCESS &&
                 cu.cuMemHostAlloc(&pinned, count * sizeof(int), 0) == CUDA_SUCCESS;
    for (int round = 0; round < times && right; ++round) {
        std::vector<int> numbers(count, seed * 100 + round);
        auto* landed = static_cast<int*>(pinned);
        bool waits = round % 3 == 0;
        right = (waits ? cu.cuMemcpyHtoD(values, numbers.data(), count * sizeof(int))
                       : cu.cuMemcpyHtoDAsync(values, numbers.data(), count * sizeof(int), stream)) == CUDA_SUCCESS;
        for (int i = 0; i < 5 && right; ++i)
            right = launch_shaped(add, 8, 128, 0, stream, values, count, 1) == CUDA_SUCCESS;
        right = right && cu.cuMemcpyDtoHAsync(landed, values, count * sizeof(int), stream) == CUDA_SUCCESS &&
                cu.cuEventRecord(event, stream) == CUDA_SUCCESS;
        if (round % 2) right = right && cu.cuStreamSynchronize(stream) == CUDA_SUCCESS;
        right = right && cu.cuEventSynchronize(event) == CUDA_SUCCESS && cu.cuEventQuery(event) == CUDA_SUCCESS;
        for (int i = 0; i < count && right; ++i) right = landed[i] == numbers[0] + 5;
        if (round % 4 == 3) right = right && cu.cuCtxSynchronize() == CUDA_SUCCESS;
    }
    cu.cuMemFreeHost(pinned);
    cu.cuMemFree(values);
    cu.cuEventDestroy(event);
    cu.cuStreamDestroy(stream);
    return right;
}

bool allocate_and_free(int seed) {
    for (int i = 0; i < rounds; ++i) {
        CUdeviceptr address = 0;
        unsigned value = unsigned(seed * 1000 + i), back = 0;
        if (cu.cuMemAlloc(&address, 4096 + size_t(seed)) != CUDA_SUCCESS) return false;
        if (cu.cuMemcpyHtoD(address + 4092, &value, 4) != CUDA_SUCCESS) return false;
        if (cu.cuMemcpyDtoH(&back, address + 4092, 4) != CUDA_SUCCESS || back != value) return false;
        if (cu.cuMemFree(address) != CUDA_SUCCESS) return false;
    }
    return true;
}

bool load_and_run() {
    for (int i = 0; i < 5; ++i) {
        CUmodule module = nullptr;
        CUfunction store = nullptr;
        CUdeviceptr out = 0;
        int back = 0;
        if (cu.cuModuleLoadData(&module, fatbin_image().data) != CUDA_SUCCESS) return false;
        if (cu.cuModuleGetFunction(&store, module, "store") != CUDA_SUCCESS) return false;
        if (cu.cuMemAlloc(&out, 4) != CUDA_SUCCESS || launch(store, nullptr, out, i) != CUDA_SUCCESS) return false;
        if (cu.cuMemcpyDtoH(&back, out, 4) != CUDA_SUCCESS || back != i) return false;
        if (cu.cuMemFree(out) != CUDA_SUCCESS || cu.cuModuleUnload(module) != CUDA_SUCCESS) return false;
    }
    return true;
}
}  // namespace

TEST_CASE("threads work in streams of their own", "[thread]") {
    Gpu gpu;
    Module module;
    CUfunction advance = module.function("advance");
    Workers workers;
    for (int i = 0; i < threads; ++i) workers.start(gpu.context, [advance] { return chain_in_own_stream(advance); });
    CHECK(workers.failures() == 0);
}

TEST_CASE("sixteen threads launch, copy and wait at once", "[thread]") {
    Gpu gpu;
    Module module;
    CUfunction add = module.function("add");
    Workers workers;
    for (int i = 0; i < 16; ++i) workers.start(gpu.context, [add, i] { return copy_launch_and_wait(add, i); });
    CHECK(workers.failures() == 0);
}

TEST_CASE("threads allocate and load at the same time", "[thread]") {
    Gpu gpu;
    Workers workers;
    for (int i = 0; i < threads; ++i) {
        workers.start(gpu.context, [i] { return allocate_and_free(i); });
        workers.start(gpu.context, [] { return load_and_run(); });
    }
    CHECK(workers.failures() == 0);
}

TEST_CASE("one thread's wait does not hold up another's work", "[thread]") {
    Gpu gpu;
    Module module;
    Stream held(CU_STREAM_NON_BLOCKING), free_stream(CU_STREAM_NON_BLOCKING);
    CUfunction advance = module.function("advance");
    Memory value(std::vector<int>{0});  // made here: allocating and freeing may wait for the whole context
    run_once(advance, value.address, -1, 0);
    Gate gate(held);
    std::atomic<bool> waited{false};
    Workers waiting, working;
    waiting.start(gpu.context, [&] {
        bool right = cu.cuStreamSynchronize(held) == CUDA_SUCCESS;
        waited = true;
        return right;
    });
    working.start(gpu.context, [&] {
        for (int i = 0; i < rounds; ++i)
            if (launch(advance, free_stream, value.address, i, i + 1) != CUDA_SUCCESS) return false;
        return cu.cuStreamSynchronize(free_stream) == CUDA_SUCCESS;
    });
    CHECK(working.failures() == 0);
    CHECK(!waited);
    gate.open();
    CHECK(waiting.failures() == 0);
    CHECK(value.first<int>() == rounds);
}

TEST_CASE("work given by one thread is seen by another after a hand-over", "[thread]") {
    Gpu gpu;
    Module module;
    Stream stream;
    CUfunction advance = module.function("advance");
    Memory value(std::vector<int>{0});
    for (int i = 0; i < 10; ++i) {  // the threads take turns in one stream
        Workers worker;
        worker.start(gpu.context, [&, i] { return launch(advance, stream, value.address, i, i + 1) == CUDA_SUCCESS; });
        CHECK(worker.failures() == 0);
    }
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(value.first<int>() == 10);
}

FRESH_PROCESS_TEST_CASE("threads may all be the first to initialise", "[thread]") {
    std::vector<std::thread> starters;
    std::atomic<int> failures{0};
    for (int i = 0; i < threads; ++i)
        starters.emplace_back([&] {
            CUcontext context = nullptr;
            if (cu.cuInit(0) || cu.cuDevicePrimaryCtxRetain(&context, 0) || cu.cuCtxSetCurrent(context) ||
                !allocate_and_free(3))
                ++failures;
        });
    for (auto& starter : starters) starter.join();
    CHECK(failures == 0);
}
