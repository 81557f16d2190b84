// Two processes share memory and events of the GPU, as PyTorch's multiprocessing does: one makes them and passes handles
// over a pipe, the other opens them, waits for the first one's work and answers in the same memory. Also shared pools, and
// cuMemCreate's memory as descriptors. Both processes are forks of one that has not used CUDA.
#include <cuda.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "check.hpp"

constexpr int count = 1 << 20;

__global__ void fill(int* out, int from) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = from + i;
}
__global__ void negate(int* values) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] = -values[i];
}
__global__ void dawdle(int* out, int rounds) {
    int sum = 0;
    for (int i = 0; i < rounds; ++i) sum += i ^ *out;
    *out = sum;
}

// A line between the two: values and descriptors.
struct Line {
    int socket;
    template <class T>
    void put(const T& value) {
        if (write(socket, &value, sizeof value) != sizeof value) std::exit(3);
    }
    template <class T>
    T get() {
        T value{};
        if (recv(socket, &value, sizeof value, MSG_WAITALL) != sizeof value) std::exit(4);
        return value;
    }
    void put_descriptor(int fd) {
        char byte = 0, room[CMSG_SPACE(sizeof fd)] = {};
        iovec one{&byte, 1};
        msghdr message{nullptr, 0, &one, 1, room, sizeof room, 0};
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof fd);
        std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
        if (sendmsg(socket, &message, 0) != 1) std::exit(5);
        close(fd);
    }
    int get_descriptor() {
        char byte = 0, room[CMSG_SPACE(sizeof(int))] = {};
        iovec one{&byte, 1};
        msghdr message{nullptr, 0, &one, 1, room, sizeof room, 0};
        if (recvmsg(socket, &message, 0) != 1) std::exit(6);
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
        return fd;
    }
};

constexpr int blocks = (count + 255) / 256;
constexpr int rounds = 20;
constexpr size_t small_bytes = 1000;

CUmemAllocationProp shareable() {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return properties;
}

