// Fat binaries and cubins come from programs we do not know, and on the server from tenants: whatever the
// bytes are, reading them must not go outside them and must not ask for absurd amounts of memory.
#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu_client/protocol/cubin.hpp"
#include "gpu_client/protocol/fatbin.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    auto bytes = std::as_bytes(std::span(data, size));
    (void)tnr::fatbin::image_kind(bytes);
    (void)tnr::cubin::architecture(bytes);
    (void)tnr::cubin::kernels(bytes);
    auto entries = tnr::fatbin::entries(bytes);
    if (!entries) return 0;
    (void)tnr::fatbin::choose(*entries, 9, 0);
    for (const auto& entry : *entries) {
        auto code = tnr::fatbin::unpack(entry);
        if (code && entry.kind == tnr::fatbin::Kind::elf) (void)tnr::cubin::kernels(*code);
    }
    return 0;
}
