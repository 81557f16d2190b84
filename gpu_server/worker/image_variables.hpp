// How much of a GPU's memory the variables of a code image take: .global and .const of PTX, and the sections that those
// have become in a cubin. Code itself is not counted: it takes about what the image has.
//
// Takes untrusted bytes and never reads outside the span. No state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace tnr::worker {

// Of one copy of them, which each context that uses the code has. Of a fat binary's entries the largest counts, as the
// driver takes one of them; one that we cannot read (of CUDA 10 and before, or a compiler's intermediate form) counts for
// nothing. UINT64_MAX: more than can be counted. Nothing: it cannot be told, because a size is not written as PTX has it,
// or an entry does not unpack; a driver rejects such an image.
std::optional<uint64_t> variable_bytes(std::span<const std::byte> image);

// The same of PTX alone.
std::optional<uint64_t> variable_bytes_of_ptx(std::string_view text);

}  // namespace tnr::worker
