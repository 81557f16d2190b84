// Multicast objects on two devices, and kernels that use them by multimem. Where no device has multicast, or there is only
// one, these have nothing to say and pass with a note.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include "gpu.hpp"

using namespace driver_api;

namespace {

constexpr size_t part_ints = 1024;  // of what the kernels work on

// A grid of one block: `sum` gives what is at the multicast address, summed, at `out`; `put` stores to every device; `gather`
// adds to every device.
constexpr char multimem_kernels[] = R"(.version 8.1
.target sm_90
.address_size 64
.visible .entry sum(.param .u64 at, .param .u64 out) {
    .reg .b64 %a, %o, %l; .reg .b32 %t, %v;
    ld.param.u64 %a, [at]; ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %l, %t, 4;
    add.u64 %a, %a, %l; add.u64 %o, %o, %l;
    multimem.ld_reduce.relaxed.sys.global.add.u32 %v, [%a];
    st.global.u32 [%o], %v;
    ret;
}
.visible .entry put(.param .u64 at, .param .u64 value) {
    .reg .b64 %a, %w, %l; .reg .b32 %t, %v;
    ld.param.u64 %a, [at]; ld.param.u64 %w, [value]; mov.u32 %t, %tid.x; mul.wide.u32 %l, %t, 4;
    add.u64 %a, %a, %l; cvt.u32.u64 %v, %w; add.u32 %v, %v, %t;
    multimem.st.relaxed.sys.global.u32 [%a], %v;
    ret;
}
.visible .entry gather(.param .u64 at, .param .u64 value) {
    .reg .b64 %a, %w, %l; .reg .b32 %t, %v;
    ld.param.u64 %a, [at]; ld.param.u64 %w, [value]; mov.u32 %t, %tid.x; mul.wide.u32 %l, %t, 4;
    add.u64 %a, %a, %l; cvt.u32.u64 %v, %w;
    multimem.red.relaxed.sys.global.add.u32 [%a], %v;
    ret;
}
)";

void run_multimem(const char* name, CUdeviceptr at, uint64_t argument) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CU_OK(cu.cuModuleLoadData(&module, multimem_kernels));
    CU_OK(cu.cuModuleGetFunction(&function, module, name));
    void* arguments[] = {&at, &argument};
    CU_OK(cu.cuLaunchKernel(function, 1, 1, 1, part_ints, 1, 1, 0, nullptr, arguments, nullptr));
    CU_OK(cu.cuCtxSynchronize());
    CU_OK(cu.cuModuleUnload(module));
}

bool two_devices_have_multicast() {
    int count = 0, first = 0, second = 0;
    CU_OK(cu.cuInit(0));
    CU_OK(cu.cuDeviceGetCount(&count));
    if (count >= 2) {
        CU_OK(cu.cuDeviceGetAttribute(&first, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0));
        CU_OK(cu.cuDeviceGetAttribute(&second, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 1));
    }
    if (!first || !second) WARN("there are no two devices with multicast: nothing tested");
    return first && second;
}

CUmulticastObjectProp team_of_two(unsigned long long handle_types = 0) {
    CUmulticastObjectProp properties{};
    properties.numDevices = 2;
    properties.handleTypes = handle_types;
    size_t bytes = 0;
    properties.size = 1;  // any
    CU_OK(cu.cuMulticastGetGranularity(&bytes, &properties, CU_MULTICAST_GRANULARITY_RECOMMENDED));
    properties.size = bytes;
    return properties;
}