int* map(CUmemGenericAllocationHandle memory, size_t bytes) {
    CUdeviceptr address = 0;
    CUmemAccessDesc access{shareable().location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT(cuMemAddressReserve(&address, bytes, 0, 0, 0) == CUDA_SUCCESS);
    EXPECT(cuMemMap(address, bytes, 0, memory, 0) == CUDA_SUCCESS);
    EXPECT(cuMemSetAccess(address, bytes, &access, 1) == CUDA_SUCCESS);
    return reinterpret_cast<int*>(address);
}

constexpr size_t mapped_bytes = size_t(4) << 20;

void first(Line line) {
    int *values = nullptr, *small = nullptr;
    CUDA_OK(cudaMalloc(&values, count * sizeof(int)));
    CUDA_OK(cudaMalloc(&small, small_bytes));  // one of several in a block
    cudaIpcMemHandle_t memory{}, small_memory{};
    CUDA_OK(cudaIpcGetMemHandle(&memory, values));
    CUDA_OK(cudaIpcGetMemHandle(&small_memory, small));
    cudaEvent_t filled{}, answered{};
    CUDA_OK(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming | cudaEventInterprocess));
    CUDA_OK(cudaEventCreateWithFlags(&answered, cudaEventDisableTiming | cudaEventInterprocess));
    cudaIpcEventHandle_t filled_handle{}, answered_handle{};
    CUDA_OK(cudaIpcGetEventHandle(&filled_handle, filled));
    CUDA_OK(cudaIpcGetEventHandle(&answered_handle, answered));
    cudaEvent_t own_event{};
    CUipcEventHandle none, zeros{};
    std::memset(&none, 0xff, sizeof none);
    CUDA_OK(cudaEventCreateWithFlags(&own_event, cudaEventDisableTiming));
    EXPECT(cuIpcGetEventHandle(&none, own_event) == CUDA_ERROR_INVALID_HANDLE);
    EXPECT(std::memcmp(&none, &zeros, sizeof none) == 0);
    CUDA_OK(cudaEventDestroy(own_event));
    line.put(memory), line.put(small_memory), line.put(filled_handle), line.put(answered_handle);
    void* own = nullptr;
    cudaEvent_t own_again{};
    EXPECT(cudaIpcOpenMemHandle(&own, memory, cudaIpcMemLazyEnablePeerAccess) == cudaErrorDeviceUninitialized);
    EXPECT(cudaIpcOpenEventHandle(&own_again, filled_handle) == cudaErrorDeviceUninitialized);
    EXPECT(cuIpcGetEventHandle(&none, nullptr) == CUDA_ERROR_INVALID_VALUE);
    (void)cudaGetLastError();
    CUDA_OK(cudaMemset(small, 7, small_bytes));
    for (int round = 0; round < rounds; ++round) {
        dawdle<<<1, 1>>>(small, 2000);  // so that the event is not reached at once
        fill<<<blocks, 256>>>(values, round);
        CUDA_OK(cudaEventRecord(filled));
        line.put(round);
        EXPECT(line.get<int>() == round);  // it has recorded its answer, and may not have got there
        CUDA_OK(cudaStreamWaitEvent(nullptr, answered, 0));
        int ends[2] = {};
        CUDA_OK(cudaMemcpy(&ends[0], values, sizeof(int), cudaMemcpyDeviceToHost));
        CUDA_OK(cudaMemcpy(&ends[1], values + count - 1, sizeof(int), cudaMemcpyDeviceToHost));
        EXPECT(ends[0] == -round && ends[1] == -(round + count - 1));
    }
    CUDA_OK(cudaEventSynchronize(answered));
    EXPECT(cudaEventQuery(answered) == cudaSuccess);
    EXPECT(line.get<int>() == 1);  // closed there
    CUDA_OK(cudaFree(values));

    CUmemGenericAllocationHandle physical{};
    auto properties = shareable();
    int fd = -1;
    EXPECT(cuMemCreate(&physical, mapped_bytes, &properties, 0) == CUDA_SUCCESS);
    EXPECT(cuMemExportToShareableHandle(&fd, physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    int* mapped = map(physical, mapped_bytes);
    fill<<<blocks, 256>>>(mapped, 5);
    CUDA_OK(cudaDeviceSynchronize());
    line.put_descriptor(fd);
    EXPECT(line.get<int>() == 2);
    int value = 0;
    CUDA_OK(cudaMemcpy(&value, mapped + 3, sizeof value, cudaMemcpyDeviceToHost));
    EXPECT(value == -8);

    cudaMemPoolProps pool_properties{};
    pool_properties.allocType = cudaMemAllocationTypePinned;
    pool_properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    pool_properties.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t pool{};
    CUDA_OK(cudaMemPoolCreate(&pool, &pool_properties));
    CUDA_OK(cudaMemPoolExportToShareableHandle(&fd, pool, cudaMemHandleTypePosixFileDescriptor, 0));
    int* pooled = nullptr;
    CUDA_OK(cudaMallocFromPoolAsync(reinterpret_cast<void**>(&pooled), count * sizeof(int), pool, nullptr));
    fill<<<blocks, 256>>>(pooled, 9);
    CUDA_OK(cudaDeviceSynchronize());
    line.put_descriptor(fd);
    cudaMemPool_t other{};
    CUDA_OK(cudaMemPoolCreate(&other, &pool_properties));
    CUmemPoolPtrExportData data{};
    // A thread without a context, as that of a queue of Python's multiprocessing.
    std::thread([&] {
        auto address = reinterpret_cast<CUdeviceptr>(pooled);
        EXPECT(cuMemPoolExportPointer(&data, address) == CUDA_SUCCESS);
        EXPECT(cuMemPoolExportToShareableHandle(&fd, other, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
               CUDA_SUCCESS);
    }).join();
    line.put_descriptor(fd);
    line.put(data);
    EXPECT(line.get<int>() == 3);
    CUDA_OK(cudaMemcpy(&value, pooled + 3, sizeof value, cudaMemcpyDeviceToHost));
    EXPECT(value == -12);
    CUDA_OK(cudaFreeAsync(pooled, nullptr));
    CUDA_OK(cudaDeviceSynchronize());
    cudaIpcMemHandle_t gone{};
    EXPECT(cudaIpcGetMemHandle(&gone, pooled) != cudaSuccess);
}

cudaMemPool_t imported_pool(int fd) {
    cudaMemPool_t pool{};
    auto* handle = reinterpret_cast<void*>(intptr_t(fd));
    std::thread([&] {  // without a context
        EXPECT(cuMemPoolImportFromShareableHandle(&pool, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
               CUDA_SUCCESS);
    })
        .join();
    close(fd);
    return pool;
}

void second(Line line) {
    auto memory = line.get<cudaIpcMemHandle_t>();
    auto small_memory = line.get<cudaIpcMemHandle_t>();
    auto filled_handle = line.get<cudaIpcEventHandle_t>();
    auto answered_handle = line.get<cudaIpcEventHandle_t>();
    int *values = nullptr, *again = nullptr, *small = nullptr;
    CUDA_OK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&values), memory, cudaIpcMemLazyEnablePeerAccess));
    CUDA_OK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), memory, cudaIpcMemLazyEnablePeerAccess));
    EXPECT(again == values);
    CUDA_OK(cudaIpcCloseMemHandle(again));
    CUcontext another{};
    EXPECT(cuCtxCreate(&another, nullptr, 0, 0) == CUDA_SUCCESS);
    EXPECT(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), memory, cudaIpcMemLazyEnablePeerAccess) ==
           cudaErrorInvalidResourceHandle);  // one context of a device at a time
    (void)cudaGetLastError();
    EXPECT(cuCtxDestroy(another) == CUDA_SUCCESS);
    CUDA_OK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&small), small_memory, cudaIpcMemLazyEnablePeerAccess));
    cudaEvent_t filled{}, answered{};
    CUDA_OK(cudaIpcOpenEventHandle(&filled, filled_handle));
    CUDA_OK(cudaIpcOpenEventHandle(&answered, answered_handle));
    memory.reserved[20] ^= 1;  // no such name
    EXPECT(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), memory, cudaIpcMemLazyEnablePeerAccess) !=
           cudaSuccess);
    (void)cudaGetLastError();
    for (int round = 0; round < rounds; ++round) {
        EXPECT(line.get<int>() == round);
        CUDA_OK(cudaStreamWaitEvent(nullptr, filled, 0));
        negate<<<blocks, 256>>>(values);
        CUDA_OK(cudaEventRecord(answered));
        line.put(round);
    }
    CUDA_OK(cudaDeviceSynchronize());
    unsigned char last = 0;
    CUDA_OK(cudaMemcpy(&last, reinterpret_cast<char*>(small) + small_bytes - 1, 1, cudaMemcpyDeviceToHost));
    EXPECT(last == 7);
    CUDA_OK(cudaIpcCloseMemHandle(values));
    CUDA_OK(cudaIpcCloseMemHandle(small));
    EXPECT(cudaIpcCloseMemHandle(small) != cudaSuccess);
    (void)cudaGetLastError();
    CUDA_OK(cudaEventDestroy(filled));
    CUDA_OK(cudaEventDestroy(answered));
    line.put(1);

    int fd = line.get_descriptor();
    CUmemGenericAllocationHandle physical{};
    auto type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    EXPECT(cuMemImportFromShareableHandle(&physical, reinterpret_cast<void*>(intptr_t(fd)), type) == CUDA_SUCCESS);
    close(fd);
    int* mapped = map(physical, mapped_bytes);
    negate<<<blocks, 256>>>(mapped);
    CUDA_OK(cudaDeviceSynchronize());
    EXPECT(cuMemUnmap(reinterpret_cast<CUdeviceptr>(mapped), mapped_bytes) == CUDA_SUCCESS);
    EXPECT(cuMemRelease(physical) == CUDA_SUCCESS);
    line.put(2);

    cudaMemPool_t pool = imported_pool(line.get_descriptor()), other = imported_pool(line.get_descriptor());
    auto data = line.get<cudaMemPoolPtrExportData>();
    int* pooled = nullptr;
    EXPECT(cudaMemPoolImportPointer(reinterpret_cast<void**>(&pooled), other, &data) == cudaErrorInvalidValue);
    (void)cudaGetLastError();
    CUDA_OK(cudaMemPoolImportPointer(reinterpret_cast<void**>(&pooled), pool, &data));
    negate<<<blocks, 256>>>(pooled);
    CUDA_OK(cudaFreeAsync(pooled, nullptr));
    EXPECT(cudaMallocFromPoolAsync(reinterpret_cast<void**>(&pooled), 64, pool, nullptr) != cudaSuccess);  // not ours
    (void)cudaGetLastError();
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaMemPoolDestroy(pool));
    CUDA_OK(cudaMemPoolDestroy(other));
    line.put(3);
}

int main() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 2;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        second({ends[1]});
        std::exit(check::finish());
    }
    close(ends[1]);
    first({ends[0]});
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return check::finish();
}
