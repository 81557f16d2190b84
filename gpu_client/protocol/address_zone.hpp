// Where a session's device addresses lie. They must be free in two processes, the program and its worker, so they lie
// where kernels, C libraries, allocators and sanitizers put nothing by themselves.
#pragma once

#include <cstdint>

namespace tnr::wire {

// x86-64 and arm64 give a process 128 TiB. Programs and their heaps lie at the bottom or at 85 TiB, libraries and
// stacks at the top; AddressSanitizer's shadow ends at 16 TiB and its heap begins at 80 TiB; ThreadSanitizer's begins
// at 85.
inline constexpr uint64_t address_zone_begin = uint64_t{0x1100} << 32;  // 17 TiB
inline constexpr uint64_t address_zone_end = uint64_t{0x4f00} << 32;    // 79 TiB
inline constexpr uint64_t user_addresses_end = uint64_t{0x8000} << 32;
// Ranges begin at multiples of this. It leaves thousands of places, and round numbers are easy to spot in a dump.
inline constexpr uint64_t address_alignment = uint64_t{16} << 30;

}  // namespace tnr::wire
