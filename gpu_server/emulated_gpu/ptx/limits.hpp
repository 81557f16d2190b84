// What the emulated GPU takes from a module and a launch. Each keeps hostile or broken text from using
// up the memory of the machine that serves others too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tnr::ptx {

inline constexpr size_t text_bytes_max = size_t{64} << 20;  // the largest known module has 30; memory is 40 times it
inline constexpr size_t sources_max = 4096;                 // of one link; a large project has hundreds of objects
inline constexpr uint32_t functions_max = 1u << 20;         // per module
inline constexpr uint32_t variables_max = 1u << 22;         // per module, call parameters included
inline constexpr uint64_t variable_bytes_max = uint64_t{1} << 40;  // more than any GPU has memory
inline constexpr uint64_t local_variable_bytes_max = 8u << 20;     // .local, .param, .shared: hardware has 512 KiB
inline constexpr uint32_t registers_max = 1u << 18;                // per function; unoptimised giants have 60,000
inline constexpr uint32_t instructions_max = 1u << 24;             // per module
inline constexpr uint32_t operands_max = 1024;                     // per instruction; a call has one per parameter
inline constexpr uint32_t align_max = 1u << 16;                    // .align
inline constexpr int nesting_max = 64;                             // of { } and ( ): the parser recurses
inline constexpr uint32_t shared_bytes_max = 1u << 20;             // per block; hardware has at most 228 KiB
inline constexpr uint32_t call_depth_max = 4096;                   // frames of one thread
inline constexpr uint32_t frame_bytes_max = 32u << 20;    // registers of 32 lanes, of one function and all its callers
inline constexpr uint64_t alloca_bytes_max = 64u << 10;   // per thread, where a module has alloca
inline constexpr uint64_t local_stack_bytes = 64u << 10;  // per thread where calls recurse; hardware's default is 1 KiB
inline constexpr uint32_t child_depth_max = 24;           // kernels that launch kernels that launch ...; as on hardware
inline constexpr size_t child_grids_max = 65536;          // launched by one grid; hardware's default is 2,048
inline constexpr uint32_t threads_per_block_max = 1024;   // as on all hardware
inline constexpr uint32_t cluster_blocks_max = 16;        // likewise

}  // namespace tnr::ptx
