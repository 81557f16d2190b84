// A wrapper with the inputs it was linked from (fatbin::inputs_of_wrapper) as bytes that can travel, and back. The
// worker's driver gets what the program's would have got, and links it for the GPU that is there.
//
// Begins like a wrapper; no wrapper can be mistaken for it, as the worker never sees one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "api_client/base/result.hpp"

namespace tnr::fatbin {

// `containers`: the linked one, then its inputs.
std::vector<std::byte> bundle(std::span<const std::span<const std::byte>> containers);

bool is_bundle(std::span<const std::byte> bytes);

// Points into the bundle's bytes, which must stay where they are.
class Unbundled {
public:
    static Result<Unbundled> from(std::span<const std::byte> bundle);
    // What a driver takes for a wrapper that nvcc has written. Valid until this object moves.
    const void* wrapper();
    const std::vector<std::span<const std::byte>>& containers() const { return containers_; }

private:
    struct Wrapper {
        uint32_t magic = 0, version = 0;
        const void* header = nullptr;
        const void* const* inputs = nullptr;
    };
    Wrapper wrapper_;
    std::vector<std::span<const std::byte>> containers_;  // the linked one, its inputs
    std::vector<const void*> inputs_;                     // for the wrapper; ends with null
};

}  // namespace tnr::fatbin
