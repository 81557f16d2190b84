// Which memory the program and the GPU both address, and where it is for each. How it gets from one to the other is
// shared_pages.hpp's business. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tnr::cuda {

enum class SharedKind : uint8_t {
    managed,
    mapped,
    registered,
    variable,
    created,  // by cuMemCreate in the host's memory
};

struct SharedMemory {
    SharedKind kind = SharedKind::managed;
    uint64_t host = 0, device = 0, bytes = 0;
    uint64_t context = 0;  // handle of the one that it was made in

    bool is_managed() const { return kind == SharedKind::managed || kind == SharedKind::variable; }
};

extern std::atomic<size_t> shared_memories;  // how many there are
inline bool anything_shared() {
    return __builtin_expect(shared_memories.load(std::memory_order_relaxed) != 0, false);
}

void note_shared(const SharedMemory& memory);
void forget_shared(uint64_t host);
// By an address here, or one of the GPU's.
bool find_shared(uint64_t address, SharedMemory& found);
std::vector<SharedMemory> shared_memory_of(uint64_t context);

}  // namespace tnr::cuda
