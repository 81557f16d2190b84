// Calls of the driver that few programs make: what it has said lately, notifications, one cooperative launch on several
// devices, memory pools by location.
#include <cuda.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "check.hpp"

static std::string heard;

static void hear(void* data, CUlogLevel level, char* message, size_t length) {
    ++*static_cast<int*>(data);
    if (level == CU_LOG_LEVEL_WARNING) heard.assign(message, length);
}

__global__ void add_one(int* value) {
    ++*value;
}

static void logs() {
    int calls = 0;
    CUlogsCallbackHandle handle{};
    CUlogIterator from = 0;
    EXPECT(cuLogsRegisterCallback(hear, &calls, &handle) == CUDA_SUCCESS);
    EXPECT(cuLogsCurrent(&from, 0) == CUDA_SUCCESS);
    CUlogIterator file_from = from;
    EXPECT(cuCheckpointProcessLock(1, nullptr) == CUDA_ERROR_NOT_SUPPORTED);  // and a line says so
    EXPECT(calls == 1 && heard.find("cuCheckpointProcessLock") != heard.npos);
    char text[1024] = "?";
    size_t size = 4;
    CUlogIterator little = from;
    EXPECT(cuLogsDumpToMemory(&little, text, &size, 0) == CUDA_ERROR_INVALID_VALUE && size == 0);
    size = sizeof text;
    EXPECT(cuLogsDumpToMemory(&from, text, &size, 0) == CUDA_SUCCESS);
    EXPECT(size == std::strlen(text) && std::strstr(text, "cuCheckpointProcessLock"));
    size = sizeof text;
    EXPECT(cuLogsDumpToMemory(&from, text, &size, 0) == CUDA_SUCCESS && size == 0);  // nothing new
    char path[] = "/tmp/driver_extras_XXXXXX";
    int fd = mkstemp(path);
    EXPECT(cuLogsDumpToFile(&file_from, path, 0) == CUDA_SUCCESS);
    char from_file[1024] = {};
    EXPECT(read(fd, from_file, sizeof from_file - 1) > 0 && std::strcmp(from_file, text) != 0);
    EXPECT(std::strstr(from_file, "cuCheckpointProcessLock"));
    close(fd);
    unlink(path);
    EXPECT(cuLogsDumpToFile(nullptr, "/nowhere/at/all", 0) != CUDA_SUCCESS);
    EXPECT(cuLogsUnregisterCallback(handle) == CUDA_SUCCESS);
    EXPECT(cuLogsUnregisterCallback(handle) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuCheckpointProcessUnlock(1, nullptr) == CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(calls == 1);
}

static void notifications() {
    CUasyncCallbackHandle handle{};
    auto nothing = [](CUasyncNotificationInfo*, void*, CUasyncCallbackHandle) {};
    EXPECT(cuDeviceRegisterAsyncNotification(0, nothing, nullptr, &handle) == CUDA_SUCCESS);
    EXPECT(cuDeviceRegisterAsyncNotification(0, nullptr, nullptr, &handle) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuDeviceRegisterAsyncNotification(99, nothing, nullptr, &handle) == CUDA_ERROR_INVALID_DEVICE);
    EXPECT(cuDeviceUnregisterAsyncNotification(0, handle) == CUDA_SUCCESS);
    EXPECT(cuDeviceUnregisterAsyncNotification(0, handle) == CUDA_ERROR_INVALID_VALUE);
}

static void several_devices() {
    check::Array<int> value(1);
    cudaStream_t stream{};
    CUDA_OK(cudaMemset(value.data, 0, sizeof(int)));
    CUDA_OK(cudaDeviceSynchronize());  // the stream does not wait for the default one
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaFunction_t function{};
    CUDA_OK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(add_one)));
    void* parameters[] = {&value.data};
    CUDA_LAUNCH_PARAMS one{function, 1, 1, 1, 1, 1, 1, 0, stream, parameters};
    CUDA_LAUNCH_PARAMS twice[] = {one, one};
    EXPECT(cuLaunchCooperativeKernelMultiDevice(&one, 1, 0) == CUDA_SUCCESS);
    EXPECT(cuLaunchCooperativeKernelMultiDevice(twice, 2, 0) == CUDA_ERROR_INVALID_VALUE);  // one device
    EXPECT(cuLaunchCooperativeKernelMultiDevice(nullptr, 1, 0) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuLaunchCooperativeKernelMultiDevice(&one, 1, 8) == CUDA_ERROR_INVALID_VALUE);
    one.hStream = nullptr;
    EXPECT(cuLaunchCooperativeKernelMultiDevice(&one, 1, 0) == CUDA_ERROR_INVALID_VALUE);
    CUDA_OK(cudaStreamSynchronize(stream));
    EXPECT(value.host()[0] == 1);
}

