// Before and around cuInit.
#include <sys/wait.h>
#include <unistd.h>

#include "gpu.hpp"

using namespace driver_api;

TEST_CASE("every function of the suite is exported", "[init]") {
    CHECK(missing_functions() == "");
}

FRESH_PROCESS_TEST_CASE("calls before cuInit report that the driver is not initialised", "[init]") {
    int count = 0;
    CUdevice device = 0;
    CUdeviceptr address = 0;
    CUcontext context = nullptr;
    CU_CHECK(cu.cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    CU_CHECK(cu.cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
    CU_CHECK(cu.cuMemAlloc(&address, 16), CUDA_ERROR_NOT_INITIALIZED);
    CU_CHECK(cu.cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    CU_CHECK(cu.cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_NOT_INITIALIZED);
}

FRESH_PROCESS_TEST_CASE("the version and the error names need no cuInit", "[init]") {
    int version = 0;
    CU_OK(cu.cuDriverGetVersion(&version));
    CHECK(version >= 12000);
    const char* name = nullptr;
    CU_OK(cu.cuGetErrorName(CUDA_ERROR_NOT_INITIALIZED, &name));
    CHECK(name == std::string("CUDA_ERROR_NOT_INITIALIZED"));
}

FRESH_PROCESS_TEST_CASE("cuInit takes no flags and may be called again", "[init]") {
    CU_CHECK(cu.cuInit(1), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuInit(0));
    CU_OK(cu.cuInit(0));
    CU_CHECK(cu.cuInit(1), CUDA_ERROR_INVALID_VALUE);
    int count = 0;
    CU_OK(cu.cuDeviceGetCount(&count));
    CHECK(count >= 1);
}

TEST_CASE("the driver version is refused a null pointer", "[init]") {
    CU_CHECK(cu.cuDriverGetVersion(nullptr), CUDA_ERROR_INVALID_VALUE);
}

namespace {
// The child runs nothing but `call`: a forked copy of this process must not use Catch.
int result_in_forked_child(CUresult (*call)()) {
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(int(call()) & 0xff);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
}  // namespace

FRESH_PROCESS_TEST_CASE("a child forked after cuInit is told that the driver is not initialised", "[init]") {
    Gpu gpu;
    Memory memory(std::vector<int>{1, 2, 3});
    CHECK(result_in_forked_child([] {
              int count = 0;
              return cu.cuDeviceGetCount(&count);
          }) == CUDA_ERROR_NOT_INITIALIZED);
    CHECK(result_in_forked_child([] {
              CUdeviceptr address = 0;
              return cu.cuMemAlloc(&address, 16);
          }) == CUDA_ERROR_NOT_INITIALIZED);
    CHECK(result_in_forked_child([] { return cu.cuInit(0); }) == CUDA_ERROR_NOT_INITIALIZED);
    CHECK(memory.read<int>(3) == std::vector<int>{1, 2, 3});  // the parent goes on
}

FRESH_PROCESS_TEST_CASE("a child forked before cuInit has a driver of its own", "[init]") {
    int result = result_in_forked_child([] {
        CUcontext context = nullptr;
        CUdeviceptr address = 0;
        if (cu.cuInit(0) || cu.cuDevicePrimaryCtxRetain(&context, 0) || cu.cuCtxSetCurrent(context))
            return CUDA_ERROR_UNKNOWN;
        return cu.cuMemAlloc(&address, 16);
    });
    CHECK(result == CUDA_SUCCESS);
    Gpu gpu;
    CHECK(Memory(std::vector<int>{5}).first<int>() == 5);
}