// Memory of cuMemCreate, mapped for both devices, so that copies may be made in either's context.
struct Part {
    Part(const Gpu& gpu, size_t size, CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_NONE) : bytes(size) {
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
        properties.requestedHandleTypes = type;
        CUmemAccessDesc access[2] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                     {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
        CU_OK(cu.cuMemCreate(&memory, bytes, &properties, 0));
        CU_OK(cu.cuMemAddressReserve(&address, bytes, 0, 0, 0));
        CU_OK(cu.cuMemMap(address, bytes, 0, memory, 0));
        CU_OK(cu.cuMemSetAccess(address, bytes, access, 2));
    }
    ~Part() {
        cu.cuMemUnmap(address, bytes);
        cu.cuMemAddressFree(address, bytes);
        cu.cuMemRelease(memory);
    }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    std::vector<unsigned> read() const {
        std::vector<unsigned> values(part_ints);
        CU_OK(cu.cuMemcpyDtoH(values.data(), address, part_ints * sizeof(unsigned)));
        return values;
    }

    size_t bytes;
    CUmemGenericAllocationHandle memory = 0;
    CUdeviceptr address = 0;
};

// Two devices with memory that is bound to one object, which both may use at one address. The first is current.
struct Pair {
    explicit Pair(unsigned long long handle_types = 0) : properties(team_of_two(handle_types)) {
        CU_OK(cu.cuMulticastCreate(&object, &properties));
        CU_OK(cu.cuCtxSetCurrent(first.context));
    }
    void add_both() const {
        CU_OK(cu.cuMulticastAddDevice(object, first.device));
        CU_OK(cu.cuMulticastAddDevice(object, second.device));
    }
    void map() {
        CU_OK(cu.cuMemAddressReserve(&address, properties.size, 0, 0, 0));
        CU_OK(cu.cuMemMap(address, properties.size, 0, object, 0));
        for (auto* gpu : {&first, &second}) {
            CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, gpu->device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
            CU_OK(cu.cuMemSetAccess(address, properties.size, &access, 1));
        }
    }
    ~Pair() {
        if (address) {
            cu.cuMemUnmap(address, properties.size);
            cu.cuMemAddressFree(address, properties.size);
        }
        if (object) cu.cuMemRelease(object);
        cu.cuCtxSetCurrent(first.context);
    }
    Pair(const Pair&) = delete;
    Pair& operator=(const Pair&) = delete;

    Gpu first{0}, second{1};
    CUmulticastObjectProp properties;
    CUmemGenericAllocationHandle object = 0;
    CUdeviceptr address = 0;
};

std::vector<unsigned> counted_from(unsigned begin) {
    std::vector<unsigned> values(part_ints);
    std::iota(values.begin(), values.end(), begin);
    return values;
}

}  // namespace

TEST_CASE("a multicast address is the memory of every device that is bound to it", "[multicast][devices]") {
    if (!two_devices_have_multicast()) return;
    Pair pair;
    Part one(pair.first, pair.properties.size), other(pair.second, pair.properties.size);
    CU_OK(cu.cuMemsetD32(one.address, 30, part_ints));  // what is there goes on being there
    CU_OK(cu.cuMemsetD32(other.address, 4, part_ints));
    CU_OK(cu.cuCtxSynchronize());
    pair.add_both();
    CU_OK(cu.cuMulticastBindMem(pair.object, 0, one.memory, 0, one.bytes, 0));
    CU_OK(cu.cuMulticastBindAddr(pair.object, 0, other.address, other.bytes, 0));
    pair.map();
    Memory out(part_ints * sizeof(unsigned));
    run_multimem("sum", pair.address, out.address);
    CHECK(out.read<unsigned>(part_ints) == std::vector<unsigned>(part_ints, 34));
    CU_OK(cu.cuCtxSetCurrent(pair.second.context));  // either device has the same address
    run_multimem("put", pair.address, 1000);
    CHECK(one.read() == counted_from(1000));
    CHECK(other.read() == counted_from(1000));
    CU_OK(cu.cuCtxSetCurrent(pair.first.context));
    run_multimem("gather", pair.address, 7);
    CHECK(one.read() == counted_from(1007));
    CHECK(other.read() == counted_from(1007));
    CU_OK(cu.cuMulticastUnbind(pair.object, pair.first.device, 0, one.bytes));
    CU_OK(cu.cuMulticastUnbind(pair.object, pair.second.device, 0, other.bytes));
    CHECK(one.read() == counted_from(1007));
}

