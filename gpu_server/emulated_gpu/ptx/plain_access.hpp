// Plain accesses to the GPU's memory, by kernels and copies. Where those of several streams meet, that is the program's
// business, or the client's, which looks at pages that running kernels use: ThreadSanitizer does not see them. A list of what
// it is to overlook does not do: a worker cannot start the symbolizer that reads names for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tnr::ptx {

#ifdef TNR_THREAD_SANITIZER
// No memcpy: that it would see.
template <class T>
__attribute__((no_sanitize("thread"))) T plain_read(const std::byte* p) {
    return *reinterpret_cast<const T*>(p);
}
template <class T>
__attribute__((no_sanitize("thread"))) void plain_write(std::byte* p, T value) {
    *reinterpret_cast<T*>(p) = value;
}
__attribute__((no_sanitize("thread"))) inline void plain_move(void* to, const void* from, size_t bytes) {
    auto* target = static_cast<volatile uint8_t*>(to);
    const auto* source = static_cast<const volatile uint8_t*>(from);
    if (target > source && target < source + bytes) {
        while (bytes-- > 0) target[bytes] = source[bytes];
        return;
    }
    size_t done = 0;
    for (; bytes - done >= sizeof(uint64_t); done += sizeof(uint64_t))
        *reinterpret_cast<volatile uint64_t*>(target + done) =
            *reinterpret_cast<const volatile uint64_t*>(source + done);
    for (; done < bytes; ++done) target[done] = source[done];
}
#else
template <class T>
T plain_read(const std::byte* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}
template <class T>
void plain_write(std::byte* p, T value) {
    std::memcpy(p, &value, sizeof value);
}
inline void plain_move(void* to, const void* from, size_t bytes) {
    std::memmove(to, from, bytes);
}
#endif

}  // namespace tnr::ptx
