// Kernels that go wrong. Each in a process of its own: CUDA promises nothing to a process after such a fault.
#include <unistd.h>

#include "gpu.hpp"

using namespace driver_api;

namespace {
// Everything that a program may try next gets the same error.
void check_sticky(CUresult error, const Module& module, const Memory& memory, CUstream stream) {
    CUdeviceptr address = 0;
    int value = 0;
    CUevent event = nullptr;
    CU_CHECK(cu.cuCtxSynchronize(), error);
    CU_CHECK(cu.cuStreamSynchronize(stream), error);
    CU_CHECK(cu.cuStreamQuery(stream), error);
    CU_CHECK(cu.cuMemAlloc(&address, 16), error);
    CU_CHECK(cu.cuMemcpyDtoH(&value, memory.address, sizeof(value)), error);
    CU_CHECK(cu.cuMemsetD8(memory.address, 0, 4), error);
    CU_CHECK(cu.cuEventCreate(&event, 0), error);
    CUfunction store = nullptr;
    CU_CHECK_EITHER(cu.cuModuleGetFunction(&store, module.handle, "store"), CUDA_SUCCESS, error);
    if (store) CU_CHECK(launch(store, stream, memory.address, 1), error);
}
}  // namespace

FRESH_PROCESS_TEST_CASE("a store to nowhere is an illegal address and stays one", "[fault]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory memory(std::vector<int>{3});
    CUfunction store = module.function("store");
    CU_OK(launch(store, stream, memory.address, 4));
    CU_OK(cu.cuStreamSynchronize(stream));
    CU_OK(launch(store, stream, CUdeviceptr{0x10}, 5));  // asynchronous: the launch itself succeeds
    CU_CHECK(cu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    check_sticky(CUDA_ERROR_ILLEGAL_ADDRESS, module, memory, stream);
}

FRESH_PROCESS_TEST_CASE("a load far beyond an allocation is an illegal address", "[fault]") {
    Gpu gpu;
    Module module;
    Memory memory(sizeof(int));
    CU_OK(launch(module.function("copy_ints"), nullptr, memory.address + (CUdeviceptr{1} << 42), memory.address, 1));
    CU_CHECK(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

FRESH_PROCESS_TEST_CASE("a fault surfaces at a copy that waits for it", "[fault]") {
    Gpu gpu;
    Module module;
    Memory memory(sizeof(int));
    int value = 0;
    CU_OK(launch(module.function("store"), nullptr, CUdeviceptr{0x10}, 5));
    CU_CHECK(cu.cuMemcpyDtoH(&value, memory.address, sizeof(value)), CUDA_ERROR_ILLEGAL_ADDRESS);
}

FRESH_PROCESS_TEST_CASE("a fault surfaces at an event recorded after it", "[fault]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Event event;
    CU_OK(launch(module.function("store"), stream, CUdeviceptr{0x10}, 5));
    // Recording may already meet the fault.
    CUresult recorded = cu.cuEventRecord(event, stream);
    CHECK((recorded == CUDA_SUCCESS || recorded == CUDA_ERROR_ILLEGAL_ADDRESS));
    if (recorded == CUDA_SUCCESS) CU_CHECK(cu.cuEventSynchronize(event), CUDA_ERROR_ILLEGAL_ADDRESS);
    CU_CHECK(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

FRESH_PROCESS_TEST_CASE("a trap is a launch failure and stays one", "[fault]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory memory(sizeof(int));
    CU_OK(cu.cuLaunchKernel(module.function("trap_now"), 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
    // NVIDIA's documentation names LAUNCH_FAILED; drivers since 12 tell a trap apart as an illegal instruction.
    CUresult error = cu.cuStreamSynchronize(stream);
    INFO(name_of(error));
    REQUIRE((error == CUDA_ERROR_LAUNCH_FAILED || error == CUDA_ERROR_ILLEGAL_INSTRUCTION));
    check_sticky(error, module, memory, stream);
}

FRESH_PROCESS_TEST_CASE("a failed assertion is reported as such", "[fault]") {
    Gpu gpu;
    Module module;
    CU_OK(launch(module.function("fail_assertion"), nullptr, 0));
    CU_OK(cu.cuCtxSynchronize());
    CU_OK(launch(module.function("fail_assertion"), nullptr, 1));
    CU_CHECK(cu.cuCtxSynchronize(), CUDA_ERROR_ASSERT);
    CUdeviceptr address = 0;
    CU_CHECK(cu.cuMemAlloc(&address, 16), CUDA_ERROR_ASSERT);
}

FRESH_PROCESS_TEST_CASE("a misaligned store is reported as such", "[fault]") {
    Gpu gpu;
    Module module;
    Memory memory(64);
    CU_OK(launch(module.function("store_misaligned"), nullptr, memory.address));
    CU_CHECK(cu.cuCtxSynchronize(), CUDA_ERROR_MISALIGNED_ADDRESS);
}

TEST_CASE("one process's fault does not reach another", "[fault]") {
    // The other process: the first test of this file, started from inside this one while a context is open here.
    Gpu gpu;
    Module module;
    Memory memory(std::vector<int>{3});
    run_in_fresh_process("a store to nowhere is an illegal address and stays one");
    CHECK(memory.first<int>() == 3);
    CU_OK(launch(module.function("store"), nullptr, memory.address, 6));
    CHECK(memory.first<int>() == 6);
}

FRESH_PROCESS_TEST_CASE("a process may end with a fault outstanding", "[fault]") {
    Gpu gpu;
    Module module;
    CU_OK(launch(module.function("store"), nullptr, CUdeviceptr{0x10}, 5));
}
