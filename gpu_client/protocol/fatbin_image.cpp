// Images that a program passes by bare pointer: what they are and where they end.
#include <algorithm>
#include <cctype>
#include <cstring>

#include "gpu_client/protocol/cubin.hpp"
#include "gpu_client/protocol/fatbin.hpp"

namespace tnr::fatbin {
namespace {

// 24 bytes that nvcc puts into the host program; `header` is an address in that program.
struct Wrapper {
    uint32_t magic;
    uint32_t version;
    const void* header;
    const void* linked_from;  // version 1: unused; version 2: the inputs that were linked into `header`
};

constexpr uint32_t elf_magic = 0x464C457F;

uint32_t first_word(std::span<const std::byte> start) {
    uint32_t word = 0;
    if (start.size() >= sizeof(word)) std::memcpy(&word, start.data(), sizeof(word));
    return word;
}

// PTX begins with blank lines, a comment or `.version`.
bool may_be_text(std::byte byte) {
    auto c = std::to_integer<unsigned char>(byte);
    return std::isspace(c) || c == '.' || c == '/';
}

}  // namespace

Image image_kind(std::span<const std::byte> start) {
    switch (first_word(start)) {
        case wrapper_magic:
            return Image::wrapper;
        case header_magic:
            return Image::header;
        case elf_magic:
            return Image::elf;
        default:
            break;
    }
    return !start.empty() && may_be_text(start[0]) ? Image::ptx : Image::unknown;
}

Result<uint64_t> image_size(const void* image) {
    auto start = static_cast<const std::byte*>(image);
    // A byte first: of an empty text there is no more than its NUL to read.
    if (may_be_text(start[0])) {
        size_t length = strnlen(static_cast<const char*>(image), image_bytes_max);
        if (length == image_bytes_max) return Error{Error::Kind::usage, "PTX without an end"};
        return length + 1;
    }
    switch (start[0] == std::byte{0} ? Image::unknown : image_kind({start, sizeof(uint32_t)})) {
        case Image::header: {
            uint16_t header_bytes;
            uint64_t entries_bytes;
            std::memcpy(&header_bytes, start + 6, sizeof(header_bytes));
            std::memcpy(&entries_bytes, start + 8, sizeof(entries_bytes));
            if (header_bytes < 16 || entries_bytes > image_bytes_max - header_bytes)
                return Error{Error::Kind::usage, "fat binary: too large"};
            return header_bytes + entries_bytes;
        }
        case Image::elf:
            return cubin::file_size(image);
        default:
            return Error{Error::Kind::usage, "this is no CUDA code: neither PTX, nor a cubin, nor a fat binary"};
    }
}

const void* header_of_wrapper(const void* wrapper) {
    Wrapper value;
    uint32_t magic;
    std::memcpy(&magic, wrapper, sizeof(magic));
    if (magic != wrapper_magic) return nullptr;
    std::memcpy(&value, wrapper, sizeof(value));
    return value.header;
}

std::vector<const void*> inputs_of_wrapper(const void* wrapper) {
    Wrapper value;
    if (!header_of_wrapper(wrapper)) return {};
    std::memcpy(&value, wrapper, sizeof(value));
    constexpr uint32_t version_with_inputs = 2;
    if (value.version != version_with_inputs || !value.linked_from) return {};
    std::vector<const void*> inputs;
    for (auto* next = static_cast<const void* const*>(value.linked_from); *next && inputs.size() < inputs_max; ++next)
        inputs.push_back(*next);
    return inputs;
}

}  // namespace tnr::fatbin
