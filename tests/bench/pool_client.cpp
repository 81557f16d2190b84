// A program that takes a GPU, says when it has it, and gives it back when its input ends: what pool_bench.py times. Compiled,
// since a hundred interpreters that start would be most of what is measured.
//
//   pool_client     prints when it began to ask for the GPU, and when it had it; then when it let go. Seconds, CLOCK_MONOTONIC.
#include <cuda.h>
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

double now_s() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

template <class... Parameters, class... Arguments>
void call(void* library, const char* name, CUresult (*)(Parameters...), Arguments... arguments) {
    auto* function = reinterpret_cast<CUresult (*)(Parameters...)>(dlsym(library, name));
    const auto code = function ? function(arguments...) : CUDA_ERROR_NOT_FOUND;
    if (code == CUDA_SUCCESS) return;
    std::fprintf(stderr, "%s: error %d\n", name, code);
    std::exit(1);
}
#define CALL(name, ...) call(library, #name, name, __VA_ARGS__)

}  // namespace

int main() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 1;
    CUdevice device = 0;
    CUcontext context = nullptr;
    size_t free = 0, total = 0;
    CALL(cuInit, 0u);
    CALL(cuDeviceGet, &device, 0);
    const double began = now_s();
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxSetCurrent, context);
    CALL(cuMemGetInfo_v2, &free, &total);
    std::printf("%.9f %.9f\n", began, now_s());
    std::fflush(stdout);
    for (char byte = 0; read(STDIN_FILENO, &byte, 1) > 0;) continue;
    std::printf("%.9f\n", now_s());
    return 0;
}
