// What lanes of a warp do together, for the instruction groups that have such operations. A lane that arrives waits
// until all lanes of its mask that have not exited stand there too, whatever frames they are in; then the operation is
// done for all of them at once.
#pragma once

#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/machine.hpp"

namespace tnr::ptx {

// `lanes`: all that take part. Their registers are found through reg_of: they may be in different frames.
using Operation = void (*)(Warp&, const Instr&, uint32_t lanes);

// `mask`: a register with the lanes that take part. Uses the Instr's `imm`, `table` and `flags`.
Instr& emit_collective(Decoder& d, Operation operation, RegRef mask);
// For instructions that all lanes of the warp execute (.aligned).
Instr& emit_aligned(Decoder& d, Operation operation);

template <class T>
void put(Warp& w, RegRef ref, uint32_t lane, T value) {
    w.reg_of<T>(lane, ref)[lane] = value;
}

}  // namespace tnr::ptx
