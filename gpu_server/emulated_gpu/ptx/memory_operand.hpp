// What ld, st, atom and cp.async have in common in the decoder: the state space, the address operand, and
// the words about ordering and caching.
#pragma once

#include "gpu_server/emulated_gpu/ptx/access.hpp"
#include "gpu_server/emulated_gpu/ptx/decoder.hpp"

namespace tnr::ptx {

struct Address {
    Where where = Where::generic;
    RegRef base = 0;
    int64_t offset = 0;
    bool is_entry_parameter = false;  // then offset is all there is
};

// .global, .shared::cta, ...; the first word that names a space. Space::generic where none does.
Space take_space(Decoder& d);
// Emits what the address needs; a 32-bit register stays one only for shared memory.
Address decode_address(Decoder& d, const ast::Operand& memory, Space space);
// Ordering words: true when the access must be seen by others in order (volatile, relaxed, acquire, ...).
bool take_ordering(Decoder& d);
// Cache words, which change nothing here.
void take_cache_hints(Decoder& d);

}  // namespace tnr::ptx
