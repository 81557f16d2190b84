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

void decode_bulk(Decoder& d);                  // cp.async.bulk…
void decode_tensor_copy(Decoder& d);           // cp.async.bulk.tensor…
void decode_remote(Decoder& d, bool reduces);  // st.async, red.async
void decode_copies_arrive(Decoder& d);         // cp.async.mbarrier.arrive…

}  // namespace tnr::ptx
