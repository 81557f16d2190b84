// The name of a code image: a hash of the bytes that travel. Two images with one name would let one program run the
// other's code, so the hash is cryptographic; it is a tree, so that several cores can share 400 MB. README.md of this
// folder defines it.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tnr::wire {

using ImageHash = std::array<std::byte, 32>;
using ImageParts = std::span<const std::span<const std::byte>>;

// The hash of the concatenated parts. Uses a few threads of its own, with all signals blocked, and joins them before it
// returns. Any thread.
ImageHash hash_of_image(ImageParts parts);

// 64 lower-case hexadecimal digits.
std::string to_hex(const ImageHash& hash);
std::optional<ImageHash> image_hash_from_hex(std::string_view digits);

}  // namespace tnr::wire
