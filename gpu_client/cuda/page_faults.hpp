// Accesses of the program to pages that it may not touch just now. They come from the kernel (page_watch.hpp), or by a
// handler of SIGSEGV. That does nothing but hand the access to a thread of ours and wait for it, so it may run on any stack
// and whatever the program was in the middle of.
//
// Faults that are none of ours go to the handler that was there before, or to the one that the program has put in our
// place since: we put ourselves in front again, and pass on.
#pragma once

#include <cstdint>

namespace tnr::cuda {

enum class Attempt : uint8_t { read, write, unknown };  // not every processor tells

struct PageFault {
    uint64_t address = 0;
    Attempt attempt = Attempt::unknown;
    bool in_host_function = false;  // on the thread that runs the program's functions for streams
    bool watched = false;           // the kernel has told us, and may do so for a page that the program should have
};
// True if the access can be made now; false if the address is none of ours.
using ServeFault = bool (*)(const PageFault& fault);

// Starts the threads that call `serve` and installs the handler. Once per process; later calls do nothing.
void serve_faults(ServeFault serve);
// Only faults between the lowest and the highest address ever named here are looked at.
void expect_faults(uint64_t address, uint64_t bytes);
// Puts our handler in front again if the program has installed one of its own.
void keep_serving();
// The calling thread runs host functions. Its faults are served on a thread of their own: others may be waiting for it.
void mark_host_function_thread();

}  // namespace tnr::cuda
