// The records of the calls that cuda.calls marks `custom`. Where several functions of cuda.h do the same, the client
// sends the one named here. `async_` records are sent and not waited for; `sync` ones are answered with their Reply.
// Lengths are in bytes. record.hpp explains `Side`.
#pragma once

#include "cuda_calls.hpp"
#include "gpu_client/protocol/record.hpp"

namespace tnr::wire {

inline constexpr uint64_t first_minted_stream = 16;

// A call whose only field names one thing.
template <uint16_t Op, CallWay Way, class Thing>
struct Names {
    static constexpr uint16_t op = Op;
    static constexpr auto way = Way;
    Thing named{};
    auto fields() { return std::tie(named); }
};

// ---- devices ----

inline constexpr uint32_t atomic_operations_max = 64;  // cuda.h 13.0 has 13

// What one GPU's atomics can do in another's memory, of every operation that both sides know.
template <class Side = Numbers>
struct GetPeerAtomics {
    static constexpr uint16_t op = op_cuDeviceGetP2PAtomicCapabilities;
    static constexpr auto way = CallWay::cached;
    typename Side::Device from{}, to{};
    auto fields() { return std::tie(from, to); }
    struct Reply {
        List<uint32_t, atomic_operations_max> capabilities;  // by CUatomicOperation
        auto fields() { return std::tie(capabilities); }
    };
};

// ---- contexts ----

// The worker's warm primary context is taken over by the first of these.
template <class Side = Numbers>
struct RetainPrimary {
    static constexpr uint16_t op = op_cuDevicePrimaryCtxRetain;
    static constexpr auto way = CallWay::async_;
    typename Side::Device device{};
    NewNumber context = 0;
    auto fields() { return std::tie(device, context); }
};

// The program's last reference is gone, or it has asked for a reset: for the context's state both are the same.
template <uint16_t Op, CallWay Way, class Side>
struct EndPrimary {
    static constexpr uint16_t op = Op;
    static constexpr auto way = Way;
    typename Side::Device device{};
    uint64_t context = 0;  // number; the worker forgets it
    auto fields() { return std::tie(device, context); }
};
template <class Side = Numbers>
using ReleasePrimary = EndPrimary<op_cuDevicePrimaryCtxRelease_v2, CallWay::async_, Side>;
template <class Side = Numbers>
using ResetPrimary = EndPrimary<op_cuDevicePrimaryCtxReset_v2, CallWay::sync, Side>;

template <class Side = Numbers>
struct CreateContext {
    static constexpr uint16_t op = op_cuCtxCreate_v4;
    static constexpr auto way = CallWay::async_;
    typename Side::Device device{};
    NewNumber context = 0;
    uint32_t flags = 0;
    auto fields() { return std::tie(device, context, flags); }
};
template <class Side = Numbers>
using DestroyContext = Names<op_cuCtxDestroy_v2, CallWay::async_, typename Side::Context>;

// The current one.
struct SynchronizeContext {
    static constexpr uint16_t op = op_cuCtxSynchronize;
    static constexpr auto way = CallWay::sync;
    auto fields() { return std::tie(); }
};

struct SetLimit {
    static constexpr uint16_t op = op_cuCtxSetLimit;
    static constexpr auto way = CallWay::sync;
    uint32_t limit = 0;  // CUlimit
    uint64_t value = 0;
    auto fields() { return std::tie(limit, value); }
};

template <class Side = Numbers>
struct EnablePeerAccess {
    static constexpr uint16_t op = op_cuCtxEnablePeerAccess;
    static constexpr auto way = CallWay::sync;
    typename Side::Context peer{};
    uint32_t flags = 0;
    auto fields() { return std::tie(peer, flags); }
};
template <class Side = Numbers>
using DisablePeerAccess = Names<op_cuCtxDisablePeerAccess, CallWay::sync, typename Side::Context>;

// ---- launches (all variants) ----

enum LaunchFlags : uint32_t { launch_cooperative = 1 };

inline constexpr uint32_t launch_attributes_max = 32;   // cuda.h 13.0 names 17
inline constexpr uint32_t parameter_bytes_max = 32764;  // the driver's own limit from CUDA 12.1 on

// Followed by the attributes, without a count, and the bytes of the parameters.
template <class Side = Numbers>
struct Launch {
    static constexpr uint16_t op = op_cuLaunchKernel;
    static constexpr auto way = CallWay::async_;
    static constexpr bool open_end = true;
    typename Side::Kernel kernel{};
    typename Side::Stream stream{};
    std::array<uint32_t, 3> grid{}, block{};
    uint32_t shared_bytes = 0;
    uint32_t flags = 0;
    uint32_t attributes = 0;       // at most launch_attributes_max
    uint32_t parameter_bytes = 0;  // at most parameter_bytes_max
    auto fields() { return std::tie(kernel, stream, grid, block, shared_bytes, flags, attributes, parameter_bytes); }
};

// CUlaunchAttribute without its padding. Events (ids 7 and 12): their number in the first 8 bytes.
struct LaunchAttribute {
    uint32_t id = 0;
    std::array<std::byte, 64> value{};
    auto fields() { return std::tie(id, value); }
};
static_assert(sizeof(LaunchAttribute) == 68);  // an array of them travels as it lies in memory

// What cuOccupancy... asks about clusters of a launch that is not made.
template <class Side = Numbers, uint16_t Op = op_cuOccupancyMaxActiveClusters>
struct ClusterOccupancy {
    static constexpr uint16_t op = Op;
    static constexpr auto way = CallWay::cached;
    typename Side::Kernel kernel{};
    std::array<uint32_t, 3> grid{}, block{};
    std::array<uint32_t, 3> cluster{};  // all zero: the launch does not ask for one
    uint32_t shared_bytes = 0;
    auto fields() { return std::tie(kernel, grid, block, cluster, shared_bytes); }
    struct Reply {
        int32_t value = 0;
        auto fields() { return std::tie(value); }
    };
};
template <class Side = Numbers>
using PotentialClusterSize = ClusterOccupancy<Side, op_cuOccupancyMaxPotentialClusterSize>;
template <class Side = Numbers>
using ActiveClusters = ClusterOccupancy<Side, op_cuOccupancyMaxActiveClusters>;

// ---- copies ----

enum CopyFlags : uint32_t {
    copy_inline = 1,  // to the device: the data is behind the record, not in a bulk frame (of at most piece_bytes_max)
    copy_sync = 2,    // the program waits for this copy: later work of any stream must see it
    // Of memory that the program shares with the GPU, in a stream that does nothing else: if a function of the program needs
    // it, the copy need not stay behind records that wait for that function.
    copy_shared = 4,
};

template <class Side = Numbers>
struct Upload {
    static constexpr uint16_t op = op_cuMemcpyHtoDAsync_v2;
    static constexpr auto way = CallWay::async_;
    static constexpr bool open_end = true;
    uint64_t destination = 0;
    typename Side::Stream stream{};
    uint32_t flags = 0;
    uint64_t bytes = 0;
    auto fields() { return std::tie(destination, stream, flags, bytes); }
};

// Long copies arrive in pieces (BulkDown) before the reply, which is then empty; short ones in the reply.
struct DownloadReply {
    Data data;
    auto fields() { return std::tie(data); }
};

template <class Side = Numbers>
struct Download {
    static constexpr uint16_t op = op_cuMemcpyDtoHAsync_v2;
    static constexpr auto way = CallWay::sync;
    uint64_t source = 0;
    typename Side::Stream stream{};
    uint32_t flags = 0;
    uint64_t bytes = 0;
    auto fields() { return std::tie(source, stream, flags, bytes); }
    using Reply = DownloadReply;
};

enum class CopyDirection : uint32_t { to_device, from_device, on_device };

// To the device: the data comes as with Upload. From the device: `sync`, and answered as Download is.
template <class Side = Numbers>
struct CopyRows {
    static constexpr uint16_t op = op_cuMemcpy2DAsync_v2;
    static constexpr auto way = CallWay::async_;
    static constexpr bool open_end = true;
    uint64_t destination = 0, destination_pitch = 0;  // pitch 0 where the side is the host's: rows are packed
    uint64_t source = 0, source_pitch = 0;
    uint64_t width = 0, rows = 0;
    typename Side::Stream stream{};
    CopyDirection direction = CopyDirection::on_device;
    uint32_t flags = 0;
    auto fields() {
        return std::tie(destination, destination_pitch, source, source_pitch, width, rows, stream, direction, flags);
    }
};

template <class Side = Numbers>
struct CopyLine {
    static constexpr uint16_t op = op_cuMemcpyDtoDAsync_v2;
    static constexpr auto way = CallWay::async_;
    uint64_t destination = 0, source = 0, bytes = 0;
    typename Side::Stream stream{};
    auto fields() { return std::tie(destination, source, bytes, stream); }
};
// Sent by older clients; runs in the null stream.
struct CopyLineInNullStream {
    static constexpr uint16_t op = op_cuMemcpyDtoD_v2;
    uint64_t destination = 0, source = 0, bytes = 0;
    auto fields() { return std::tie(destination, source, bytes); }
};

// ---- streams, events, host functions ----

template <class Side = Numbers>
struct CreateStream {
    static constexpr uint16_t op = op_cuStreamCreateWithPriority;
    static constexpr auto way = CallWay::async_;
    NewNumber stream = 0;
    uint32_t flags = 0;
    int32_t priority = 0;
    auto fields() { return std::tie(stream, flags, priority); }
};
template <class Side = Numbers>
using DestroyStream = Names<op_cuStreamDestroy_v2, CallWay::async_, typename Side::Stream>;
template <class Side = Numbers>
using SynchronizeStream = Names<op_cuStreamSynchronize, CallWay::sync, typename Side::Stream>;
// CUDA_ERROR_NOT_READY is an answer, not a failure.
template <class Side = Numbers>
using QueryStream = Names<op_cuStreamQuery, CallWay::sync, typename Side::Stream>;

using StreamAttribute = std::array<std::byte, 64>;  // CUstreamAttrValue

template <class Side = Numbers>
struct GetStreamAttribute {
    static constexpr uint16_t op = op_cuStreamGetAttribute;
    static constexpr auto way = CallWay::sync;
    typename Side::Stream stream{};
    uint32_t attribute = 0;
    auto fields() { return std::tie(stream, attribute); }
    struct Reply {
        StreamAttribute value{};
        auto fields() { return std::tie(value); }
    };
};
template <class Side = Numbers>
struct SetStreamAttribute {
    static constexpr uint16_t op = op_cuStreamSetAttribute;
    static constexpr auto way = CallWay::sync;
    typename Side::Stream stream{};
    uint32_t attribute = 0;
    StreamAttribute value{};
    auto fields() { return std::tie(stream, attribute, value); }
};
template <class Side = Numbers>
struct CopyStreamAttributes {
    static constexpr uint16_t op = op_cuStreamCopyAttributes;
    static constexpr auto way = CallWay::sync;
    typename Side::Stream to{}, from{};
    auto fields() { return std::tie(to, from); }
};

template <class Side = Numbers>
struct CreateEvent {
    static constexpr uint16_t op = op_cuEventCreate;
    static constexpr auto way = CallWay::async_;
    NewNumber event = 0;
    uint32_t flags = 0;
    auto fields() { return std::tie(event, flags); }
};
template <class Side = Numbers>
using DestroyEvent = Names<op_cuEventDestroy_v2, CallWay::async_, typename Side::Event>;
template <class Side = Numbers>
struct RecordEvent {
    static constexpr uint16_t op = op_cuEventRecordWithFlags;
    static constexpr auto way = CallWay::async_;
    typename Side::Event event{};
    typename Side::Stream stream{};
    uint32_t flags = 0;
    auto fields() { return std::tie(event, stream, flags); }
};
// Of all the context's streams at once.
template <uint16_t Op, class Side>
struct ContextEvent {
    static constexpr uint16_t op = Op;
    static constexpr auto way = CallWay::sync;
    typename Side::Context context{};
    typename Side::Event event{};
    auto fields() { return std::tie(context, event); }
};
template <class Side = Numbers>
using RecordContextEvent = ContextEvent<op_cuCtxRecordEvent, Side>;
template <class Side = Numbers>
using WaitContextEvent = ContextEvent<op_cuCtxWaitEvent, Side>;
// Travels as the table's call.
template <class Side = Numbers>
struct WaitEvent {
    static constexpr uint16_t op = op_cuStreamWaitEvent;
    static constexpr auto way = CallWay::async_;
    typename Side::Stream stream{};
    typename Side::Event event{};
    uint32_t flags = 0;
    auto fields() { return std::tie(stream, event, flags); }
};
template <class Side = Numbers>
using SynchronizeEvent = Names<op_cuEventSynchronize, CallWay::sync, typename Side::Event>;
template <class Side = Numbers>
using QueryEvent = Names<op_cuEventQuery, CallWay::sync, typename Side::Event>;

// The worker sends RunHostFunction when the stream gets there, and is answered with HostFunctionDone.
template <class Side = Numbers>
struct LaunchHostFunction {
    static constexpr uint16_t op = op_cuLaunchHostFunc;
    static constexpr auto way = CallWay::async_;
    typename Side::Stream stream{};
    uint64_t ticket = 0;
    auto fields() { return std::tie(stream, ticket); }
};

// ---- the program's own use of the virtual memory API; addresses come from the session's range ----

template <class Side = Numbers>
struct CreateAllocation {
    static constexpr uint16_t op = op_cuMemCreate;
    static constexpr auto way = CallWay::sync;
    NewNumber allocation = 0;
    typename Side::Device device{};
    uint64_t bytes = 0;
    auto fields() { return std::tie(allocation, device, bytes); }
};
template <class Side = Numbers>
using ReleaseAllocation = Names<op_cuMemRelease, CallWay::async_, typename Side::Allocation>;
template <class Side = Numbers>
struct MapAllocation {
    static constexpr uint16_t op = op_cuMemMap;
    static constexpr auto way = CallWay::async_;
    uint64_t address = 0, bytes = 0, offset = 0;
    typename Side::Allocation allocation{};
    auto fields() { return std::tie(address, bytes, offset, allocation); }
};
struct UnmapAllocation {
    static constexpr uint16_t op = op_cuMemUnmap;
    static constexpr auto way = CallWay::async_;
    uint64_t address = 0, bytes = 0;
    auto fields() { return std::tie(address, bytes); }
};
template <class Side = Numbers>
struct SetAccess {
    static constexpr uint16_t op = op_cuMemSetAccess;
    static constexpr auto way = CallWay::async_;
    uint64_t address = 0, bytes = 0;
    typename Side::Device device{};
    uint32_t flags = 0;  // CUmemAccess_flags
    auto fields() { return std::tie(address, bytes, device, flags); }
};

// From older clients; see MemoryInfo.
struct GetMemoryInfo {
    static constexpr uint16_t op = op_cuMemGetInfo_v2;
    auto fields() { return std::tie(); }
    struct Reply {
        uint64_t free = 0, total = 0;
        auto fields() { return std::tie(free, total); }
    };
};

}  // namespace tnr::wire
