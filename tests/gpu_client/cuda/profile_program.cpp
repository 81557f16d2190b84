// A small program for a profile: copies up and down, launches on two streams that wait for each other, and waits.
//
//     profile_program LAUNCHES [calls|wait|abort|children COMMAND…]
//
// Each stream gets LAUNCHES launches. `calls`: with calls of all sorts, some of them wrong. `wait`: when all is done it says so
// and waits for the end of its input. `abort`: it ends with abort(). `children`: it runs COMMAND meanwhile, which is this
// program again.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/cuda_driver.hpp"

extern "C" CUresult cuStreamSynchronize_ptsz(CUstream stream);  // cuda.h names it only to those who are compiled for it

namespace {

// Counts for a while, so that a kernel takes some time.
constexpr const char* code = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 where, .param .u32 times) {
    .reg .b64 %rd<2>;
    .reg .b32 %r<3>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [where];
    ld.param.u32 %r1, [times];
    mov.u32 %r2, 0;
again:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra again;
    st.global.u32 [%rd1], %r2;
    ret;
}
)";

void check(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return;
    std::printf("%s failed: %d\n", what, result);
    std::exit(3);
}
void ignore(CUresult, const char*) {}

void launch(CUfunction kernel, CUstream stream, CUdeviceptr where, unsigned times) {
    void* arguments[] = {&where, &times};
    CALL(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
}

// Calls whose results do not matter, some of them wrong: for the trace.
void call_this_and_that(CUmodule module, CUstream stream) {
    auto check = ignore;  // what CALL hands its results to
    CUdeviceptr nothing = 0;
    CUfunction missing = nullptr;
    CUevent begin = nullptr, end = nullptr;
    float milliseconds = 0;
    int value = 0;
    char name[100];
    const char* text = nullptr;
    CALL(cuMemAlloc, &nothing, 0);
    CALL(cuMemAlloc, nullptr, 4096);
    CALL(cuStreamSynchronize, reinterpret_cast<CUstream>(0x1234));
    CALL(cuGraphicsUnregisterResource, nullptr);  // not supported
    CALL(cuGetErrorName, CUDA_ERROR_INVALID_VALUE, &text);
    CALL(cuModuleGetFunction, &missing, module, ("\"" + std::string(1000, 'n')).c_str());
    CALL(cuDeviceGetName, name, sizeof name, 0);
    CALL(cuEventCreate, &begin, 0);
    CALL(cuEventCreate, &end, 0);
    CALL(cuEventRecord, begin, stream);
    CALL(cuEventRecord, end, stream);
    CALL(cuEventSynchronize, end);
    CALL(cuEventElapsedTime, &milliseconds, begin, end);
    CALL(cuStreamSynchronize_ptsz, nullptr);
    CALL(cuDeviceGetAttribute, &value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0);
}

void run_children(char** command) {
    auto child = fork();
    if (child == 0) {
        execv(command[0], command);
        _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) std::exit(5);
}

}  // namespace

int main(int argc, char** argv) {
    int launches = argc > 1 ? std::atoi(argv[1]) : 1;
    const char* then = argc > 2 ? argv[2] : "";
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction kernel = nullptr;
    CUstream first = nullptr, second = nullptr;
    CUevent ready = nullptr;
    CUdeviceptr memory = 0;
    std::vector<char> up(1 << 20, 'x'), down(1 << 20);
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    CALL(cuCtxSetCurrent, context);
    CALL(cuModuleLoadData, &module, code);
    CALL(cuModuleGetFunction, &kernel, module, "spin");
    CALL(cuStreamCreate, &first, CU_STREAM_NON_BLOCKING);
    CALL(cuStreamCreate, &second, CU_STREAM_NON_BLOCKING);
    CALL(cuEventCreate, &ready, CU_EVENT_DISABLE_TIMING);
    CALL(cuMemAlloc, &memory, up.size());
    CALL(cuMemcpyHtoD, memory, up.data(), up.size());
    for (int i = 0; i < launches; ++i) {
        launch(kernel, first, memory, 2000);
        CALL(cuEventRecord, ready, first);
        CALL(cuStreamWaitEvent, second, ready, 0);
        launch(kernel, second, memory + 4, 1000);
    }
    CALL(cuStreamSynchronize, second);
    CALL(cuMemcpyDtoH, down.data(), memory, down.size());
    CALL(cuCtxSynchronize);
    unsigned counted = 0;
    std::memcpy(&counted, down.data(), sizeof counted);
    if (counted != 2000 || down.back() != 'x') return 4;
    if (std::strcmp(then, "calls") == 0) call_this_and_that(module, first);
    if (std::strcmp(then, "children") == 0) run_children(argv + 3);
    std::printf("done %d\n", getpid());
    std::fflush(stdout);
    if (std::strcmp(then, "wait") == 0)
        while (std::getchar() != EOF) continue;
    if (std::strcmp(then, "abort") == 0) std::abort();
    return 0;
}
