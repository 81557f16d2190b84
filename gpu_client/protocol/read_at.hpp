// Values and pieces of untrusted bytes: nothing where they would be outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace tnr {

using Bytes = std::span<const std::byte>;

template <class T>
std::optional<T> read_at(Bytes bytes, uint64_t offset) {
    if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof(T));
    return value;
}

inline std::optional<Bytes> slice(Bytes bytes, uint64_t offset, uint64_t size) {
    if (offset > bytes.size() || size > bytes.size() - offset) return std::nullopt;
    return bytes.subspan(offset, size);
}

}  // namespace tnr
