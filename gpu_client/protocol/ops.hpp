// The records that are not driver calls: the session's own. Ids of driver calls are in cuda.calls (below 0xf000).
// Payloads are listed as they are written; `reply:` is what follows call number and CUresult in the answer.
#pragma once

#include <cstdint>

namespace tnr::wire {

enum SessionOp : uint16_t {
    // client → worker
    op_set_context = 0xf001,   // u64 context number (0: none): the records behind it run in that context
    op_memory_grant = 0xf002,  // sync. u32 device, u64 bytes wanted; reply: u64 bytes granted more (0: out of memory)
    op_memory_map = 0xf003,    // async. u32 device, u64 address, u64 bytes: back this part of the range with memory
    op_memory_unmap = 0xf004,  // async. u32 device, u64 address, u64 bytes, as mapped; the GPU has finished with it
    op_watch_event = 0xf005,   // async. u64 event number, u64 position: say op_completed when it has completed
    op_watch_stream = 0xf006,  // async. u64 stream number, u64 position: likewise for all work in it so far
    op_host_function_done = 0xf007,  // u64 ticket of op_run_host_function
    op_goodbye = 0xf008,             // the process ends in good order: free everything now
    op_image_piece = 0xf009,         // async. see custom_calls.hpp
    op_image_offer = 0xf00a,         // async. see custom_calls.hpp
    // sync. u32 ProfileWish; reply: u64 the worker's clock in ns, u64 this record's position as the worker counts, u64
    // ProfiledRecords dropped since the last report. The first one makes the worker watch, and has position 0 there; before
    // the reply to a report come op_profiled records.
    op_profile = 0xf00b,
    // sync. u32 device, u64 address, u64 bytes: reserve the session's range of this device here instead, because in the
    // client something else is where it is. Before anything is mapped in it. An error: it is not free here either.
    op_move_range = 0xf010,
    // sync. u32 device, u32 other device, u32 CUmemAccess_flags: what is mapped with op_memory_map on the device, now and
    // later, may be used by the other device, too (or not any more).
    op_memory_access = 0xf011,
    // sync; of the current context's device. Reply: u64 free, u64 total, u32 shared: another process of the claim uses the
    // GPU. From then on the client is told of changes (op_memory_shared).
    op_memory_info = 0xf012,

    // The link's own, in batches without a number (link.hpp).
    op_hello = 0xf0f1,  // client → worker. u64 connection: the first word of every connection, which it counts from 1
    op_welcome = 0xf0f2,  // worker → client. u64 connection: the answer to its hello
    op_lane = 0xf0f3,     // client → worker, first over each lane. u64 connection that it belongs to

    // worker → client
    op_completed = 0xf101,  // Completed, u64 number, u64 position (as watched), i32 CUresult
    op_failed = 0xf102,     // u16 op of the call that failed, i32 CUresult, string detail: a line for our log; further
                            // lines are for the program's user, who sees them once
    op_printed = 0xf103,    // string: what device printf wrote
    op_run_host_function = 0xf104,  // u64 ticket (chosen by the client in its cuLaunchHostFunc record)
    // u64 call number, u64 offset, flags bulk: a piece of a copy to the client. The copy's reply record (same call
    // number) comes after its last piece.
    op_bulk_down = 0xf105,
    op_goodbye_worker = 0xf106,     // string reason: the session is over (killed by the operator, GPU lost)
    op_memory_shared = 0xf110,      // u32: another process of the claim uses the GPU, or (0) does not any more
    op_kernels_described = 0xf107,  // see custom_calls.hpp; belongs to the cuLibraryLoadData that is being answered
    op_profiled = 0xf108,           // u32 n, n ProfiledRecords (profile_records.hpp); n <= profiled_piece_max
};

// What op_completed is about.
enum class Completed : uint8_t { event, stream };

}  // namespace tnr::wire