TEST_CASE("a multicast object lives on while it is mapped, and its memory while it is bound", "[multicast][devices]") {
    if (!two_devices_have_multicast()) return;
    Pair pair;
    pair.add_both();
    {
        Part one(pair.first, pair.properties.size), other(pair.second, pair.properties.size);
        CU_OK(cu.cuMemsetD32(one.address, 1, part_ints));
        CU_OK(cu.cuMemsetD32(other.address, 2, part_ints));
        CU_OK(cu.cuCtxSynchronize());
        CU_OK(cu.cuMulticastBindMem(pair.object, 0, one.memory, 0, one.bytes, 0));
        CU_OK(cu.cuMulticastBindMem(pair.object, 0, other.memory, 0, other.bytes, 0));
    }
    pair.map();
    CU_OK(cu.cuMemRelease(pair.object));
    CU_CHECK(cu.cuMulticastAddDevice(pair.object, 0), CUDA_ERROR_INVALID_VALUE);
    Memory out(part_ints * sizeof(unsigned));
    run_multimem("sum", pair.address, out.address);
    CHECK(out.first<unsigned>() == 3);
    CU_OK(cu.cuMemRetainAllocationHandle(&pair.object, reinterpret_cast<void*>(pair.address)));
    CU_OK(cu.cuMulticastUnbind(pair.object, pair.second.device, 0, pair.properties.size));
}

TEST_CASE("memory that is bound counts as used until it is unbound, or the object has gone", "[multicast][devices]") {
    if (!two_devices_have_multicast()) return;
    Pair pair;
    pair.add_both();
    auto free_bytes = [&] {
        size_t free = 0, total = 0;
        CU_OK(cu.cuCtxSetCurrent(pair.first.context));
        CU_OK(cu.cuMemGetInfo(&free, &total));
        return free;
    };
    for (bool by_unbinding : {true, false}) {
        const auto before = free_bytes();
        {
            Part one(pair.first, pair.properties.size);
            CU_OK(cu.cuMulticastBindMem(pair.object, 0, one.memory, 0, one.bytes, 0));
        }
        CHECK(free_bytes() + pair.properties.size <= before);
        if (by_unbinding) {
            CU_OK(cu.cuMulticastUnbind(pair.object, pair.first.device, 0, pair.properties.size));
        } else {
            CU_OK(cu.cuMemRelease(pair.object));
            pair.object = 0;
        }
        CHECK(free_bytes() == before);
    }
}

TEST_CASE("binding waits until all devices are in the team", "[multicast][devices]") {
    if (!two_devices_have_multicast()) return;
    Pair pair;
    Part one(pair.first, pair.properties.size);
    CU_OK(cu.cuMulticastAddDevice(pair.object, pair.first.device));
    std::atomic<bool> added{false};
    std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        added = true;
        cu.cuMulticastAddDevice(pair.object, pair.second.device);
    });
    CUresult bound = cu.cuMulticastBindMem(pair.object, 0, one.memory, 0, one.bytes, 0);
    CHECK(added);
    later.join();
    CU_OK(bound);
}

