// Bundles of fat binaries come from tenants: whatever lies in them, every container that the driver is then handed must
// lie within the bytes that came.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "gpu_client/protocol/bundle.hpp"
#include "gpu_client/protocol/fatbin.hpp"

using namespace tnr::fatbin;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    auto bytes = std::as_bytes(std::span(data, size));
    (void)is_bundle(bytes);
    auto found = Unbundled::from(bytes);
    if (!found) return 0;
    const auto* end = bytes.data() + bytes.size();
    for (auto* input : inputs_of_wrapper(found->wrapper())) {
        auto length = image_size(input);
        auto* begin = static_cast<const std::byte*>(input);
        if (!length || begin < bytes.data() || *length > static_cast<size_t>(end - begin)) std::abort();
    }
    return 0;
}
