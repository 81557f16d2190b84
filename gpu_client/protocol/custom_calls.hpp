// Payloads of the calls that cuda.calls marks `custom`, as they are written (after the u64 call number where the record
// wants a reply). Every op is op_<symbol> from the generated cuda_calls.hpp; where several functions of cuda.h do the
// same, the client sends the one named here. What a reply holds follows call number and CUresult. Lengths are in bytes.
//
// Contexts. Numbers are minted by the client; the worker's warm primary context is taken over by the first Retain.
//   cuDevicePrimaryCtxRetain      async  u32 device, u64 context
//   cuDevicePrimaryCtxRelease_v2  async  u32 device, u64 context     sent when the program's count falls to zero
//   cuDevicePrimaryCtxReset_v2    sync   u32 device, u64 context
//   cuCtxCreate_v4                async  u32 device, u64 context, u32 flags
//   cuCtxDestroy_v2               async  u64 context
//   cuCtxSynchronize              sync   (the current context)
//
// Code. A module is a library, too: the worker loads with cuLibraryLoadData in either case. Function numbers are
// function_number(library, index), with the index of the kernel in the order it was described.
// Options: u32 count, then per option u32 number, u64 value. Of the compiler's (CUjit_option) only those travel that
// is_plain_jit_option() knows. Logs: string errors, string information.
//   op_image_offer                async  u64 library, u64 total, 32 bytes hash (image_hash.hpp): in the pieces' place. The
//                                        load answers image_is_unknown if the server does not have it; pieces follow then
//   op_image_piece                async  u64 library, u64 offset, u64 total; bulk: the piece
//   cuLibraryLoadData             sync   u64 library, u64 total, library options, compiler options;
//                                        before the reply: op_kernels_described records; reply: u32 kernels, logs
//   cuLibraryUnload               async  u64 library
//   cuLibraryGetGlobal            sync   u64 library, string name; reply: u64 address, u64 length
//
// Linking.
//   cuLinkCreate_v2               async  u64 link, compiler options
//   cuLinkAddData_v2              sync   u64 link, u64 image (sent with op_image_piece), u64 total, u32 CUjitInputType,
//                                        string name, compiler options; reply: logs
//   cuLinkComplete                sync   u64 link, u64 offset; reply: u64 total, u32 n, n bytes from the offset on, logs
//   cuLinkDestroy                 async  u64 link
//
// Launch (all variants).
//   cuLaunchKernel                async  LaunchRecord, then `attributes` LaunchAttributeRecords, then the
//                                        parameters' bytes
//
// Copies. H2D data: `flags & copy_inline`: the rest of the record, else the bulk frame (at most piece_bytes_max).
//   cuMemcpyHtoDAsync_v2          async  UploadRecord [data]
//   cuMemcpyDtoHAsync_v2          sync   u64 source, u64 stream, u32 flags, u64 length; op_bulk_down pieces, then the
//                                        reply: u32 n, n bytes (short copies travel here; n = 0 after pieces)
//   cuMemcpy2DAsync_v2                   Copy2DRecord, rows of host data packed. To the device: async, data as above;
//                                        from the device: sync, answered as cuMemcpyDtoHAsync_v2;
//                                        on the device: async
//   cuMemcpyDtoDAsync_v2          async  u64 destination, u64 source, u64 length, u64 stream
//   cuMemcpyDtoD_v2               async  the same without a stream, from older clients: in the null stream
//   cuMemGetInfo_v2               sync   reply: u64 free, u64 total (older clients; see op_memory_info)
//
// Streams and events. Stream numbers 0 (null) and 1 (legacy) are the driver's own; minted ones start at 16.
//   cuStreamCreateWithPriority    async  u64 stream, u32 flags, i32 priority
//   cuStreamDestroy_v2            async  u64 stream
//   cuStreamSynchronize           sync   u64 stream
//   cuStreamQuery                 sync   u64 stream; CUDA_ERROR_NOT_READY is an answer, not a failure
//   cuStreamGetAttribute          sync   u64 stream, u32 attribute; reply: CUstreamAttrValue
//   cuStreamSetAttribute          sync   u64 stream, u32 attribute, CUstreamAttrValue
//   cuEventCreate                 async  u64 event, u32 flags
//   cuEventDestroy_v2             async  u64 event
//   cuEventRecordWithFlags        async  u64 event, u64 stream, u32 flags
//   cuEventSynchronize            sync   u64 event
//   cuEventQuery                  sync   u64 event
//   cuLaunchHostFunc              async  u64 stream, u64 ticket         → op_run_host_function, op_host_function_done
//
// The program's own use of the virtual memory API. Addresses come from the session's range (reserved by the client).
//   cuMemCreate                   sync   u64 allocation, u32 device, u64 length
//   cuMemRelease                  async  u64 allocation
//   cuMemMap                      async  u64 address, u64 length, u64 offset, u64 allocation
//   cuMemUnmap                    async  u64 address, u64 length
//   cuMemSetAccess                async  u64 address, u64 length, u32 device, u32 CUmemAccess_flags
//   cuCtxEnablePeerAccess         sync   u64 peer context, u32 flags
//   cuCtxDisablePeerAccess        sync   u64 peer context
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace tnr::wire {

inline constexpr uint64_t first_minted_stream = 16;

// What loading answers when the image was only offered and is not there: CUDA_ERROR_FILE_NOT_FOUND, which a driver says of
// files only, and none is named here.
inline constexpr int image_is_unknown = 301;

// Kernels per library: far above any (the largest cubins of cuBLASLt hold a few thousand).
inline constexpr unsigned function_index_bits = 24;
constexpr uint64_t function_number(uint64_t library, uint64_t index) {
    return library << function_index_bits | index;
}

enum LaunchFlags : uint32_t { launch_cooperative = 1 };

struct LaunchRecord {
    uint64_t function;
    uint64_t stream;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
    uint32_t flags;
    uint32_t attributes;       // at most launch_attributes_max
    uint32_t parameter_bytes;  // at most parameter_bytes_max
};
static_assert(sizeof(LaunchRecord) == 56);

// CUlaunchAttribute without its padding. Events (ids 7 and 12): their number in the first 8 bytes.
struct LaunchAttributeRecord {
    uint32_t id;
    uint8_t value[64];
};
static_assert(sizeof(LaunchAttributeRecord) == 68);

inline constexpr uint32_t launch_attributes_max = 32;   // cuda.h 13.0 names 17
inline constexpr uint32_t parameter_bytes_max = 32764;  // the driver's own limit from CUDA 12.1 on

enum CopyFlags : uint32_t {
    copy_inline = 1,  // the data is in the record, not in a bulk frame
    copy_sync = 2,    // the program waits for this copy: later work of any stream must see it
};

struct [[gnu::packed]] UploadRecord {
    uint64_t destination;
    uint64_t stream;
    uint32_t flags;
    uint64_t bytes;
};
static_assert(sizeof(UploadRecord) == 28);

enum class CopyDirection : uint32_t { to_device, from_device, on_device };

struct Copy2DRecord {
    uint64_t destination, destination_pitch;  // pitch 0 where the side is the host's: rows are packed
    uint64_t source, source_pitch;
    uint64_t width, rows;
    uint64_t stream;
    CopyDirection direction;
    uint32_t flags;
};
static_assert(sizeof(Copy2DRecord) == 64);

// In op_kernels_described: u64 call number, u32 count, then per kernel: string name, u32 parameters, per parameter u32
// offset, u32 size; u32 attributes, per attribute i32 value (CUfunction_attribute 0, 1, …).
inline constexpr uint32_t function_attributes = 16;

// Options of the compiler whose value is a number; the others hold addresses, which mean nothing on the other side.
constexpr bool is_plain_jit_option(uint32_t option) {
    for (uint32_t plain : {0u, 1u, 7u, 8u, 9u, 10u, 11u, 12u, 13u, 14u, 30u, 31u, 32u, 33u})
        if (option == plain) return true;
    return false;
}
inline constexpr uint32_t jit_options_max = 64;                      // cuda.h 13.0 names 36
inline constexpr size_t linked_piece_bytes_max = size_t{512} << 10;  // of one cuLinkComplete: half of a record

}  // namespace tnr::wire
