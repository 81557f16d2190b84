// Managed and mapped memory, seen from inside the client library beside a server (with_server.py): how much moves, and
// what happens when somebody else has a hand in it: handlers of the program, forks, failing kernels.
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "api_client/base/handles.hpp"
#include "gpu_client/cuda/page_watch.hpp"
#include "gpu_client/cuda/shared_range.hpp"
#include "tests/gpu_client/cuda/costs.hpp"

using tnr::UniqueFd;
using namespace tnr::cuda;

namespace {

constexpr size_t page = 4096;

const char* const code = R"(.version 8.1
.target sm_75
.address_size 64
.visible .entry nothing() { ret; }
.visible .entry fail() { trap; ret; }
.visible .entry add_one(.param .u64 where) {
    .reg .b64 %rd<2>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [where];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r2, %r1, 1;
    st.global.u32 [%rd1], %r2;
    ret;
}
)";

class Program {
public:
    Program() {
        OK(cuInit(0));
        OK(cuDevicePrimaryCtxRetain(&context_, 0));
        OK(cuCtxSetCurrent(context_));
        OK(cuModuleLoadData(&module_, code));
    }
    ~Program() { cuDevicePrimaryCtxReset_v2(0); }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    CUresult launch(const char* name, CUdeviceptr argument = 0) {
        CUfunction function = nullptr;
        OK(cuModuleGetFunction(&function, module_, name));
        void* parameters[] = {&argument};
        return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, argument ? parameters : nullptr, nullptr);
    }
    void give_to_gpu() {
        OK(launch("nothing"));
        OK(cuCtxSynchronize());
    }

private:
    CUcontext context_ = nullptr;
    CUmodule module_ = nullptr;
};

class Managed {
public:
    explicit Managed(size_t bytes) { OK(cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL)); }
    ~Managed() { cuMemFree_v2(address); }
    Managed(const Managed&) = delete;
    Managed& operator=(const Managed&) = delete;
    volatile char* bytes() const { return reinterpret_cast<volatile char*>(address); }

    CUdeviceptr address = 0;
};

struct Moved {
    uint64_t given, fetched, faults;
};
Moved moved_by(const std::function<void()>& work) {
    auto& pages = stats().pages;
    uint64_t given = pages.given, fetched = pages.fetched, faults = pages.faults;
    work();
    return {pages.given - given, pages.fetched - fetched, pages.faults - faults};
}

}  // namespace

TEST_CASE("touching one page moves a small cluster, not all", "[shared]") {
    Program program;
    Managed memory(16 << 20);
    program.give_to_gpu();
    auto moved = moved_by([&] { (void)memory.bytes()[5 << 20]; });
    CHECK(moved.fetched == brought_bytes_min);
    CHECK(moved.faults == 1);
    moved = moved_by([&] { program.give_to_gpu(); });
    CHECK(moved.given == 0);  // it was only read
    moved = moved_by([&] { memory.bytes()[9 << 20] = 1; });
    CHECK(moved.fetched == brought_bytes_min);
    moved = moved_by([&] { program.give_to_gpu(); });
    CHECK(moved.given == page);
    CHECK(memory.bytes()[9 << 20] == 1);
}

TEST_CASE("waiting and launching move nothing that nobody has touched", "[shared]") {
    Program program;
    Managed memory(16 << 20);
    auto moved = moved_by([&] {
        for (int i = 0; i < 10; ++i) program.give_to_gpu();
    });
    CHECK(moved.given + moved.fetched + moved.faults == 0);
}

TEST_CASE("memory that is new costs what has been touched, and no faults", "[shared]") {
    Program program;
    Managed memory(64 << 20);
    auto moved = moved_by([&] {
        for (size_t at = 0; at < 1 << 20; ++at) memory.bytes()[(32 << 20) + at] = 3;
        program.give_to_gpu();
    });
    CHECK(moved.faults == 0);
    CHECK(moved.given == 1 << 20);
}

TEST_CASE("going through memory costs ever fewer round trips", "[shared]") {
    Program program;
    constexpr size_t bytes = 32 << 20;
    Managed memory(bytes);
    program.give_to_gpu();
    auto read = moved_by([&] {
        for (size_t at = 0; at < bytes; at += 64) (void)memory.bytes()[at];
    });
    CHECK(read.fetched == bytes);
    CHECK(read.faults <= 7 + bytes / brought_bytes_max);  // 16 KiB, 32, ... 2 MiB each
    program.give_to_gpu();
    auto written = moved_by([&] {
        for (size_t at = 0; at < bytes; at += 64) memory.bytes()[at] = 1;
    });
    CHECK(written.faults <= 2 * (7 + bytes / brought_bytes_max));
    CHECK(moved_by([&] { program.give_to_gpu(); }).given == bytes);
}

