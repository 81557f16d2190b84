// A code image as it is sent: bytes of ours, then bytes borrowed from the program, so that a large library is not
// copied just to be asked about.
#pragma once

#include <array>
#include <cstring>
#include <span>

#include "gpu_client/protocol/wire.hpp"

namespace tnr::cuda {

struct Image {
    wire::Bytes made;                     // a header in front of one entry, or all of it
    std::span<const std::byte> borrowed;  // the program's memory, behind it; see own()

    Image() = default;
    explicit Image(wire::Bytes bytes) : made(std::move(bytes)) {}

    size_t size() const { return made.size() + borrowed.size(); }
    std::array<std::span<const std::byte>, 2> parts() const { return {made, borrowed}; }

    // Copies what is borrowed. Call it unless the program's memory stays as it is until the image has been sent.
    void own() {
        made.insert(made.end(), borrowed.begin(), borrowed.end());
        borrowed = {};
    }
    void copy(size_t offset, size_t length, void* to) const {
        auto* at = static_cast<std::byte*>(to);
        for (auto part : parts()) {
            size_t here = offset < part.size() ? std::min(length, part.size() - offset) : 0;
            if (here > 0) std::memcpy(at, part.data() + offset, here);
            at += here;
            length -= here;
            offset -= std::min(offset, part.size());
        }
    }
};

}  // namespace tnr::cuda
