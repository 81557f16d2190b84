// What programs have said about managed memory.
#pragma once

#include <cstdint>

namespace tnr::cuda {

// The memory is freed.
void forget_advice(uint64_t address, uint64_t bytes);

}  // namespace tnr::cuda
