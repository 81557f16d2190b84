// What a worker may hold of the host's memory without having it mapped. As root: others may not look.
#include "gpu_server/supervisor/host_memory.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "api_client/base/handles.hpp"
#include "tests/support/catch.hpp"

using namespace tnr::server;

namespace {

constexpr size_t bytes = size_t{80} << 20;

// A process that has done this, and waits for its end.
class Holder {
public:
    explicit Holder(const std::function<void()>& hold) {
        int ends[2];
        REQUIRE(pipe(ends) == 0);
        pid = fork();
        if (pid == 0) {
            hold();
            (void)!write(ends[1], "x", 1);
            pause();
            _exit(0);
        }
        char done;
        CHECK(read(ends[0], &done, 1) == 1);
        close(ends[0]);
        close(ends[1]);
    }
    ~Holder() {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
    }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;
    pid_t pid = -1;
};

void fill(int file) {
    const std::string piece(1 << 20, 'f');
    for (size_t done = 0; done < bytes; done += piece.size())
        if (write(file, piece.data(), piece.size()) != static_cast<ssize_t>(piece.size())) _exit(1);
}

void check_seen(const Holder& holder) {
    Holder idle([] {});  // has, as the other one, what this process has: other tests may have left it much
    HostMemory memory;
    memory.look_at({holder.pid, idle.pid}, {});
    CHECK(memory.bytes_of(holder.pid) >= bytes);
    CHECK(memory.bytes_of(holder.pid) < memory.bytes_of(idle.pid) + 2 * bytes);
}

}  // namespace

TEST_CASE("memory that no process has mapped is its owner's", "[host-memory]") {
    if (geteuid() != 0) return;
    SECTION("in a memory file") {
        check_seen(Holder([] { fill(memfd_create("held", 0)); }));
    }
    SECTION("in memory for sharing, put away") {
        check_seen(Holder([] {
            void* there =
                mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
            if (there == MAP_FAILED || madvise(there, bytes, MADV_DONTNEED) != 0) _exit(1);
        }));
    }
    SECTION("in a folder of its own that is in memory") {
        check_seen(Holder([] {
            if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                mount("tmpfs", "/tmp", "tmpfs", 0, "size=100m") != 0)
                _exit(1);
            int file = open("/tmp/held", O_WRONLY | O_CREAT, 0600);
            fill(file);
            close(file);
        }));
    }
    SECTION("in tables of pages") {
        check_seen(Holder([] {
            // A table of 4 KiB for each 2 MiB of addresses.
            constexpr size_t step = size_t{2} << 20, length = bytes / 4096 * step;
            auto* there = static_cast<char*>(
                mmap(nullptr, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
            if (there == MAP_FAILED) _exit(1);
            madvise(there, length, MADV_NOHUGEPAGE);
            for (size_t at = 0; at < length; at += step) (void)*static_cast<volatile char*>(there + at);
        }));
    }
}

TEST_CASE("a little more memory in files is seen after a while", "[host-memory]") {
    if (geteuid() != 0) return;
    HostMemory memory;
    memory.look_at({getpid()}, {});
    const auto before = memory.bytes_of(getpid());
    const tnr::UniqueFd file(memfd_create("held", MFD_CLOEXEC));
    constexpr size_t little = 8 << 20;
    REQUIRE(posix_fallocate(file.get(), 0, little) == 0);
    auto is_seen = [&] { return memory.bytes_of(getpid()) >= before + little / 2; };
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
         !is_seen() && std::chrono::steady_clock::now() < end;
         std::this_thread::sleep_for(std::chrono::milliseconds(100)))
        memory.look_at({getpid()}, {});
    CHECK(is_seen());
}

TEST_CASE("what another user has made is not counted, nor what is mapped counted twice", "[host-memory]") {
    if (geteuid() != 0) return;
    int file = memfd_create("lent", 0);
    fill(file);
    Holder borrower([] {
        if (setresuid(4242, 4242, 4242) != 0) _exit(1);
    });
    CHECK(bytes_in_files_of(borrower.pid, {}) == 0);
    // Unless it is to answer for it: what its maker has lent, and closed.
    CHECK(bytes_in_files_of(borrower.pid, {file, file}) >= bytes);
    CHECK(bytes_in_files_of(borrower.pid, {file, file}) < 2 * bytes);
    close(file);
    Holder holder([] {
        int own = memfd_create("held", 0);
        fill(own);
        void* there = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, own, 0);
        if (there == MAP_FAILED) _exit(1);
    });
    check_seen(holder);
}
