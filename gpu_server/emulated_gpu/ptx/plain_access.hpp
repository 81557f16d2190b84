// Plain reads and writes of kernels. Where they meet those of other kernels, or copies that run beside them, that is the
// program's business: ThreadSanitizer does not see them. A list of what it is to overlook does not do: a worker cannot start
// the symbolizer that reads names for it.
#pragma once

#include <cstddef>
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
#endif

}  // namespace tnr::ptx
