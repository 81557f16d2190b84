// Memory that the program and the GPU address alike: managed memory, mapped host memory, managed variables.
//
// The GPU's copy is device memory, the program's lies at the same address in this process (registered memory: where the
// program has it). At any time either the GPU has the memory or the program. What is given to the GPU (launches, graph
// launches, copies, fills) takes it all from the program: pages that it has changed are sent ahead, and all are made
// inaccessible, which is one system call. When the program touches a page again (page_faults.hpp), the work that may
// still change it is waited for, and the page is fetched. So nothing moves that nobody touches, waits need not know of
// it, and programs that have no such memory pay for one load a launch.
//
// A page of mapped memory that is touched while a kernel runs is both sides' then: live_pages.hpp. One of managed memory makes
// the thread wait for the kernel (CONCURRENT_MANAGED_ACCESS is 0), and is both sides' if that takes too long: the kernel may
// be waiting for the program.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu_client/cuda/objects.hpp"
#include "gpu_client/cuda/shared_memory.hpp"

namespace tnr::cuda {

struct Transfers;  // page_transfers.hpp

// Lets the program use memory of `context`'s device, too. Fails with CUDA_ERROR_OUT_OF_MEMORY.
CUresult share_memory(Context& context, const SharedMemory& memory);
// The memory of the program is ordinary again: what the GPU had last is fetched first if `fetch`. Whoever frees device
// memory calls this before. False if no such memory begins at the address.
bool unshare_memory(uint64_t host, bool fetch);
// The GPU has everything that the program has written, and the pages are its.
void give_to_gpu();
// The context has ended, or begins anew.
void unshare_memory_of(const Context& context);
// From now on only work of this stream (a handle; 0: of any) uses the memory, or none at all.
CUresult attach_shared(uint64_t host, uint64_t stream, bool from_host_only);

// The program says that it will touch this part soon (or no longer): it comes over in large pieces.
void expect_touches(uint64_t host, uint64_t bytes, bool soon);

// The GPU gets the memory for what is put into a stream between begin() and the end of this object.
class GpuTurn {
public:
    GpuTurn() = default;
    ~GpuTurn() {
        if (context_) end();
    }
    GpuTurn(const GpuTurn&) = delete;
    GpuTurn& operator=(const GpuTurn&) = delete;
    void begin(Context& context, const StreamRef& stream) {
        if (anything_shared()) begin_slowly(context, stream);
    }
    // For work that uses no other memory than what it names.
    void begin_if_shared(uint64_t address, Context& context, const StreamRef& stream) {
        SharedMemory found;
        if (!context_ && find_shared(address, found)) begin_slowly(context, stream);
    }

private:
    void begin_slowly(Context& context, const StreamRef& stream);
    void end();

    Context* context_ = nullptr;
    StreamRef stream_;
};

// A function of the program is about to run for a stream, and has run: what it has changed is given to the GPU, if another
// thread's work has not taken it with it. Whoever lets the stream go on waits for `used` before (finish_for_stream).
void host_function_begins();
void host_function_ended(std::vector<Transfers>& used);

}  // namespace tnr::cuda