static void pools_by_location() {
    CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemoryPool by_place = nullptr, by_device = nullptr;
    EXPECT(cuMemGetDefaultMemPool(&by_place, &here, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_SUCCESS);
    EXPECT(cuDeviceGetDefaultMemPool(&by_device, 0) == CUDA_SUCCESS);
    EXPECT(by_place == by_device);
    EXPECT(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, by_place) == CUDA_SUCCESS);
    EXPECT(cuMemGetMemPool(&by_place, &here, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_SUCCESS);
    EXPECT(by_place == by_device);
    here.id = 99;
    EXPECT(cuMemGetMemPool(&by_place, &here, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_ERROR_INVALID_DEVICE);
    EXPECT(cuMemGetMemPool(&by_place, nullptr, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_ERROR_INVALID_VALUE);
}

static void pools_of_the_host() {
    CUmemLocation host{CU_MEM_LOCATION_TYPE_HOST, 0};
    const auto pinned = CU_MEM_ALLOCATION_TYPE_PINNED;
    CUmemoryPool usual = nullptr, chosen = nullptr, own = nullptr, of_device = nullptr;
    EXPECT(cuMemGetDefaultMemPool(&usual, &host, pinned) == CUDA_SUCCESS);
    EXPECT(cuMemGetMemPool(&chosen, &host, pinned) == CUDA_SUCCESS && chosen == usual);
    EXPECT(cuMemPoolDestroy(usual) == CUDA_ERROR_INVALID_VALUE);

    CUdeviceptr address = 0;
    EXPECT(cuMemAllocFromPoolAsync(&address, 4096, usual, nullptr) == CUDA_SUCCESS);
    auto* value = reinterpret_cast<int*>(address);
    *value = 41;
    add_one<<<1, 1>>>(value);
    CUDA_OK(cudaDeviceSynchronize());
    EXPECT(*value == 42);
    EXPECT(cuMemFreeAsync(address, nullptr) == CUDA_SUCCESS);

    CUmemPoolProps wanted{};
    wanted.allocType = pinned;
    wanted.location = host;
    EXPECT(cuMemPoolCreate(&own, &wanted) == CUDA_SUCCESS);
    EXPECT(cuMemSetMemPool(&host, pinned, own) == CUDA_SUCCESS);
    EXPECT(cuMemGetMemPool(&chosen, &host, pinned) == CUDA_SUCCESS && chosen == own);
    EXPECT(cuDeviceGetDefaultMemPool(&of_device, 0) == CUDA_SUCCESS);
    EXPECT(cuMemSetMemPool(&host, pinned, of_device) == CUDA_ERROR_INVALID_VALUE);
    CUmemLocation nowhere{CU_MEM_LOCATION_TYPE_DEVICE, -1};
    EXPECT(cuMemSetMemPool(&nowhere, pinned, of_device) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuDeviceSetMemPool(0, own) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemPoolDestroy(own) == CUDA_SUCCESS);
    EXPECT(cuMemGetMemPool(&chosen, &host, pinned) == CUDA_SUCCESS && chosen == usual);
    host.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    EXPECT(cuMemGetDefaultMemPool(&usual, &host, pinned) == CUDA_ERROR_INVALID_VALUE);
}

static void managed_pools_by_location() {
    const auto managed = CU_MEM_ALLOCATION_TYPE_MANAGED;
    CUmemLocation nowhere{CU_MEM_LOCATION_TYPE_INVALID, 0}, here{CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemoryPool usual = nullptr, of_device = nullptr, chosen = nullptr, own = nullptr, pinned = nullptr;
    EXPECT(cuMemGetDefaultMemPool(&usual, &nowhere, managed) == CUDA_SUCCESS);
    EXPECT(cuMemGetDefaultMemPool(&of_device, &here, managed) == CUDA_SUCCESS && of_device != usual);
    EXPECT(cuMemGetMemPool(&chosen, &here, managed) == CUDA_SUCCESS && chosen == of_device);
    EXPECT(cuDeviceGetDefaultMemPool(&pinned, 0) == CUDA_SUCCESS && pinned != of_device);
    EXPECT(cuMemPoolDestroy(usual) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemSetMemPool(&here, managed, pinned) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemGetDefaultMemPool(&usual, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_ERROR_INVALID_VALUE);

    CUmemPoolProps wanted{};
    wanted.allocType = managed;
    wanted.location = here;
    EXPECT(cuMemPoolCreate(&own, &wanted) == CUDA_SUCCESS);
    EXPECT(cuMemSetMemPool(&here, managed, own) == CUDA_SUCCESS);
    EXPECT(cuMemGetMemPool(&chosen, &here, managed) == CUDA_SUCCESS && chosen == own);
    for (auto pool : {usual, of_device, own}) {
        CUdeviceptr address = 0;
        EXPECT(cuMemAllocFromPoolAsync(&address, 4096, pool, nullptr) == CUDA_SUCCESS);
        CUDA_OK(cudaDeviceSynchronize());
        auto* value = reinterpret_cast<int*>(address);
        *value = 41;
        add_one<<<1, 1>>>(value);
        CUDA_OK(cudaDeviceSynchronize());
        EXPECT(*value == 42);
        EXPECT(cuMemFreeAsync(address, nullptr) == CUDA_SUCCESS);
    }
    EXPECT(cuMemPoolDestroy(own) == CUDA_SUCCESS);
    EXPECT(cuMemGetMemPool(&chosen, &here, managed) == CUDA_SUCCESS && chosen == of_device);
}

int main() {
    CUDA_OK(cudaFree(nullptr));
    logs();
    notifications();
    several_devices();
    pools_by_location();
    pools_of_the_host();
    managed_pools_by_location();
    return check::finish();
}
