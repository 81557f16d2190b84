// A client that maps what it was never granted: the worker refuses, and what others were granted stays theirs. Speaks raw
// records through the client library's own session, to a worker beside it (with_server.py).
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>
#include "tests/support/catch.hpp"

#include "cuda_calls.hpp"
#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/device_memory.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/graph_objects.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/stats.hpp"
#include "gpu_client/protocol/array_records.hpp"
#include "gpu_client/protocol/multicast_records.hpp"
#include "gpu_server/worker/limits.hpp"
#include "raw_records.hpp"

using namespace tnr;
using namespace tnr::cuda;
using namespace tnr::test;

namespace {

constexpr int bystander_reads = 10, bystander_writes = 11;

// Another process of the same machine on the same GPU: it has memory, and uses it when it is told to.
class Bystander {
public:
    Bystander() {
        int to[2], from[2];
        REQUIRE((pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0));
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, to[0], bystander_reads);
        posix_spawn_file_actions_adddup2(&actions, from[1], bystander_writes);
        std::string words[] = {"grants_tests", "a bystander of the hostile client"};
        char* arguments[] = {words[0].data(), words[1].data(), nullptr};
        REQUIRE(posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments, environ) == 0);
        posix_spawn_file_actions_destroy(&actions);
        close(to[0]);
        close(from[1]);
        to_ = to[1];
        from_ = from[0];
    }
    ~Bystander() {
        close(to_);
        close(from_);
        int status = 0;
        waitpid(pid_, &status, 0);
    }
    Bystander(const Bystander&) = delete;
    Bystander& operator=(const Bystander&) = delete;

    char next() {
        char word = '?';
        return read(from_, &word, 1) == 1 ? word : '?';
    }
    void go() { REQUIRE(write(to_, "g", 1) == 1); }

private:
    pid_t pid_ = -1;
    int to_ = -1, from_ = -1;
};

}  // namespace

TEST_CASE("a client cannot map more than the supervisor grants", "[maps]") {
    Held held;
    const uint64_t address = addresses(gpu_bytes + step);
    for (uint16_t unmap : {uint16_t{wire::op_memory_unmap}, wire::op_cuMemUnmap}) {
        uint64_t mapped = map_all(address);
        CHECK(mapped <= gpu_bytes - reserve_bytes);
        CHECK(mapped >= gpu_bytes / 2);
        CHECK(free_bytes() >= reserve_bytes);  // the driver would have had more
        unmap_all(address, mapped, unmap);     // and every time it comes back, once
        (void)ask(unmap, address, step);       // where nothing is mapped any more NVIDIA's driver says that it is done
    }
    CHECK(map_all(address) <= gpu_bytes - reserve_bytes);
}

