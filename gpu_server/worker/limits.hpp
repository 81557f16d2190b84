// What one session may hold in its worker, beside memory (which the supervisor grants) and what travels (protocol/limits.hpp).
#pragma once

#include <cstddef>

#include "gpu_client/protocol/object_limits.hpp"

namespace tnr::worker {

// Live handles of one kind per session: far above what programs use (PyTorch: some thousand events), and a bound on
// what a hostile client can make us remember.
inline constexpr size_t handles_max = size_t{1} << 20;
// Runs of tiles of one sparse array that have the same memory: no array that a program fills has more tiles.
inline constexpr size_t tile_runs_max = size_t{1} << 20;
// Links that are being put together: a program has one at a time, and 100,000 took 1.6 GB of the worker's memory on the
// emulated driver.
inline constexpr size_t links_max = 1024;
// What a client makes, which counts them itself, and the primary one of each device.
inline constexpr size_t contexts_max = wire::contexts_max + 64;
// Multicast objects, and parts of memory bound to them: NCCL has a few per communicator.
inline constexpr size_t multicast_objects_max = 256;
inline constexpr size_t multicast_bindings_max = 4096;
// Calls that wait for a multicast object's team: each has one of the waiting threads, and most are for other waits.
inline constexpr size_t multicast_waits_max = 64;
// Of devices and of parts of them, for green contexts: a split in two and four and eight of each GPU is some dozens.
inline constexpr size_t device_resources_max = 16384;
// CUDA has no call to destroy one; each green context is made of one.
inline constexpr size_t resource_descriptions_max = 65536;
// Descriptors: the driver opens a handful per GPU, ZeroMQ a few per connection; memory and events of other processes, and
// each piece of the emulated GPU's memory, have one each.
inline constexpr size_t files_max = 16384;
// Connections that have proven no key yet; a client has one, and one for each lane. ZeroMQ may hold 2 MiB for each.
inline constexpr size_t strangers_max = 32;
// Threads of the user: a worker has some dozens, and one that waits much some hundreds. Where all workers of the node
// are one user, it is the limit of all together.
inline constexpr size_t threads_max = 1024;
inline constexpr size_t threads_of_all_max = 32768;
// A host that runs out of memory ends a process: rather a worker than the supervisor, or a service of the host's own. As if it
// held so many thousandths of the host's memory more.
inline constexpr int ended_first_score = 500;

}  // namespace tnr::worker
