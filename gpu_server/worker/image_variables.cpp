// See image_variables.hpp. The text of PTX is read in ptx_variables.cpp.
#include "gpu_server/worker/image_variables.hpp"

#include <algorithm>

#include "gpu_client/protocol/bundle.hpp"
#include "gpu_client/protocol/elf.hpp"
#include "gpu_client/protocol/fatbin.hpp"
#include "gpu_server/worker/saturating.hpp"

namespace tnr::worker {

using ImageBytes = std::span<const std::byte>;

static std::optional<uint64_t> of_cubin(ImageBytes image) {
    auto sections = elf::sections(image);
    if (!sections) return std::nullopt;
    uint64_t bytes = 0;
    for (auto& section : *sections) {
        // .nv.constant0.* is where a kernel's parameters go.
        bool counts = section.name.starts_with(".nv.global") ||
                      (section.name.starts_with(".nv.constant") && !section.name.starts_with(".nv.constant0"));
        if (counts) bytes = saturating_sum(bytes, section.size);
    }
    return bytes;
}

static std::optional<uint64_t> of_code(ImageBytes code) {
    if (fatbin::image_kind(code) == fatbin::Image::elf) return of_cubin(code);
    return variable_bytes_of_ptx({reinterpret_cast<const char*>(code.data()), code.size()});
}

static std::optional<uint64_t> of_entry(const fatbin::Entry& entry) {
    bool unreadable = entry.kind == fatbin::Kind::other || entry.compression == fatbin::Compression::unsupported;
    if (unreadable) return 0;
    if (entry.compression == fatbin::Compression::none) return of_code(entry.payload);
    auto code = fatbin::unpack(entry);
    return code ? of_code(*code) : std::nullopt;
}

static std::optional<uint64_t> of_container(ImageBytes container) {
    auto entries = fatbin::entries(container);
    if (!entries) return std::nullopt;
    uint64_t most = 0;
    for (auto& entry : *entries) {
        auto bytes = of_entry(entry);
        if (!bytes) return std::nullopt;
        most = std::max(most, *bytes);
    }
    return most;
}

// The driver takes the linked one, or links its inputs anew.
static std::optional<uint64_t> of_bundle(ImageBytes image) {
    auto unbundled = fatbin::Unbundled::from(image);
    if (!unbundled) return std::nullopt;
    uint64_t linked = 0, inputs = 0;
    for (size_t i = 0; i < unbundled->containers().size(); ++i) {
        auto bytes = of_container(unbundled->containers()[i]);
        if (!bytes) return std::nullopt;
        if (i == 0) linked = *bytes;
        if (i > 0) inputs = saturating_sum(inputs, *bytes);
    }
    return std::max(linked, inputs);
}

std::optional<uint64_t> variable_bytes(ImageBytes image) {
    switch (fatbin::image_kind(image)) {
        case fatbin::Image::wrapper:
            return of_bundle(image);
        case fatbin::Image::header:
            return of_container(image);
        case fatbin::Image::elf:
        case fatbin::Image::ptx:
            return of_code(image);
        default:
            return std::nullopt;
    }
}

}  // namespace tnr::worker
