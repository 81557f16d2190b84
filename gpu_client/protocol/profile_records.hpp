// What a worker tells a client that profiles (Profile and Profiled in session_records.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tnr::wire {

enum class ProfiledKind : uint16_t {
    dispatched = 1,      // a record was taken up and handled; position
    kernel = 2,          // a launch ran on the GPU; position, stream, context, function
    batch_received = 3,  // sequence, bytes, records; takes no time
    batch_sent = 4,      // likewise
};

struct ProfiledRecord {
    ProfiledKind kind;
    uint16_t op;
    uint32_t count;        // of records in a batch; a kernel's context
    uint64_t number;       // position of a record, as the worker counts; or a batch's sequence
    uint64_t begin_ns;     // by the worker's clock
    uint64_t nanoseconds;  // until it ended
    uint64_t stream_or_bytes;
    uint64_t function;
};
static_assert(sizeof(ProfiledRecord) == 48);

enum ProfileWish : uint32_t {
    profile_clock = 0,   // begin unless already begun, and report the time
    profile_report = 1,  // report what was seen, too
};

// What a worker keeps until it is asked; more is dropped and counted. 3 MiB: half a second of launches in a burst.
inline constexpr size_t profiled_records_max = size_t{1} << 16;
// Records in one op_profiled.
inline constexpr size_t profiled_piece_max = 4096;
// Launches whose times are still to come from the GPU; those beyond it are not timed.
inline constexpr size_t timed_launches_max = 4096;

}  // namespace tnr::wire
