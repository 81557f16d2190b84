// See bundle.hpp. Layout: u32 wrapper's magic, u32 how many containers; the containers, each at a multiple of 8 bytes,
// each as long as its own header says.
#include "gpu_client/protocol/bundle.hpp"

#include <cstring>

#include "gpu_client/protocol/fatbin.hpp"

namespace tnr::fatbin {
namespace {

constexpr size_t alignment = 8;  // what nvcc gives a container
constexpr uint32_t version_with_inputs = 2;

struct Start {
    uint32_t magic;
    uint32_t containers;
};

size_t aligned(size_t size) {
    return (size + alignment - 1) / alignment * alignment;
}

// The size of the container that the bytes begin with, checked; 0 if they do not begin with one.
size_t container_size(std::span<const std::byte> bytes) {
    constexpr size_t header_bytes = 16;
    if (bytes.size() < header_bytes || image_kind(bytes) != Image::header) return 0;
    auto size = image_size(bytes.data());
    return size && *size <= bytes.size() ? *size : 0;
}

}  // namespace

std::vector<std::byte> bundle(std::span<const std::span<const std::byte>> containers) {
    Start start{wrapper_magic, static_cast<uint32_t>(containers.size())};
    auto* first = reinterpret_cast<const std::byte*>(&start);
    std::vector<std::byte> bytes(first, first + sizeof start);
    for (auto& container : containers) {
        bytes.insert(bytes.end(), container.begin(), container.end());
        bytes.resize(aligned(bytes.size()));
    }
    return bytes;
}

bool is_bundle(std::span<const std::byte> bytes) {
    return bytes.size() >= sizeof(Start) && image_kind(bytes) == Image::wrapper;
}

Result<Unbundled> Unbundled::from(std::span<const std::byte> bundle) {
    Error malformed{Error::Kind::usage, "a bundle of fat binaries ends too early"};
    if (!is_bundle(bundle)) return malformed;
    Start start;
    std::memcpy(&start, bundle.data(), sizeof start);
    if (start.containers == 0 || start.containers > inputs_max + 1) return malformed;
    Unbundled found;
    auto rest = bundle.subspan(sizeof start);
    for (uint32_t i = 0; i < start.containers; ++i) {
        auto size = container_size(rest);
        if (size == 0) return malformed;
        found.containers_.push_back(rest.first(size));
        if (i > 0) found.inputs_.push_back(rest.data());
        rest = rest.subspan(std::min(aligned(size), rest.size()));
    }
    found.inputs_.push_back(nullptr);
    return found;
}

const void* Unbundled::wrapper() {
    wrapper_ = {wrapper_magic, version_with_inputs, containers_[0].data(), inputs_.data()};
    return &wrapper_;
}

}  // namespace tnr::fatbin
