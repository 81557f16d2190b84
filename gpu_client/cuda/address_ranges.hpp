// Reserves addresses in this process so that they can stand for GPU memory. Device and host addresses share one address
// space: an address alone tells which it is only where the program can never have memory of its own.
//
// A held range is a mapping without access rights and without pages: it costs no memory, stays out of core dumps, and
// the child of a fork does not inherit it. Any thread.
#pragma once

#include <cstdint>

namespace tnr::cuda {

// Holds [address, address + bytes); both are multiples of the page size. False if something is mapped there already.
//
// If the process may not map that much (RLIMIT_AS, mlockall), free addresses count as held without being mapped: what
// little such a process can still map does not land there unless it asks for exactly these addresses.
bool hold_addresses(uint64_t address, uint64_t bytes);
void let_go_of_addresses(uint64_t address, uint64_t bytes);
// Holds `bytes` at a random multiple of `alignment` (a power of two) and returns the address; 0 if there is no room.
uint64_t hold_addresses_somewhere(uint64_t bytes, uint64_t alignment);
// Holds the pages of [address, address + bytes), as far as they are free, for GPU memory outside the devices' ranges. They
// stay held for good: what the worker's driver frees there, it gives to others. False if the program has some of them.
bool hold_pages(uint64_t address, uint64_t bytes);

// Puts pages of the file, which the program and we share, at addresses that are held; the child of a fork does not
// inherit them either. False if the system refuses.
bool show_pages(uint64_t address, uint64_t bytes, int file, uint64_t offset);
// The addresses are held again, as before show_pages().
void hide_pages(uint64_t address, uint64_t bytes);

}  // namespace tnr::cuda