TEST_CASE("memory that is made without being mapped counts, too, until it is released and unmapped", "[makes]") {
    Held held;
    const uint64_t address = addresses(2 * step);
    for (int round = 0; round < 2; ++round) {
        uint64_t made = 0;
        CUresult result = CUDA_SUCCESS;
        for (uint64_t number = 1; made <= gpu_bytes; ++number, made += step)
            if ((result = ask(wire::op_cuMemCreate, number, uint32_t{0}, step)) != CUDA_SUCCESS) break;
        CHECK(result == CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(made <= gpu_bytes - reserve_bytes);
        CHECK(ask(wire::op_cuMemMap, address, step, uint64_t{0}, uint64_t{1}) == CUDA_SUCCESS);
        for (uint64_t number = 1; number <= made / step; ++number)
            CHECK(ask(wire::op_cuMemRelease, number) == CUDA_SUCCESS);
        CHECK(ask(wire::op_cuMemRelease, uint64_t{1}) != CUDA_SUCCESS);
        CHECK(ask(wire::op_cuMemUnmap, address, step) == CUDA_SUCCESS);
    }
}

namespace {

// A graph whose launches leave memory behind, launched by a record of our own: nobody has asked for a grant.
class LeavingGraph {
public:
    explicit LeavingGraph(uint64_t bytes) {
        CUgraph graph = nullptr;
        CUgraphNode node = nullptr;
        CUDA_MEM_ALLOC_NODE_PARAMS params{};
        params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
        params.bytesize = bytes;
        REQUIRE(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
        REQUIRE(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params) == CUDA_SUCCESS);
        REQUIRE(cuGraphInstantiateWithFlags(&exec_, graph, 0) == CUDA_SUCCESS);
        REQUIRE(cuGraphDestroy(graph) == CUDA_SUCCESS);
        address = params.dptr;
    }
    CUresult launch() const {
        auto number = find_graph_exec(exec_)->number;
        CUcontext context = nullptr;
        REQUIRE(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
        return ask_in(context, wire::op_cuGraphLaunch, number, uint64_t{0});
    }
    void destroy() const { REQUIRE(cuGraphExecDestroy(exec_) == CUDA_SUCCESS); }

    CUdeviceptr address = 0;

private:
    CUgraphExec exec_ = nullptr;
};

}  // namespace

TEST_CASE("what graphs reserve counts, too, until they are made to give it up", "[graphs]") {
    Held held;
    const uint64_t address = addresses(gpu_bytes + step);
    LeavingGraph graph(700 * mib);
    REQUIRE(graph.launch() == CUDA_SUCCESS);
    for (uint16_t unmap : {uint16_t{wire::op_memory_unmap}, wire::op_cuMemUnmap}) {
        uint64_t mapped = map_all(address);
        CHECK(mapped <= gpu_bytes - reserve_bytes - 700 * mib);
        CHECK(mapped >= gpu_bytes / 2);
        LeavingGraph more(reserve_bytes / 2);  // the driver would have it
        CHECK(more.launch() == CUDA_ERROR_OUT_OF_MEMORY);
        more.destroy();
        unmap_all(address, mapped, unmap);
    }
    CHECK(cuMemFree_v2(graph.address) == CUDA_SUCCESS);
    CHECK(graph.launch() == CUDA_SUCCESS);  // what it has reserved already
    CHECK(cuMemFree_v2(graph.address) == CUDA_SUCCESS);
    uint64_t mapped = map_all(address);  // needs what the graph does not
    CHECK(mapped > gpu_bytes - reserve_bytes - 700 * mib);
    CHECK(graph.launch() == CUDA_ERROR_OUT_OF_MEMORY);
    unmap_all(address, mapped, wire::op_memory_unmap);
    CHECK(graph.launch() == CUDA_SUCCESS);
    CHECK(cuMemFree_v2(graph.address) == CUDA_SUCCESS);
    CHECK(cuDeviceGraphMemTrim(0) == CUDA_SUCCESS);
    CHECK(map_all(address) == mapped);
}

TEST_CASE("graphs that are gone leave what they left charged", "[leftovers]") {
    Held held;
    uint64_t left = 0;
    std::vector<CUdeviceptr> addresses;
    CUresult result = CUDA_SUCCESS;
    for (; left <= gpu_bytes; left += step) {
        LeavingGraph graph(step);
        result = graph.launch();
        graph.destroy();
        if (result != CUDA_SUCCESS) break;
        addresses.push_back(graph.address);
    }
    CHECK(result == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(left <= gpu_bytes - reserve_bytes);
    CHECK(left >= gpu_bytes / 2);
    for (auto address : addresses) CHECK(cuMemFree_v2(address) == CUDA_SUCCESS);
    CUdeviceptr all = 0;  // an honest program has it all again
    CHECK(cuMemAlloc_v2(&all, left) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("a hostile client does not get at what another was granted", "[bystander]") {
    Bystander bystander;
    REQUIRE(bystander.next() == 'r');  // it has its memory
    Held held;
    CHECK(map_all(addresses(gpu_bytes + step)) < gpu_bytes - reserve_bytes - 900 * mib);
    bystander.go();
    CHECK(bystander.next() == 'w');  // it was its own
}

TEST_CASE("what a process has freed is there for another, and its own again later", "[returned]") {
    constexpr uint64_t most = 1600 * mib;
    Held held;
    CUdeviceptr memory = 0;
    REQUIRE(cuMemAlloc_v2(&memory, most) == CUDA_SUCCESS);
    REQUIRE(cuMemsetD8Async(memory, 1, mib, nullptr) == CUDA_SUCCESS);
    REQUIRE(cuMemFree_v2(memory) == CUDA_SUCCESS);  // and from here on this process makes no calls
    {
        Bystander bystander;
        REQUIRE(bystander.next() == 'r');
        CHECK(cuMemAlloc_v2(&memory, most) == CUDA_ERROR_OUT_OF_MEMORY);  // it is the other's now
        CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
        bystander.go();
        REQUIRE(bystander.next() == 'w');
    }
    CHECK(cuMemAlloc_v2(&memory, most) == CUDA_SUCCESS);
    CHECK(cuMemsetD8_v2(memory + most - mib, 1, mib) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

// The emulated GPUs of two workers are two, so it is not the amount that tells: it is whom the client asks.
TEST_CASE("free memory is asked of the worker while another process uses the GPU", "[sharing]") {
    Held held;
    auto round_trips_of_asking_twice = [] {
        uint64_t before = stats().round_trips();
        (void)free_bytes();
        (void)free_bytes();
        return stats().round_trips() - before;
    };
    (void)free_bytes();
    while (round_trips_of_asking_twice() != 0) {  // an answer lasts a second
    }
    {
        Bystander bystander;
        REQUIRE(bystander.next() == 'r');
        CHECK(round_trips_of_asking_twice() == 2);
        bystander.go();
        REQUIRE(bystander.next() == 'w');
        CHECK(round_trips_of_asking_twice() == 2);
    }
    while (round_trips_of_asking_twice() != 0) {  // its worker ends soon after it
    }
}

namespace {

constexpr uint64_t first_number = 1000;  // of what these tests make: far from the client's own
constexpr uint64_t as_descriptor = 1;    // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

CUresult make_team(uint64_t number, uint32_t devices, uint64_t bytes = step, uint64_t handle_types = 0) {
    return ask(wire::op_cuMulticastCreate, number, devices, bytes, handle_types);
}
CUresult make_memory(uint64_t number, uint32_t device = 0) {
    return ask(wire::op_cuMemCreate, number, device, step);
}
CUresult add(uint64_t team, uint32_t device) {
    return ask(wire::op_cuMulticastAddDevice, team, device);
}
CUresult bind(uint64_t team, uint64_t memory, uint64_t offset = 0, uint64_t bytes = step) {
    return ask(wire::op_cuMulticastBindMem, team, offset, memory, uint64_t{0}, bytes);
}
CUresult unbind(uint64_t team, uint64_t offset = 0, uint64_t bytes = step) {
    return ask(wire::op_cuMulticastUnbind, team, uint32_t{0}, offset, bytes);
}
CUresult release(uint64_t number) {
    return ask(wire::op_cuMemRelease, number);
}

}  // namespace

TEST_CASE("memory stays charged while it is bound, and a multicast object is not charged for", "[multicast]") {
    Held held;
    const uint64_t team = first_number, memory = team + 1, address = addresses(gpu_bytes + step);
    REQUIRE(make_team(team, 1, 64 * gpu_bytes) == CUDA_SUCCESS);
    const uint64_t all = map_all(address);
    unmap_all(address, all, wire::op_memory_unmap);
    REQUIRE(add(team, 0) == CUDA_SUCCESS);
    REQUIRE(make_memory(memory) == CUDA_SUCCESS);
    REQUIRE(bind(team, memory) == CUDA_SUCCESS);
    REQUIRE(release(memory) == CUDA_SUCCESS);
    const uint64_t beside = map_all(address);
    CHECK(beside == all - step);
    unmap_all(address, beside, wire::op_memory_unmap);
    SECTION("until it is unbound") {
        REQUIRE(unbind(team) == CUDA_SUCCESS);
    }
    SECTION("or the object has gone") {
        REQUIRE(release(team) == CUDA_SUCCESS);
    }
    const uint64_t after = map_all(address);
    CHECK(after == all);
    unmap_all(address, after, wire::op_memory_unmap);
    release(team);
}

TEST_CASE("memory that tiles of an array have stays charged, and the array itself is not", "[tiles]") {
    Held held;
    const uint64_t array = first_number, memory = array + 1, address = addresses(gpu_bytes + step);
    const wire::ArrayShape shape{16384, 16384, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE, 0};
    const uint64_t all = map_all(address);
    unmap_all(address, all, wire::op_memory_unmap);
    REQUIRE(ask_in(held.context, wire::op_cuArray3DCreate_v2, array, uint32_t{0}, shape.width, shape.height,
                   shape.depth, shape.format, shape.channels, shape.flags, shape.charged_bytes) == CUDA_SUCCESS);
    REQUIRE(ask(wire::op_create_tile_pool, memory, uint32_t{0}, step) == CUDA_SUCCESS);
    auto change = [&](uint16_t op, uint64_t width, auto... last) {
        return ask_in(held.context, op, array, uint64_t{0}, uint32_t{0}, uint32_t{0}, uint32_t{0}, uint64_t{0},
                      uint64_t{0}, uint64_t{0}, width, uint64_t{128}, uint64_t{1}, uint32_t{0}, uint64_t{0}, last...);
    };
    REQUIRE(change(wire::op_cuMemMapArrayAsync, 256, memory, uint64_t{0}) == CUDA_SUCCESS);
    CHECK(change(wire::op_cuMemMapArrayAsync, 100, memory, uint64_t{0}) == CUDA_ERROR_INVALID_VALUE);
    CHECK(change(wire::op_cuMemMapArrayAsync, ~uint64_t{0} - 127, memory, uint64_t{0}) == CUDA_ERROR_INVALID_VALUE);
    CHECK(change(wire::op_cuMemMapArrayAsync, 256, memory, step) == CUDA_ERROR_INVALID_VALUE);
    CHECK(change(wire::op_cuMemMapArrayAsync, 256, memory + 1, uint64_t{0}) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(release(memory) == CUDA_SUCCESS);
    const uint64_t beside = map_all(address);
    CHECK(beside == all - step);
    unmap_all(address, beside, wire::op_memory_unmap);
    SECTION("until the last of them has it no more") {
        REQUIRE(change(wire::op_unmap_tiles, 128) == CUDA_SUCCESS);
        const uint64_t still = map_all(address);
        CHECK(still == all - step);
        unmap_all(address, still, wire::op_memory_unmap);
        REQUIRE(change(wire::op_unmap_tiles, 256) == CUDA_SUCCESS);
        REQUIRE(ask_in(held.context, wire::op_cuCtxSynchronize) == CUDA_SUCCESS);
    }
    SECTION("or the array has gone") {
        REQUIRE(ask_in(held.context, wire::op_cuArrayDestroy, array) == CUDA_SUCCESS);
    }
    const uint64_t after = map_all(address);
    CHECK(after == all);
    unmap_all(address, after, wire::op_memory_unmap);
    (void)ask_in(held.context, wire::op_cuArrayDestroy, array);
}

TEST_CASE("multicast objects and what is bound to them are so many and no more", "[multicast]") {
    Held held;
    uint64_t made = 0;
    while (made < 2 * worker::multicast_objects_max && make_team(first_number + made, 2) == CUDA_SUCCESS) ++made;
    CHECK(made == worker::multicast_objects_max);
    CHECK(make_team(first_number + made, 2) == CUDA_ERROR_OUT_OF_MEMORY);
    for (uint64_t number = 0; number < made; ++number) CHECK(release(first_number + number) == CUDA_SUCCESS);
    CHECK(make_team(first_number, 2) == CUDA_SUCCESS);
    CHECK(release(first_number) == CUDA_SUCCESS);
}

TEST_CASE("who waits for a team holds up nobody, and only so many wait", "[multicast]") {
    Held held;
    const uint64_t team = first_number, memory = team + 1;
    REQUIRE(make_team(team, 2) == CUDA_SUCCESS);
    REQUIRE(make_memory(memory) == CUDA_SUCCESS);
    REQUIRE(add(team, 0) == CUDA_SUCCESS);
    std::vector<Pending> waiting(worker::multicast_waits_max);
    auto& session = *open_sessions().front();
    for (auto& pending : waiting) {
        wire::Bytes payload(sizeof(uint64_t));
        wire::Writer out(payload);
        for (uint64_t value : {team, uint64_t{0}, memory, uint64_t{0}, step}) out.put(value);
        session.request(0, wire::op_cuMulticastBindMem, payload, pending);
    }
    CHECK(bind(team, memory) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(free_bytes() > 0);  // everything else is answered
    CHECK(release(memory) == CUDA_SUCCESS);
    REQUIRE(add(team, 1) == CUDA_SUCCESS);
    for (auto& pending : waiting) session.wait(pending);  // each has an end; at most one is bound
    CHECK(std::count_if(waiting.begin(), waiting.end(), [](auto& one) { return one.result == CUDA_SUCCESS; }) <= 1);
    CHECK(release(team) == CUDA_SUCCESS);
}

TEST_CASE("multicast requests that make no sense are refused", "[multicast]") {
    Held held;
    const uint64_t team = first_number, memory = team + 1, unknown = team + 2, address = addresses(4 * step);
    REQUIRE(make_team(team, 1, 2 * step) == CUDA_SUCCESS);
    REQUIRE(make_memory(memory) == CUDA_SUCCESS);
    CHECK(make_team(team, 1) == CUDA_ERROR_INVALID_VALUE);  // the number is taken
    CHECK(make_team(unknown, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(make_team(unknown, ~uint32_t{0}) == CUDA_ERROR_INVALID_DEVICE);
    CHECK(make_team(unknown, 1, ~uint64_t{0}) == CUDA_ERROR_INVALID_VALUE);
    CHECK(make_team(unknown, 1, step, ~uint64_t{0}) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(add(unknown, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(add(memory, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(add(team, 7) == CUDA_ERROR_INVALID_DEVICE);
    REQUIRE(add(team, 0) == CUDA_SUCCESS);
    CHECK(add(team, 1) == CUDA_ERROR_INVALID_VALUE);  // one device more than was declared

    CHECK(bind(unknown, memory) == CUDA_ERROR_INVALID_VALUE);
    CHECK(bind(team, unknown) == CUDA_ERROR_INVALID_VALUE);
    CHECK(bind(team, team) == CUDA_ERROR_INVALID_VALUE);
    CHECK(bind(memory, memory) == CUDA_ERROR_INVALID_VALUE);
    CHECK(bind(team, memory, 2 * step) == CUDA_ERROR_INVALID_VALUE);
    CHECK(bind(team, memory, ~uint64_t{0} - step + 1) == CUDA_ERROR_INVALID_VALUE);
    CHECK(bind(team, memory, 0, 2 * step) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(bind(team, memory) == CUDA_SUCCESS);
    CHECK(bind(team, memory) == CUDA_ERROR_INVALID_VALUE);  // something is there

    CHECK(ask(wire::op_cuMemMap, address, 4 * step, uint64_t{0}, team) == CUDA_ERROR_INVALID_VALUE);
    CHECK(ask(wire::op_cuMemMap, uint64_t{1} << 21, step, uint64_t{0}, team) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(ask(wire::op_cuMemMap, address, 2 * step, uint64_t{0}, team) == CUDA_SUCCESS);
    CHECK(ask(wire::op_cuMemSetAccess, address, 2 * step, uint32_t{1}, uint32_t{3}) == CUDA_ERROR_INVALID_DEVICE);

    CHECK(unbind(memory) == CUDA_ERROR_INVALID_VALUE);
    CHECK(unbind(team, step) == CUDA_ERROR_INVALID_VALUE);
    CHECK(unbind(team) == CUDA_SUCCESS);
    CHECK(unbind(team) == CUDA_ERROR_INVALID_VALUE);
    CHECK(release(team) == CUDA_SUCCESS);  // while it is mapped
    CHECK(release(team) == CUDA_ERROR_INVALID_VALUE);
    CHECK(bind(team, memory) == CUDA_ERROR_INVALID_VALUE);
    CHECK(ask(wire::op_cuMemUnmap, address, 2 * step) == CUDA_SUCCESS);
    CHECK(release(memory) == CUDA_SUCCESS);
}

TEST_CASE("an object of another process is borrowed as what it is", "[multicast]") {
    Held held;
    const uint64_t team = first_number, again = team + 1;
    REQUIRE(make_team(team, 2, step, as_descriptor) == CUDA_SUCCESS);
    RemoteCall lend(wire::LendAllocation<>{team});
    REQUIRE(lend.send() == CUDA_SUCCESS);
    wire::LendAllocation<>::Reply lent;
    REQUIRE(lend.take(lent) == CUDA_SUCCESS);
    // As memory it would be mapped where nothing may wait for its team.
    CHECK(RemoteCall(wire::BorrowMemory{again, lent.name}).send() == CUDA_ERROR_INVALID_VALUE);
    CHECK(RemoteCall(wire::BorrowMulticast{again, lent.name}).send() == CUDA_SUCCESS);
    CHECK(release(again) == CUDA_SUCCESS);
    lent.name[0] ^= 1;
    CHECK(RemoteCall(wire::BorrowMulticast{again, lent.name}).send() == CUDA_ERROR_INVALID_VALUE);
    CHECK(release(team) == CUDA_SUCCESS);
}

TEST_CASE("requests that make no sense are refused", "[nonsense]") {
    Held held;
    const uint64_t address = addresses(step);
    CHECK(ask(wire::op_memory_grant, uint32_t{7}, step) == CUDA_ERROR_INVALID_DEVICE);
    CHECK(ask(wire::op_cuMemCreate, uint64_t{1}, uint32_t{7}, step) == CUDA_ERROR_INVALID_DEVICE);
    CHECK(ask(wire::op_cuMemCreate, uint64_t{1}, uint32_t{0}, ~uint64_t{0}) != CUDA_SUCCESS);
    CHECK(ask(wire::op_memory_map, uint32_t{0}, uint64_t{1} << 21, step) == CUDA_ERROR_INVALID_VALUE);
    CHECK(ask(wire::op_memory_access, uint32_t{0}, uint32_t{7}, uint32_t{3}) == CUDA_ERROR_INVALID_DEVICE);
    CHECK(ask(wire::op_move_range, uint32_t{7}, address, step) == CUDA_ERROR_INVALID_DEVICE);
    CHECK(ask(wire::op_move_range, uint32_t{0}, address + 4096, step) == CUDA_ERROR_INVALID_VALUE);
    CHECK(ask(wire::op_move_range, uint32_t{0}, uint64_t{1} << 45, uint64_t{1} << 46) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(ask(wire::op_memory_map, uint32_t{0}, address, step) == CUDA_SUCCESS);
    CHECK(ask(wire::op_move_range, uint32_t{0}, uint64_t{1} << 45, step) == CUDA_ERROR_ALREADY_MAPPED);
    CHECK(ask(wire::op_memory_unmap, uint32_t{0}, address, step) == CUDA_SUCCESS);
}

// Run by Bystander only.
TEST_CASE("a bystander of the hostile client", "[.]") {
    Held held;
    CUdeviceptr first = 0, second = 0;
    bool ready = cuMemAlloc_v2(&first, 256 * mib) == CUDA_SUCCESS &&
                 cuMemAlloc_v2(&second, 700 * mib) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS;
    char word = ready ? 'r' : 'f';
    REQUIRE(write(bystander_writes, &word, 1) == 1);
    if (read(bystander_reads, &word, 1) != 1) return;
    bool works = cuMemsetD8_v2(second + 690 * mib, 1, 10 * mib) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS;
    word = works ? 'w' : 'f';
    REQUIRE(write(bystander_writes, &word, 1) == 1);
}