TEST_CASE("multicast calls refuse what makes no sense", "[multicast][devices]") {
    if (!two_devices_have_multicast()) return;
    Pair pair;
    Part one(pair.first, pair.properties.size);
    const auto size = pair.properties.size;
    CUmemGenericAllocationHandle made = 0;
    size_t granularity = 0;
    auto with = [&](auto change) {
        auto properties = pair.properties;
        change(properties);
        return cu.cuMulticastCreate(&made, &properties);
    };
    CU_CHECK(with([](auto& p) { p.flags = 1; }), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(with([](auto& p) { p.numDevices = 0; }), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(with([](auto& p) { p.size = 0; }), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(with([](auto& p) { p.size += 4096; }), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMulticastCreate(nullptr, &pair.properties), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMulticastCreate(&made, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMulticastGetGranularity(&granularity, &pair.properties, CU_MULTICAST_GRANULARITY_MINIMUM));
    CHECK(granularity != 0);
    CHECK(size % granularity == 0);
    CU_CHECK(cu.cuMulticastGetGranularity(nullptr, &pair.properties, CU_MULTICAST_GRANULARITY_MINIMUM),
             CUDA_ERROR_INVALID_VALUE);

    CU_OK(cu.cuMulticastAddDevice(pair.object, 0));
    CU_CHECK_EITHER(cu.cuMulticastAddDevice(pair.object, 0), CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE);
    CU_CHECK(cu.cuMulticastAddDevice(pair.object, 99), CUDA_ERROR_INVALID_DEVICE);
    CU_CHECK(cu.cuMulticastAddDevice(one.memory, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMulticastAddDevice(pair.object + 0x1000000, 1), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMulticastAddDevice(pair.object, 1));
    CU_CHECK_EITHER(cu.cuMulticastAddDevice(pair.object, 1), CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE);

    CU_CHECK(cu.cuMulticastBindMem(pair.object, 0, one.memory, 0, size, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMulticastBindMem(pair.object, size, one.memory, 0, size, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMulticastBindMem(pair.object, 0, one.memory, size, size, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMulticastBindMem(pair.object, 4096, one.memory, 0, size, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMulticastBindMem(pair.object, 0, pair.object, 0, size, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMulticastBindMem(one.memory, 0, one.memory, 0, size, 0), CUDA_ERROR_INVALID_VALUE);
    Memory ordinary(4096);
    CU_CHECK(cu.cuMulticastBindAddr(pair.object, 0, ordinary.address, size, 0), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMulticastBindMem(pair.object, 0, one.memory, 0, size, 0));
    CU_CHECK(cu.cuMulticastUnbind(pair.object, 99, 0, size), CUDA_ERROR_INVALID_DEVICE);
    CU_CHECK(cu.cuMulticastUnbind(pair.object, 0, size, size), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMulticastBindMem(pair.object, 0, one.memory, 0, size, 0), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMulticastUnbind(pair.object, 0, 0, size));
    CU_CHECK(cu.cuMulticastUnbind(pair.object, 0, 0, size), CUDA_ERROR_INVALID_VALUE);

    CUmemAllocationProp of_memory{};
    CU_CHECK(cu.cuMemGetAllocationPropertiesFromHandle(&of_memory, pair.object), CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr address = 0;
    CU_OK(cu.cuMemAddressReserve(&address, 2 * size, 0, 0, 0));
    CU_CHECK(cu.cuMemMap(address, 2 * size, 0, pair.object, 0), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMemMap(address, size, 0, pair.object, 0));  // a refused mapping left nothing behind
    CU_CHECK(cu.cuMemMap(address, size, 0, pair.object, 0), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMemUnmap(address, size));
    CU_OK(cu.cuMemAddressFree(address, 2 * size));
}

TEST_CASE("only devices of its team may use a multicast object", "[multicast][devices]") {
    if (!two_devices_have_multicast()) return;
    Gpu first{0};
    auto properties = team_of_two();
    properties.numDevices = 1;
    CUmemGenericAllocationHandle object = 0;
    CUdeviceptr address = 0;
    CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    unsigned long long flags = 7;
    CU_OK(cu.cuMulticastCreate(&object, &properties));
    CU_OK(cu.cuMulticastAddDevice(object, 0));
    CU_OK(cu.cuMemAddressReserve(&address, properties.size, 0, 0, 0));
    CU_OK(cu.cuMemMap(address, properties.size, 0, object, 0));
    CHECK(cu.cuMemSetAccess(address, properties.size, &access, 1) != CUDA_SUCCESS);
    CU_OK(cu.cuMemGetAccess(&flags, &access.location, address));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    access.location.id = 0;
    CU_OK(cu.cuMemSetAccess(address, properties.size, &access, 1));
    CU_OK(cu.cuMemGetAccess(&flags, &access.location, address));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CU_OK(cu.cuMemUnmap(address, properties.size));
    CU_OK(cu.cuMemRelease(object));
    CU_OK(cu.cuMemAddressFree(address, properties.size));
}

TEST_CASE("a descriptor stands for a multicast object", "[multicast][devices]") {
    if (!two_devices_have_multicast()) return;
    constexpr auto as_descriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    Pair pair(as_descriptor);
    Part one(pair.first, pair.properties.size, as_descriptor), other(pair.second, pair.properties.size, as_descriptor);
    CUmemGenericAllocationHandle again = 0;
    int fd = -1;
    CU_OK(cu.cuMemExportToShareableHandle(&fd, pair.object, as_descriptor, 0));
    CU_OK(cu.cuMemImportFromShareableHandle(&again, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), as_descriptor));
    close(fd);
    CU_OK(cu.cuMulticastAddDevice(pair.object, 0));
    CU_OK(cu.cuMulticastAddDevice(again, 1));
    CU_OK(cu.cuMulticastBindMem(again, 0, one.memory, 0, one.bytes, 0));
    CU_OK(cu.cuMulticastBindMem(pair.object, 0, other.memory, 0, other.bytes, 0));
    pair.map();
    run_multimem("put", pair.address, 5);
    CHECK(one.read() == counted_from(5));
    CHECK(other.read() == counted_from(5));
    CU_OK(cu.cuMemRelease(again));

    Pair own;
    CU_CHECK(cu.cuMemExportToShareableHandle(&fd, own.object, as_descriptor, 0), CUDA_ERROR_INVALID_VALUE);
}

namespace {

// A descriptor for the other process, and a byte that says how far this one is.
void send_descriptor(int socket, int fd) {
    char byte = 'd', space[CMSG_SPACE(sizeof fd)] = {};
    iovec data{&byte, 1};
    msghdr message{nullptr, 0, &data, 1, space, sizeof space, 0};
    auto* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    REQUIRE(sendmsg(socket, &message, MSG_NOSIGNAL) == 1);
}
int receive_descriptor(int socket) {
    int fd = -1;
    char byte = 0, space[CMSG_SPACE(sizeof fd)] = {};
    iovec data{&byte, 1};
    msghdr message{nullptr, 0, &data, 1, space, sizeof space, 0};
    if (recvmsg(socket, &message, 0) != 1) return -1;
    auto* header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS) std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
}
void tell(int socket) {
    REQUIRE(send(socket, "x", 1, MSG_NOSIGNAL) == 1);
}
void hear(int socket) {
    char byte = 0;
    REQUIRE(recv(socket, &byte, 1, 0) == 1);
}

constexpr auto descriptor_type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

// The team's part of one process: it adds its device, and binds and maps memory of it.
struct TeamMember {
    TeamMember(int ordinal, size_t size, CUmemGenericAllocationHandle multicast)
        : gpu(ordinal), part(gpu, size, descriptor_type), object(multicast) {
        CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, gpu.device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CU_OK(cu.cuMulticastAddDevice(object, gpu.device));
        CU_OK(cu.cuMulticastBindMem(object, 0, part.memory, 0, size, 0));
        CU_OK(cu.cuMemAddressReserve(&address, size, 0, 0, 0));
        CU_OK(cu.cuMemMap(address, size, 0, object, 0));
        CU_OK(cu.cuMemSetAccess(address, size, &access, 1));
    }
    Gpu gpu;
    Part part;
    CUmemGenericAllocationHandle object;
    CUdeviceptr address = 0;
};

void be_the_second_process(int socket) {
    int fd = receive_descriptor(socket);
    if (fd < 0) return;  // there are no two devices with multicast
    CUmemGenericAllocationHandle object = 0;
    CU_OK(cu.cuInit(0));
    auto* os_handle = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
    CU_OK(cu.cuMemImportFromShareableHandle(&object, os_handle, descriptor_type));
    close(fd);
    TeamMember second(1, team_of_two(descriptor_type).size, object);
    tell(socket);
    hear(socket);
    CHECK(second.part.read() == counted_from(50));
    run_multimem("gather", second.address, 8);
    tell(socket);
    hear(socket);
}

void be_the_first_process(int socket) {
    if (!two_devices_have_multicast()) return;
    auto properties = team_of_two(descriptor_type);
    CUmemGenericAllocationHandle object = 0;
    int fd = -1;
    CU_OK(cu.cuMulticastCreate(&object, &properties));
    CU_OK(cu.cuMemExportToShareableHandle(&fd, object, descriptor_type, 0));
    send_descriptor(socket, fd);
    close(fd);
    TeamMember first(0, properties.size, object);
    hear(socket);
    run_multimem("put", first.address, 50);
    tell(socket);
    hear(socket);
    CHECK(first.part.read() == counted_from(58));
    tell(socket);
}

}  // namespace

FRESH_PROCESS_TEST_CASE("a multicast object joins the devices of two processes", "[multicast][devices]") {
    int ends[2] = {};
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    pid_t other = fork();  // before the driver is first called
    close(ends[other == 0 ? 0 : 1]);
    if (other == 0) {
        be_the_second_process(ends[1]);
        return;  // its own results decide what it ends with
    }
    be_the_first_process(ends[0]);
    close(ends[0]);
    int status = -1;
    REQUIRE(waitpid(other, &status, 0) == other);
    CHECK(status == 0);
}
