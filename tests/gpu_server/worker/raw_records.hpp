// Records of a client's own making, sent through the client library's session: see grants_test.cpp.
#pragma once

#include "cuda_calls.hpp"
#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/device_memory.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "tests/support/catch.hpp"

namespace tnr::test {

using namespace tnr::cuda;

inline constexpr uint64_t mib = uint64_t{1} << 20;
// with_server.py's emulated GPU, and what of it is never granted (supervisor/limits.hpp).
inline constexpr uint64_t gpu_bytes = 2048 * mib, reserve_bytes = gpu_bytes / 32;
inline constexpr uint64_t step = 32 * mib;

template <class... Values>
CUresult ask_in(CUcontext context, uint16_t op, const Values&... values) {
    wire::Bytes payload(sizeof(uint64_t));  // room for the call number
    wire::Writer out(payload);
    (out.put(values), ...);
    Pending pending;
    open_sessions().front()->request(context ? find_context(context)->number : 0, op, payload, pending);
    open_sessions().front()->wait(pending);
    return pending.result;
}
template <class... Values>
CUresult ask(uint16_t op, const Values&... values) {
    return ask_in(nullptr, op, values...);
}

struct Held {
    Held() {
        REQUIRE(cuInit(0) == CUDA_SUCCESS);
        REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
        REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    }
    ~Held() { cuDevicePrimaryCtxRelease(0); }
    CUcontext context = nullptr;
};

// Addresses of the session's range that the client does not use itself.
inline uint64_t addresses(uint64_t bytes) {
    uint64_t address = find_device(0)->memory->reserve(bytes, 0, 0);
    REQUIRE(address != 0);
    return address;
}

inline uint64_t free_bytes() {
    size_t free = 0, total = 0;
    REQUIRE(cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS);
    return free;
}

// Maps until it is refused; how much that was.
inline uint64_t map_all(uint64_t address) {
    uint64_t mapped = 0;
    CUresult result = CUDA_SUCCESS;
    for (; mapped <= gpu_bytes; mapped += step) {
        result = ask(wire::op_memory_map, uint32_t{0}, address + mapped, step);
        if (result != CUDA_SUCCESS) break;
    }
    CHECK(result == CUDA_ERROR_OUT_OF_MEMORY);
    return mapped;
}

inline void unmap_all(uint64_t address, uint64_t mapped, uint16_t op) {
    for (uint64_t done = 0; done < mapped; done += step)
        CHECK((op == wire::op_memory_unmap ? ask(op, uint32_t{0}, address + done, step)
                                           : ask(op, address + done, step)) == CUDA_SUCCESS);
}

}  // namespace tnr::test
