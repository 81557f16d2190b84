// Fat binaries: the container in which nvcc ships a program's device code for several architectures.
// The client uses this to send only the entry that fits the GPU; the emulated GPU to get at the PTX.
//
// Everything takes untrusted bytes as a span and never reads outside it, except image_size(), whose whole
// point is to find the end of an image that a program passed by bare pointer. Views (Entry::payload,
// Entry::name) point into the caller's bytes and live as long as they do. No state, so no thread rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "api_client/base/result.hpp"

namespace tnr::fatbin {

// The largest image that is accepted. The largest known ones (cuBLASLt, cuDNN engines) are about 700 MB.
inline constexpr uint64_t image_bytes_max = uint64_t{2} << 30;
// The most entries of one container: an nvcc line with every architecture there is writes about 30.
inline constexpr size_t entries_max = 4096;
// The most inputs of one wrapper: a large project links hundreds of objects.
inline constexpr size_t inputs_max = 4096;
// The largest unpacked entry: a claim of more is refused before anything is allocated.
inline constexpr uint64_t unpacked_bytes_max = uint64_t{1} << 30;
// zstd and LZ4 do not get past these ratios, so a small file cannot ask for a large buffer for long.
inline constexpr uint64_t expansion_max = 65536;

inline constexpr uint32_t wrapper_magic = 0x466243B1;
inline constexpr uint32_t header_magic = 0xBA55ED50;

enum class Kind { ptx, elf, other };
enum class Compression { none, lz4, zstd, unsupported };

// Code for `sm_90a` runs on exactly 9.0; code for `sm_100f` on its major version from that minor on.
enum class Variant { plain, architecture, family };

struct Entry {
    Kind kind = Kind::other;
    uint32_t sm = 0;  // 90 for sm_90
    Variant variant = Variant::plain;
    Compression compression = Compression::none;
    uint64_t flags = 0;                  // as in the file
    std::string_view name;               // usually empty
    std::span<const std::byte> payload;  // as in the file: compressed, without the padding
    uint64_t unpacked_bytes = 0;         // of the payload once unpacked
};

// What a program may hand to cuModuleLoadData and cuLibraryLoadData.
enum class Image { unknown, wrapper, header, elf, ptx };

// Looks at the first bytes only. Text that may be PTX is Image::ptx; its parser has the last word.
Image image_kind(std::span<const std::byte> start);

// The size of the image at `image`: a header's own length, the end of an ELF's farthest table, a text with its NUL.
// Wrappers hold pointers: resolve them with header_of_wrapper() first. Fails on anything unknown.
Result<uint64_t> image_size(const void* image);

// The container behind a wrapper in this process's memory: null when `wrapper` is not one.
const void* header_of_wrapper(const void* wrapper);
// The containers that the wrapper's own was linked from. `nvcc -rdc=true` keeps them beside the result, so that a
// driver can link them anew for a GPU that the result does not fit. Empty when there are none.
std::vector<const void*> inputs_of_wrapper(const void* wrapper);

// The container that `bytes` start with (with its header, not a wrapper); others may follow.
Result<std::span<const std::byte>> first_container(std::span<const std::byte> bytes);

// The entries of a container that starts with a header (not a wrapper).
Result<std::vector<Entry>> entries(std::span<const std::byte> container);

// What the driver would run on a device of this compute capability: the cubin of the same major version
// with the highest minor that is not above it, else the highest PTX that is not above it; null if none is.
const Entry* choose(std::span<const Entry> entries, unsigned major, unsigned minor);
// The same among PTX only: for the emulated GPU, which runs nothing else.
const Entry* choose_ptx(std::span<const Entry> entries, unsigned major, unsigned minor);

// The entry's code. PTX loses the NULs it is padded with.
Result<std::vector<std::byte>> unpack(const Entry& entry);

}  // namespace tnr::fatbin
