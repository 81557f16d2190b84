// Where the tiles of a sparse image are: in memory somewhere, or nowhere.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace tnr::ptx {

inline constexpr uint64_t tile_bytes = 64 << 10;

// Streams change places while kernels of other streams may look: each place is read and written as a whole.
class Tiles {
public:
    // None is anywhere. Takes host memory only for what is set.
    explicit Tiles(uint64_t count)
        : count_(count), places_(static_cast<Place*>(std::calloc(count == 0 ? 1 : count, sizeof(Place)))) {}
    bool is_sound() const { return places_ != nullptr; }
    uint64_t count() const { return count_; }
    std::byte* at(uint64_t tile) const {
        return std::atomic_ref<std::byte*>(places_.get()[tile]).load(std::memory_order_acquire);
    }
    void set(uint64_t tile, std::byte* place) {
        std::atomic_ref<std::byte*>(places_.get()[tile]).store(place, std::memory_order_release);
    }

private:
    using Place = std::byte*;
    struct Free {
        void operator()(Place* places) const { std::free(places); }
    };
    const uint64_t count_;
    const std::unique_ptr<Place, Free> places_;
};

}  // namespace tnr::ptx