TEST_CASE("memory that is prefetched to the host comes in large pieces", "[shared]") {
    Program program;
    constexpr size_t bytes = 8 << 20;
    Managed memory(bytes);
    program.give_to_gpu();
    OK(cuMemPrefetchAsync(memory.address, bytes, CU_DEVICE_CPU, nullptr));
    auto moved = moved_by([&] {
        for (size_t at = 0; at < bytes; at += 64) (void)memory.bytes()[at];
    });
    CHECK(moved.faults == bytes / brought_bytes_max);
}

TEST_CASE("a thread may touch memory in one place after another, each goes on by itself", "[shared]") {
    Strides strides;
    CHECK(strides.next(10, 4, 512) == 4);
    strides.taken({10, 4});
    strides.taken({1000, 4});
    CHECK(strides.next(14, 4, 512) == 8);
    strides.taken({14, 8});
    CHECK(strides.next(1004, 4, 512) == 8);
    CHECK(strides.next(22, 4, 12) == 12);
    CHECK(strides.next(23, 4, 512) == 4);
}

TEST_CASE("work that the program did not wait for is waited for by the touch", "[shared]") {
    Program program;
    Managed memory(page);
    auto* value = reinterpret_cast<volatile int*>(memory.address);
    *value = 0;
    for (int i = 1; i <= 50; ++i) {
        OK(program.launch("add_one", memory.address));
        if (*value != i) {
            CHECK(*value == i);
            break;
        }
    }
}

static sigjmp_buf jump;
static void jump_back(int) {
    siglongjmp(jump, 1);
}
static bool faults_and_jumps() {
    if (sigsetjmp(jump, 1) != 0) return true;
    *static_cast<volatile int*>(nullptr) = 1;
    return false;
}

TEST_CASE("system calls may read and write memory that the GPU had last", "[shared]") {
    if (!PageWatch::get()) {
        WARN("the kernel does not tell this process of accesses: system calls fail with EFAULT");
        return;
    }
    Program program;
    const size_t bytes = 300 * page + 5;
    Managed memory(bytes);
    for (size_t i = 0; i < bytes; ++i) memory.bytes()[i] = static_cast<char>(i * 7);
    program.give_to_gpu();
    UniqueFd file(memfd_create("copy", MFD_CLOEXEC));
    auto* start = reinterpret_cast<char*>(memory.address);
    REQUIRE(write(file.get(), start, bytes) == static_cast<ssize_t>(bytes));
    std::string copy(bytes, 0);
    REQUIRE(pread(file.get(), copy.data(), bytes, 0) == static_cast<ssize_t>(bytes));
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; ++i) wrong += copy[i] != static_cast<char>(i * 7);
    CHECK(wrong == 0);

    program.give_to_gpu();
    for (auto& each : copy) each = static_cast<char>(each + 1);
    REQUIRE(pwrite(file.get(), copy.data(), bytes, 0) == static_cast<ssize_t>(bytes));
    auto moved = moved_by([&] { REQUIRE(pread(file.get(), start, bytes, 0) == static_cast<ssize_t>(bytes)); });
    CHECK(moved.faults > 0);
    moved = moved_by([&] { program.give_to_gpu(); });
    CHECK(moved.given == bytes);  // the kernel's writes count like the program's
    CHECK(std::memcmp(start, copy.data(), bytes) == 0);

    // One that the kernel wrote only a part of, and one that it only reads.
    program.give_to_gpu();
    REQUIRE(pread(file.get(), start + 3 * page, page, 0) == static_cast<ssize_t>(page));
    REQUIRE(pwrite(file.get(), start + 200 * page, page, 0) == static_cast<ssize_t>(page));
    moved = moved_by([&] { program.give_to_gpu(); });
    CHECK(moved.given == page);
    OK(program.launch("add_one", memory.address + 3 * page));
    int first = 0;
    std::memcpy(&first, copy.data(), sizeof first);
    CHECK(*reinterpret_cast<volatile int*>(start + 3 * page) == first + 1);
}

TEST_CASE("a handler of the program gets its own faults, and we get ours", "[shared]") {
    Program program;
    Managed memory(page);
    *memory.bytes() = 4;
    struct sigaction mine {
    }, before{};
    mine.sa_handler = jump_back;
    mine.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &mine, &before);  // after ours
    program.give_to_gpu();               // which puts itself in front again
    CHECK(*memory.bytes() == 4);
    int jumped = 0;
    for (int time = 0; time < 3; ++time) jumped += faults_and_jumps();
    CHECK(jumped == 3);
    program.give_to_gpu();
    CHECK(*memory.bytes() == 4);
    sigaction(SIGSEGV, &before, nullptr);
}

