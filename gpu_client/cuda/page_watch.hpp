// Pages that are taken from the program so that its accesses are told to us and wait (userfaultfd(2)). Unlike pages without
// access rights, which are a SIGSEGV to the program and EFAULT to its system calls, these are waited for by both: a read(2)
// into such memory goes through.
//
// The kernel must let this process have it, for faults of system calls, too: root has it (CAP_SYS_PTRACE), others where
// /dev/userfaultfd is open to them or vm.unprivileged_userfaultfd is 1. It must be Linux 5.19 or newer. TNR_USERFAULTFD=0 does
// without. Any thread.
#pragma once

#include <cstdint>

namespace tnr::cuda {

class PageWatch {
public:
    // Null where it cannot be had. The process's; made at first use.
    static PageWatch* get();

    // From now on pages of this mapping of a memory file can be taken. False: the kernel refuses.
    bool watch(uint64_t address, uint64_t bytes);
    // The program's next access to each page is told. What it has there stays in the file.
    void take(uint64_t address, uint64_t bytes);
    // Shows what the file has there: the program reads it, and writes it if `write`. Stops at the first page that it cannot
    // show and returns how many bytes it has shown: a page of which the file has nothing is such.
    uint64_t show(uint64_t address, uint64_t bytes, bool write);
    // False before Linux 6.4: what is shown can be written until forbid_writing().
    bool shows_for_reading() const { return shows_for_reading_; }
    // The program's next write to each page that is shown is told.
    void forbid_writing(uint64_t address, uint64_t bytes);

    struct Access {
        uint64_t address = 0;
        bool write = false;
        long thread = 0;  // gettid()
    };
    // Waits for the next one. Each is told once, and its thread waits until somebody says retry().
    Access next();
    // Whoever waits for the page makes the access again.
    void retry(uint64_t address);

private:
    explicit PageWatch(int file) : file_(file) {}
    bool works();

    const int file_;
    bool shows_for_reading_ = true;
};

}  // namespace tnr::cuda
