// Addresses as numbers, and back.
#pragma once

#include <cstdint>

namespace tnr::emulated {

inline uint64_t number(const void* pointer) {
    return reinterpret_cast<uint64_t>(pointer);
}
inline void* pointer(uint64_t address) {
    return reinterpret_cast<void*>(address);
}

inline uint64_t round_down(uint64_t value, uint64_t step) {
    return value / step * step;
}
inline uint64_t round_up(uint64_t value, uint64_t step) {
    return round_down(value + step - 1, step);
}

}  // namespace tnr::emulated