TEST_CASE("the child of a fork has registered memory but no managed memory", "[shared]") {
    Program program;
    Managed memory(page);
    std::vector<char> own(20 * page, 'a');
    CUdeviceptr device = 0;
    OK(cuMemHostRegister_v2(own.data(), own.size(), CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer_v2(&device, own.data(), 0));
    *memory.bytes() = 'a';
    program.give_to_gpu();  // now the program can touch neither
    auto status_of = [](const std::function<bool()>& work) {
        pid_t child = fork();
        if (child == 0) {
            signal(SIGSEGV, SIG_DFL);
            _exit(work() ? 0 : 1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        return status;
    };
    CHECK(status_of([&] { return own[7 * page] == 'a' && ++own[8 * page] == 'b'; }) == 0);
    const int status = status_of([&] { return *memory.bytes() == 'a'; });
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGSEGV);
    CHECK(own[8 * page] == 'a');
    CHECK(*memory.bytes() == 'a');
    OK(cuMemHostUnregister(own.data()));
}

TEST_CASE("memory that the GPU cannot give any more stays as the program had it", "[shared]") {
    {
        Program program;
        Managed memory(page);
        *memory.bytes() = 9;
        OK(program.launch("fail"));
        CHECK(*memory.bytes() == 9);  // does not hang
        CHECK(cuCtxSynchronize() != CUDA_SUCCESS);
    }
    Program again;
    Managed memory(page);
    *memory.bytes() = 3;
    again.give_to_gpu();
    CHECK(*memory.bytes() == 3);
}

TEST_CASE("threads that touch and threads that launch leave each other's memory whole", "[shared]") {
    Program program;
    Managed touched(64 * page), other(page);
    CUcontext context = nullptr;
    OK(cuCtxGetCurrent(&context));
    std::thread launching([&] {
        (void)cuCtxSetCurrent(context);
        for (int i = 0; i < 300; ++i) {
            (void)program.launch("nothing");
            (void)cuCtxSynchronize();
        }
    });
    int sum = 0;
    for (int round = 0; round < 20; ++round)
        for (size_t at = 0; at < 64 * page; at += page) {
            touched.bytes()[at] = 1;
            sum += touched.bytes()[at];
        }
    launching.join();
    CHECK(sum == 20 * 64);
}

namespace {

// The program touches page 3 at the last moment that it can.
class TouchedLate : public PageView {
public:
    TouchedLate() : PageView(0) {}
    std::optional<PageAccess> protect(PageRun, PageAccess access) override {
        if (access == PageAccess::none) touched_.push_back({3, 1});
        return access;
    }
    const std::byte* content(size_t) const override { return nullptr; }
    bool read_in_place() const override { return false; }
    std::byte* hidden(PageRun, std::vector<std::byte>&) override { return nullptr; }
    bool show(PageRun, const std::vector<std::byte>&) override { return true; }
    std::vector<PageRun> touched() const override { return touched_; }

private:
    std::vector<PageRun> touched_{{1, 1}};
};

}  // namespace

TEST_CASE("the GPU gets what the program writes to new memory until that is taken from it", "[shared]") {
    SharedRange range;
    range.view = std::make_unique<TouchedLate>();
    range.states.assign(5, PageState::fresh);
    auto taken = range.take();
    REQUIRE(taken.changed.size() == 2);
    CHECK(taken.changed[1].first == 3);
    CHECK(range.take().changed.empty());
}

TEST_CASE("registered memory is not seen as it was while other pages of it are on their way to the GPU", "[shared]") {
    Program program;
    constexpr size_t bytes = 32 << 20;
    auto* own = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(own != MAP_FAILED);
    CUdeviceptr device = 0;
    OK(cuMemHostRegister_v2(own, bytes, 0));
    OK(cuMemHostGetDevicePointer_v2(&device, own, 0));
    auto& given = stats().pages.given;
    for (char round = 1; round <= 10; ++round) {
        OK(cuMemsetD8_v2(device, static_cast<unsigned char>(round), bytes));
        std::memset(own, 'z', bytes / 2);
        const uint64_t before = given;
        char seen = 0;
        std::thread reading([&] {
            while (given == before) std::this_thread::yield();
            seen = static_cast<volatile char*>(own)[bytes - 1];
        });
        program.give_to_gpu();
        reading.join();
        CHECK(seen == round);
    }
    OK(cuMemHostUnregister(own));
    munmap(own, bytes);
}

TEST_CASE("registered memory shares nothing of its neighbours", "[shared]") {
    Program program;
    std::vector<char> all(10 * page, 'x');
    auto* first = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(all.data()) + page - 1) / page * page);
    char* own = first + 100;
    constexpr size_t bytes = 3 * page;
    CUdeviceptr device = 0;
    OK(cuMemHostRegister_v2(own, bytes, 0));
    OK(cuMemHostGetDevicePointer_v2(&device, own, 0));
    OK(cuMemsetD8_v2(device, 'y', bytes));
    first[99] = first[100 + bytes] = 'n';  // while the GPU has what is between
    OK(cuCtxSynchronize());
    CHECK(std::string(own, bytes) == std::string(bytes, 'y'));
    CHECK(first[99] == 'n');
    CHECK(first[100 + bytes] == 'n');
    own[0] = own[bytes - 1] = 'z';
    std::vector<char> back(bytes);
    OK(cuMemcpyDtoH_v2(back.data(), device, bytes));
    CHECK(back[0] == 'z');
    CHECK(back[bytes - 1] == 'z');
    CHECK(back[1] == 'y');
    OK(cuMemHostUnregister(own));
    CHECK(own[1] == 'y');
}

