// Keeps addresses of this process free of the program's own memory, so that they can mean the GPU's. A device address
// lies in the program's address space, too: only where nothing of the program's can ever be does an address alone tell
// what it is.
//
// What is held is a mapping without access and without pages: it costs no memory, stays out of core dumps, and is not
// inherited by the child of a fork. Any thread.
#pragma once

#include <cstdint>

namespace tnr::cuda {

// Holds [address, address + bytes), a multiple of the page size. False: something is there already.
//
// Where the process may not map so much (RLIMIT_AS, mlockall), addresses that are free count as held: the little that
// such a process may still map is not placed there unless it asks for exactly these addresses.
bool hold_addresses(uint64_t address, uint64_t bytes);
void let_go_of_addresses(uint64_t address, uint64_t bytes);
// Holds `bytes` somewhere, at a multiple of `alignment` (a power of two), another place each time. 0: there is no room.
uint64_t hold_addresses_somewhere(uint64_t bytes, uint64_t alignment);
// Holds the pages that a piece of the GPU's memory outside the devices' ranges touches, as far as they are free.
void hold_pages(uint64_t address, uint64_t bytes);

}  // namespace tnr::cuda
