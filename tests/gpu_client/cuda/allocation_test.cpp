// What allocating and freeing costs and may reuse, seen from inside the client library: round trips, records sent, and
// addresses that come back. Runs beside a server with two GPUs (with_server.py).
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "cuda_calls.hpp"
#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/device_memory.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/stats.hpp"
#include "tests/gpu_client/cuda/costs.hpp"

using namespace tnr;
using namespace tnr::cuda;

namespace {

constexpr uint64_t kib = 1024, mib = 1024 * kib;

struct CurrentGpu {
    explicit CurrentGpu(int ordinal) : ordinal(ordinal) {
        OK(cuInit(0));
        OK(cuDevicePrimaryCtxRetain(&context, ordinal));
        OK(cuCtxSetCurrent(context));
    }
    ~CurrentGpu() {
        cuCtxSetCurrent(context);
        cuDevicePrimaryCtxRelease(ordinal);
    }
    int ordinal;
    CUcontext context = nullptr;
};

CUdeviceptr allocate(uint64_t bytes) {
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2(&address, bytes));
    return address;
}

CUstream new_stream() {
    CUstream stream = nullptr;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

struct HeldStream {
    void open() { hold.open(); }
    CUstream stream = new_stream();
    Hold hold{stream};
};

}  // namespace

TEST_CASE("allocating and freeing in a loop asks nobody and sends nothing", "[allocation]") {
    CurrentGpu gpu(0);
    OK(cuMemFree_v2(allocate(4 * kib)));  // the first grant is there, and the first block mapped
    for (uint64_t bytes : {4 * kib, 100 * kib, 2 * mib, 7 * mib, 200 * mib}) {
        OK(cuMemFree_v2(allocate(bytes)));
        auto begun = std::chrono::steady_clock::now();
        auto cost = cost_of([&] {
            for (int i = 0; i < 10'000; ++i) {
                CUdeviceptr address = 0;
                if (cuMemAlloc_v2(&address, bytes) != CUDA_SUCCESS || cuMemFree_v2(address) != CUDA_SUCCESS)
                    FAIL("allocation " << i << " of " << bytes);
            }
        });
        std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begun;
        INFO(bytes << " bytes: " << took.count() / 10'000 << " us");
        CHECK(cost.round_trips == 0);
        CHECK(cost.records == 0);
    }
}

TEST_CASE("free memory is known here while the process is alone", "[allocation]") {
    CurrentGpu gpu(0);
    size_t free = 0, total = 0;
    OK(cuMemGetInfo_v2(&free, &total));
    std::vector<CUdeviceptr> kept;
    bool right = true;
    auto begun = std::chrono::steady_clock::now();
    auto cost = cost_of([&] {
        for (uint64_t i = 1; i <= 1000; ++i) {
            size_t now = 0;
            if (i % 100 == 0) kept.push_back(allocate(16 * mib));
            right &= cuMemGetInfo_v2(&now, &total) == CUDA_SUCCESS && now + kept.size() * 16 * mib == free;
        }
    });
    std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begun;
    INFO(took.count() / 1000 << " us");
    CHECK(right);
    CHECK(cost.round_trips <= 2 + static_cast<uint64_t>(took.count() / 1e6));  // it is asked again every second
    for (auto address : kept) OK(cuMemFree_v2(address));
    OK(cuMemGetInfo_v2(&free, &total));
    // And the driver agrees.
    wire::Bytes payload(sizeof(uint64_t));
    Pending pending;
    open_sessions().front()->request(contexts().find(value_of(gpu.context))->number, wire::op_cuMemGetInfo_v2, payload,
                                     pending);
    open_sessions().front()->wait(pending);
    REQUIRE(pending.result == CUDA_SUCCESS);
    CHECK(wire::Reader(pending.answer).get<uint64_t>() + find_device(0)->memory->usage().free == free);
}

TEST_CASE("many allocations that live at once wait for the grants alone", "[allocation]") {
    CurrentGpu gpu(0);
    OK(cuMemFree_v2(allocate(4 * kib)));
    std::vector<CUdeviceptr> all(300);
    auto cost = cost_of([&] {
        for (auto& address : all) address = allocate(2 * mib);
        for (auto address : all) OK(cuMemFree_v2(address));
    });
    CHECK(cost.round_trips == 0);  // they fit into the first
    OK(cuCtxSynchronize());
}

TEST_CASE("what a command may use does not come back before the GPU has passed it", "[allocation]") {
    CurrentGpu gpu(0);
    for (uint64_t bytes : {4 * kib, 4 * mib}) {
        HeldStream held;
        auto used = allocate(bytes);
        OK(cuMemsetD8Async(used, 1, bytes, held.stream));
        OK(cuMemFree_v2(used));
        for (int i = 0; i < 3; ++i) {
            auto other = allocate(bytes);
            CHECK(other != used);
            OK(cuMemsetD8Async(other, 2, bytes, held.stream));
            OK(cuMemFree_v2(other));
        }
        held.open();
        OK(cuStreamDestroy_v2(held.stream));
        OK(cuCtxSynchronize());
    }
}

TEST_CASE("allocating, using and freeing in a loop seldom waits", "[allocation]") {
    CurrentGpu gpu(0);
    auto cost = cost_of([&] {
        for (int i = 0; i < 4000; ++i) {  // 8 GB in all, on a GPU of 2 GB
            auto address = allocate(2 * mib);
            OK(cuMemsetD8Async(address, 1, 4, nullptr));
            OK(cuMemFree_v2(address));
        }
    });
    CHECK(cost.round_trips <= 40);  // it may outrun the GPU, which then has to catch up
}

TEST_CASE("threads that allocate, use and free at once never share memory", "[allocation]") {
    CurrentGpu gpu(0);
    std::atomic<int> wrong{0};
    auto work = [&](unsigned seed) {
        std::mt19937 random(seed);
        cuCtxSetCurrent(gpu.context);
        CUstream stream = nullptr;
        wrong += cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS;
        for (unsigned i = 0; i < 400; ++i) {
            CUdeviceptr address = 0;
            const uint64_t bytes = random() % 3 == 0 ? 2 * mib + random() % (4 * mib) : 4 + random() % (200 * kib);
            const unsigned value = seed << 16 | i;
            unsigned first = 0, last = 0;
            bool ordered = random() % 2 == 0;
            wrong +=
                (ordered ? cuMemAllocAsync(&address, bytes, stream) : cuMemAlloc_v2(&address, bytes)) != CUDA_SUCCESS;
            wrong += cuMemsetD32Async(address, value, bytes / 4, stream) != CUDA_SUCCESS;
            if (random() % 4 == 0) {
                wrong += cuMemcpyDtoHAsync_v2(&first, address, 4, stream) != CUDA_SUCCESS;
                wrong += cuMemcpyDtoHAsync_v2(&last, address + (bytes / 4 - 1) * 4, 4, stream) != CUDA_SUCCESS;
                wrong += cuStreamSynchronize(stream) != CUDA_SUCCESS || first != value || last != value;
            }
            wrong += (ordered ? cuMemFreeAsync(address, stream) : cuMemFree_v2(address)) != CUDA_SUCCESS;
        }
        wrong += cuStreamDestroy_v2(stream) != CUDA_SUCCESS;
    };
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= 8; ++seed) threads.emplace_back(work, seed);
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
    OK(cuCtxSynchronize());
}

TEST_CASE("freed memory waits for another device that may use it", "[allocation]") {
    CurrentGpu first(0);
    const uint64_t bytes = 8 * mib;
    auto there = allocate(bytes);
    CurrentGpu second(1);
    auto here = allocate(bytes);
    HeldStream held;
    OK(cuMemcpyDtoDAsync_v2(here, there, bytes, held.stream));
    OK(cuCtxSetCurrent(first.context));
    OK(cuMemFree_v2(there));
    OK(cuCtxSynchronize());
    auto next = allocate(bytes);
    CHECK(next != there);  // the other device has yet to read it
    OK(cuMemFree_v2(next));
    held.open();
    OK(cuCtxSetCurrent(second.context));
    OK(cuCtxSynchronize());
    OK(cuMemFree_v2(here));
    OK(cuStreamDestroy_v2(held.stream));
    OK(cuCtxSetCurrent(first.context));
    OK(cuMemsetD8Async(allocate(4 * kib), 0, 1, nullptr));
    OK(cuCtxSynchronize());
    uint64_t again[2] = {allocate(bytes), allocate(bytes)};
    CHECK((again[0] == there || again[1] == there));
}
