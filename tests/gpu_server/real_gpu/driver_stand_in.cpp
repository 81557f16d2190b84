// A libcuda.so.1 that is used as a real one would be (`serve --driver PATH`): the emulated driver, which this library
// depends on, with what real drivers do otherwise in front of it. Every process of the server loads it.
//
// TNR_WORKER_STAND_IN says what it shall do (the server hands on variables of such names): words of
//   exclusive  nobody may make a context          scarce     most of the memory cannot be had
//   divided    the GPU is a MIG slice             forgetful  memory does not keep what is written to it
//   vanished   GPUs are found at the start, and gone when one is to be used
//   patient    what waits for host functions is as in patient_driver.cpp; thorough: and waits for all else
//   late       some host functions begin up to 3 ms after their stream has reached them
//   narrow     streams of one priority wait for each other, and wordless: they cannot wait for words: narrow_driver.cpp
//   mib=NUMBER memory of each GPU, for suites that need some
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>

#include "driver_stand_in.hpp"

// Two GPUs with little memory: all of it is overwritten after every claim.
__attribute__((constructor)) static void configure() {
    setenv("TNR_EMULATED_GPUS", "h100:2", 1);
    static constexpr std::string_view number = "mib=";
    const char* mib = shall(number.data());
    setenv("TNR_EMULATED_MEMORY_MIB",
           mib               ? std::to_string(std::atoi(mib + number.size())).c_str()
           : shall("scarce") ? "640"
                             : "64",
           1);
}

static std::string setting(const char* name) {
    const char* value = getenv(name);
    return value ? value : "-";
}

// What NVIDIA's driver (580.159.04) does in cuInit beside its devices, seen with strace: it names its threads by their files
// and listens at a local socket. Where either fails, so does cuInit.
static bool begins_as_real_ones_do() {
    static bool begun = false;
    if (begun) return true;
    std::thread events([] { pause(); });
    const bool named = pthread_setname_np(events.native_handle(), "cuda-EvtHandlr") == 0;
    events.detach();
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const int length = std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "stand-in-uvmfd-%d", getpid());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
    const int server = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    begun = named && bind(server, reinterpret_cast<sockaddr*>(&name), size) == 0 && listen(server, 128) == 0;
    return begun;
}

EXPORT CUresult cuInit(unsigned flags) {
    if (!begins_as_real_ones_do()) return CUDA_ERROR_OPERATING_SYSTEM;
    std::fprintf(stderr, "stand-in: order %s, mps %s, cache %s, minors %s\n", setting("CUDA_DEVICE_ORDER").c_str(),
                 setting("CUDA_MPS_PIPE_DIRECTORY").c_str(), setting("CUDA_CACHE_PATH").c_str(),
                 setting("TNR_GPU_MINORS").c_str());
    return EMULATED(cuInit)(flags);
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    if (shall("exclusive")) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    return EMULATED(cuDevicePrimaryCtxRetain)(context, device);
}

EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    auto result = EMULATED(cuDeviceGetAttribute)(value, attribute, device);
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_MODE && shall("exclusive")) *value = CU_COMPUTEMODE_EXCLUSIVE_PROCESS;
    return result;
}

EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
    auto result = EMULATED(cuDeviceGetName)(name, length, device);
    if (shall("divided")) std::snprintf(name, static_cast<size_t>(length), "NVIDIA H100 80GB HBM3 MIG 1g.10gb");
    return result;
}

EXPORT CUresult cuMemsetD32_v2(CUdeviceptr address, unsigned value, size_t count) {
    return shall("forgetful") ? CUDA_SUCCESS : EMULATED(cuMemsetD32_v2)(address, value, count);
}

EXPORT CUresult cuDeviceGetCount(int* count) {
    auto result = EMULATED(cuDeviceGetCount)(count);
    if (shall("vanished") && getenv("CUDA_VISIBLE_DEVICES")) *count = 0;
    return result;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
    constexpr size_t scarce_bytes_max = size_t{64} << 20;
    static size_t given = 0;
    wait_for_streams();
    if (shall("scarce") && given + bytes > scarce_bytes_max) return CUDA_ERROR_OUT_OF_MEMORY;
    auto result = EMULATED(cuMemAlloc_v2)(address, bytes);
    if (result == CUDA_SUCCESS) given += bytes;
    return result;
}
