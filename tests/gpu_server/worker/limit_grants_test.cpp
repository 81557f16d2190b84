// Limits that a client sets so that the driver holds more memory: that is the client's, too. Runs as grants_test.cpp does.
#include <vector>

#include "raw_records.hpp"

using namespace tnr;
using namespace tnr::test;

namespace {

CUresult set_limit(CUlimit limit, uint64_t value) {
    CUcontext context = nullptr;
    REQUIRE(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
    return ask_in(context, wire::op_cuCtxSetLimit, static_cast<uint32_t>(limit), value);
}

}  // namespace

TEST_CASE("the heap and the buffers that a client's limits make the driver hold are charged", "[limits]") {
    Held held;
    const uint64_t most = gpu_bytes - reserve_bytes;
    CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, gpu_bytes) == CUDA_ERROR_OUT_OF_MEMORY);  // gives back its grant
    for (auto limit : {CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE}) {
        CAPTURE(limit);
        CHECK(set_limit(limit, 2 * gpu_bytes) == CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(set_limit(limit, UINT64_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(set_limit(limit, most / 2) == CUDA_SUCCESS);
        CHECK(set_limit(limit, most / 4) == CUDA_SUCCESS);
        CHECK(set_limit(limit, 4096) == CUDA_SUCCESS);
    }
    CHECK(set_limit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 24) == CUDA_ERROR_OUT_OF_MEMORY);  // 22 levels more
    CHECK(set_limit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, UINT64_MAX / 2) == CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE(set_limit(CU_LIMIT_PRINTF_FIFO_SIZE, 500 * mib) == CUDA_SUCCESS);
    SECTION("with those of all its contexts together") {
        uint64_t taken = 500 * mib;
        std::vector<CUcontext> contexts;
        CUresult result = CUDA_SUCCESS;
        while (taken <= gpu_bytes && result == CUDA_SUCCESS) {
            REQUIRE(cuCtxCreate_v2(&contexts.emplace_back(), 0, 0) == CUDA_SUCCESS);
            result = set_limit(CU_LIMIT_MALLOC_HEAP_SIZE, 200 * mib);
            if (result == CUDA_SUCCESS) taken += 192 * mib;  // a context has 8 MiB of heap in any case
        }
        CHECK(result == CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(taken <= most);
        for (auto context : contexts) CHECK(cuCtxDestroy_v2(context) == CUDA_SUCCESS);
        REQUIRE(cuCtxSetCurrent(held.context) == CUDA_SUCCESS);
        REQUIRE(set_limit(CU_LIMIT_MALLOC_HEAP_SIZE, 1000 * mib) == CUDA_SUCCESS);  // what ended gave it back
        REQUIRE(set_limit(CU_LIMIT_MALLOC_HEAP_SIZE, 1 * mib) == CUDA_SUCCESS);
    }
    SECTION("until the context is made anew") {
        REQUIRE(cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS);
        REQUIRE(cuDevicePrimaryCtxRetain(&held.context, 0) == CUDA_SUCCESS);
        REQUIRE(cuCtxSetCurrent(held.context) == CUDA_SUCCESS);
        REQUIRE(set_limit(CU_LIMIT_PRINTF_FIFO_SIZE, most - 100 * mib) == CUDA_SUCCESS);
        REQUIRE(set_limit(CU_LIMIT_PRINTF_FIFO_SIZE, 500 * mib) == CUDA_SUCCESS);
    }
    SECTION("and nothing else gets that memory") {  // the last one: the session keeps what it was granted to map
        const uint64_t address = addresses(gpu_bytes + step), mapped = map_all(address);
        CHECK(mapped <= most - 499 * mib);
        unmap_all(address, mapped, wire::op_memory_unmap);
    }
}

TEST_CASE("a limit takes what a program was granted and does not use any more", "[idle]") {
    Held held;
    CUdeviceptr all = 0;
    REQUIRE(cuMemAlloc_v2(&all, gpu_bytes - reserve_bytes - 64 * mib) == CUDA_SUCCESS);
    CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1000 * mib) == CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE(cuMemFree_v2(all) == CUDA_SUCCESS);
    CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1000 * mib) == CUDA_SUCCESS);
    CHECK(cuMemAlloc_v2(&all, gpu_bytes - reserve_bytes - 900 * mib) == CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE(cuMemAlloc_v2(&all, gpu_bytes - reserve_bytes - 1020 * mib) == CUDA_SUCCESS);
    REQUIRE(cuMemFree_v2(all) == CUDA_SUCCESS);
    CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * mib) == CUDA_SUCCESS);
}