TEST_CASE("a program and a stream wait once for the ends of all pinned memory", "[shared]") {
    Program program;
    constexpr size_t bytes = 3 * page, count = 3;
    std::vector<char> all(count * 5 * page, 'x');
    auto* first = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(all.data()) + page - 1) / page * page) + 100;
    struct Pieces {
        char* own[count];
        CUdeviceptr device[count];
    } pieces{};
    for (size_t i = 0; i < count; ++i) {
        pieces.own[i] = first + i * 5 * page;
        OK(cuMemHostRegister_v2(pieces.own[i], bytes, 0));
        OK(cuMemHostGetDevicePointer_v2(&pieces.device[i], pieces.own[i], 0));
    }
    // Work that goes on for longer is met while it does. A busy machine gets several tries.
    uint64_t fetches = 0;
    for (int tries = 0; tries < 50 && fetches != 1; ++tries) {
        const uint64_t before = stats().pages.waits;
        program.give_to_gpu();
        fetches = stats().pages.waits - before;
    }
    CHECK(fetches == 1);
    auto change = [](void* data) {  // both ends, and a page between them
        for (auto* own : static_cast<Pieces*>(data)->own) own[0] = own[page] = own[bytes - 1] = 'z';
    };
    auto& waits = stats().sent[tnr::wire::SynchronizeStream<>::op];
    const uint64_t before = waits;
    OK(cuLaunchHostFunc(nullptr, change, &pieces));
    OK(cuCtxSynchronize());
    CHECK(waits - before == 1);
    for (auto device : pieces.device) {
        std::vector<char> back(bytes);
        OK(cuMemcpyDtoH_v2(back.data(), device, bytes));
        CHECK(std::string{back[0], back[page], back[bytes - 1], back[1]} == "zzzx");
    }
    for (auto* own : pieces.own) OK(cuMemHostUnregister(own));
}

namespace {

uint64_t place_of_variable(CUmodule module) {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    OK(cuModuleGetGlobal_v2(&address, &bytes, module, "shown"));
    CHECK(bytes == sizeof(unsigned));
    return address;
}

// Code with a managed variable, made longer by what means nothing.
std::string managed_code(size_t bytes) {
    std::string text =
        ".version 8.1\n.target sm_75\n.address_size 64\n"
        ".visible .global .attribute(.managed) .align 4 .u32 shown = 7;\n";
    while (text.size() < bytes) text += "// It goes on and on.\n";
    return text;
}

}  // namespace

// So much of a module is not kept by the client, and the program's copy of it is gone.
TEST_CASE("a large module whose managed variable's place is taken goes elsewhere", "[shared]") {
    Program program;
    // The emulated GPU puts such variables one behind the other.
    CUmodule modules[3] = {}, module = nullptr;
    uint64_t places[3];
    for (int i = 0; i < 3; ++i) {
        OK(cuModuleLoadData(&modules[i], managed_code(0).c_str()));
        places[i] = place_of_variable(modules[i]);
    }
    const uint64_t taken = (2 * places[2] - places[1]) / page * page;
    void* mine = mmap(reinterpret_cast<void*>(taken), page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    REQUIRE(mine != MAP_FAILED);
    {
        auto text = managed_code(3 << 20);
        OK(cuModuleLoadData(&module, text.c_str()));
        std::fill(text.begin(), text.end(), '/');
    }
    const uint64_t found = place_of_variable(module);
    CHECK(found / page * page != taken);
    auto* shown = reinterpret_cast<volatile unsigned*>(found);
    CHECK(*shown == 7);
    OK(program.launch("add_one", found));
    OK(cuCtxSynchronize());
    CHECK(*shown == 8);
    OK(cuModuleUnload(module));
    for (auto* one : modules) OK(cuModuleUnload(one));
    munmap(mine, page);
}
