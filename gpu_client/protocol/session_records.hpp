// The session's own records, which are no driver calls. record.hpp explains how they are written.
#pragma once

#include "gpu_client/protocol/call_records.hpp"
#include "gpu_client/protocol/ops.hpp"
#include "gpu_client/protocol/profile_records.hpp"

namespace tnr::wire {

// ---- client → worker ----

// The records after it run in this context (0: in none).
struct SetContext {
    static constexpr uint16_t op = op_set_context;
    uint64_t context = 0;  // a number on the worker's side, too: the context may be gone
    auto fields() { return std::tie(context); }
};

// More memory; `bytes` is what is wanted, the answer what is granted (0: out of memory).
template <class Side = Numbers>
struct MemoryGrant {
    static constexpr uint16_t op = op_memory_grant;
    static constexpr auto way = CallWay::sync;
    typename Side::Device device{};
    uint64_t bytes = 0;
    auto fields() { return std::tie(device, bytes); }
    struct Reply {
        uint64_t bytes = 0;
        auto fields() { return std::tie(bytes); }
    };
};

template <uint16_t Op, CallWay Way, class Side>
struct PartOfRange {
    static constexpr uint16_t op = Op;
    static constexpr auto way = Way;
    typename Side::Device device{};
    uint64_t address = 0, bytes = 0;
    auto fields() { return std::tie(device, address, bytes); }
};
// Back this part of the session's range with memory.
template <class Side = Numbers>
using MapMemory = PartOfRange<op_memory_map, CallWay::async_, Side>;
// Unmaps exactly what was mapped; the GPU has finished with it.
template <class Side = Numbers>
using UnmapMemory = PartOfRange<op_memory_unmap, CallWay::async_, Side>;
// Moves the session's range of this device to this address, because the client has something else where it is. Only
// before anything is mapped in it. An error if the new place is not free in the worker either.
template <class Side = Numbers>
using MoveRange = PartOfRange<op_move_range, CallWay::sync, Side>;

// Lets the other device use what is mapped with MapMemory on this one, now and later (or no longer lets it).
template <class Side = Numbers>
struct MemoryAccess {
    static constexpr uint16_t op = op_memory_access;
    static constexpr auto way = CallWay::sync;
    typename Side::Device device{}, other{};
    uint32_t flags = 0;  // CUmemAccess_flags
    auto fields() { return std::tie(device, other, flags); }
};

// Asks about the current context's device. From then on the client is told when `shared` changes (MemoryShared).
struct MemoryInfo {
    static constexpr uint16_t op = op_memory_info;
    static constexpr auto way = CallWay::sync;
    auto fields() { return std::tie(); }
    struct Reply {
        uint64_t free = 0, total = 0;
        uint32_t shared = 0;  // another process of the claim uses the GPU
        auto fields() { return std::tie(free, total, shared); }
    };
};

// So much less of a device's memory is granted to the client. A client that gives back what it does not use when another
// process wants it (MemoryWanted) says so by returning nothing at first.
template <class Side = Numbers>
struct MemoryReturned {
    static constexpr uint16_t op = op_memory_returned;
    static constexpr auto way = CallWay::async_;
    typename Side::Device device{};
    uint64_t bytes = 0;
    auto fields() { return std::tie(device, bytes); }
};

// Names a thing, and a point in the stream of records as the client counts them.
template <uint16_t Op, CallWay Way, class Thing>
struct Position {
    static constexpr uint16_t op = Op;
    static constexpr auto way = Way;
    Thing named{};
    uint64_t position = 0;
    auto fields() { return std::tie(named, position); }
};
// Like QueryEvent and QueryStream, but CUDA_ERROR_NOT_READY promises a Completed with this position once the event, or
// everything that the stream holds now, has completed.
template <class Side = Numbers>
using QueryAndWatchEvent = Position<op_query_event, CallWay::sync, typename Side::Event>;
template <class Side = Numbers>
using QueryAndWatchStream = Position<op_query_stream, CallWay::sync, typename Side::Stream>;
// The promise alone. Older clients send these after a question that was answered "not ready".
template <class Side = Numbers>
using WatchEvent = Position<op_watch_event, CallWay::async_, typename Side::Event>;
template <class Side = Numbers>
using WatchStream = Position<op_watch_stream, CallWay::async_, typename Side::Stream>;

struct HostFunctionDone {
    static constexpr uint16_t op = op_host_function_done;
    uint64_t ticket = 0;  // of RunHostFunction
    auto fields() { return std::tie(ticket); }
};

// The process ends in good order: free everything now.
struct Goodbye {
    static constexpr uint16_t op = op_goodbye;
    auto fields() { return std::tie(); }
};

// The first one starts the worker's profile, and its reply has position 0. Profiled records precede the reply to a
// report.
struct Profile {
    static constexpr uint16_t op = op_profile;
    static constexpr auto way = CallWay::sync;
    ProfileWish wish = profile_clock;
    auto fields() { return std::tie(wish); }
    struct Reply {
        uint64_t clock_ns = 0;  // the worker's
        uint64_t position = 0;  // of this record, as the worker counts
        uint64_t dropped = 0;   // ProfiledRecords since the last report
        auto fields() { return std::tie(clock_ns, position, dropped); }
    };
};

// ---- worker → client ----

// What completed.
enum class Completable : uint8_t { event, stream };

struct Completed {
    static constexpr uint16_t op = op_completed;
    Completable what = Completable::event;
    uint64_t number = 0;
    uint64_t position = 0;  // as it was watched
    int32_t result = 0;     // CUresult
    auto fields() { return std::tie(what, number, position, result); }
};

// An asynchronous call failed.
struct Failed {
    static constexpr uint16_t op = op_failed;
    uint16_t call = 0;        // its op
    int32_t result = 0;       // CUresult
    std::string_view detail;  // a line for our log; further lines are for the program's user, who sees them once
    auto fields() { return std::tie(call, result, detail); }
};

// What device printf wrote.
struct Printed {
    static constexpr uint16_t op = op_printed;
    std::string_view text;
    auto fields() { return std::tie(text); }
};

// A stream has reached the host function with this ticket.
struct RunHostFunction {
    static constexpr uint16_t op = op_run_host_function;
    uint64_t ticket = 0;
    auto fields() { return std::tie(ticket); }
};

// Bulk: a piece of a copy to the client. The copy's reply (same call number) comes after its last piece.
struct BulkDown {
    static constexpr uint16_t op = op_bulk_down;
    uint64_t call = 0, offset = 0;
    auto fields() { return std::tie(call, offset); }
};

// The session is over: killed by the operator, GPU lost.
struct WorkerGoodbye {
    static constexpr uint16_t op = op_goodbye_worker;
    std::string_view reason;
    auto fields() { return std::tie(reason); }
};

// Another process of the claim uses the GPU, or does not any more. Only for clients that have asked MemoryInfo.
struct MemoryShared {
    static constexpr uint16_t op = op_memory_shared;
    uint32_t shared = 0;
    auto fields() { return std::tie(shared); }
};

// Another process of the claim wants as much of a device's memory as this. Answered with MemoryReturned, also of nothing.
struct MemoryWanted {
    static constexpr uint16_t op = op_memory_wanted;
    uint32_t device = 0;
    uint64_t bytes = 0;
    auto fields() { return std::tie(device, bytes); }
};

struct Profiled {
    static constexpr uint16_t op = op_profiled;
    List<ProfiledRecord, profiled_piece_max> records;
    auto fields() { return std::tie(records); }
};

}  // namespace tnr::wire
