// Objects of the program that graphs keep alive.
#pragma once

#include <cstdint>

namespace tnr::cuda {

// The worker reports that the last reference to an object is gone. Does not wait.
void user_object_gone(uint64_t number);

}  // namespace tnr::cuda
