// Barriers in shared memory (mbarrier), and the copies that complete them.
#pragma once

#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/machine.hpp"

namespace tnr::ptx {

// The 64-bit word of an mbarrier, at `address` of a lane. Null after a fault.
uint64_t* barrier_word(Warp& w, uint32_t lane, uint64_t address);
// `bytes` of what the barrier's phase waits for have come.
void complete_bytes(uint64_t& barrier, uint64_t bytes);

// An operand's address as one 64-bit register, its offset added; shared memory's counts from the window's begin.
RegRef whole_address(Decoder& d, const ast::Operand& memory, Space space);

// Calls f(rank) for each bit of `blocks` until one is false; false then.
template <class F>
bool each_block(uint32_t blocks, F&& f) {
    for (; blocks; blocks &= blocks - 1)
        if (!f(static_cast<uint32_t>(std::countr_zero(blocks)))) return false;
    return true;
}

std::string_view take_reduction(Decoder& d);  // "add", ...; empty if no modifier names one
// `reduces`: cp.reduce.async…
void decode_bulk(Decoder& d, bool reduces);         // cp.async.bulk…
void decode_tensor_copy(Decoder& d, bool reduces);  // cp.async.bulk.tensor…
void decode_fill(Decoder& d);                       // st.bulk
// st.async and red.async with a barrier, to a block of the cluster. Without, they are stores to global memory as others.
bool is_remote(const Decoder& d);
void decode_remote(Decoder& d, bool reduces);
void decode_copies_arrive(Decoder& d);  // cp.async.mbarrier.arrive…

}  // namespace tnr::ptx
