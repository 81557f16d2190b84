// See tiled_memory.hpp.
#include "gpu_server/emulated_gpu/driver/tiled_memory.hpp"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

namespace tnr::emulated {
namespace {

static_assert(wire::array_tile_bytes == ptx::tile_bytes);

// Each takes 8 bytes of address space of the host.
constexpr uint64_t tiles_max = uint64_t{1} << 26;

uint64_t whole_tiles(uint64_t bytes) {
    return (bytes + ptx::tile_bytes - 1) / ptx::tile_bytes * ptx::tile_bytes;
}

struct TileExtent {
    uint32_t width, height, depth;
};
// The standard shapes of graphics, in texels or blocks of 1, 2, 4, 8 and 16 bytes.
constexpr TileExtent flat_tiles[] = {{256, 256, 1}, {256, 128, 1}, {128, 128, 1}, {128, 64, 1}, {64, 64, 1}};
constexpr TileExtent deep_tiles[] = {{64, 32, 32}, {32, 32, 32}, {32, 32, 16}, {32, 16, 16}, {16, 16, 16}};

TileExtent tile_of(const ptx::Image& image) {
    const auto index = std::bit_width(image.unit_bytes()) - 1;
    return image.dimensions == 3 ? deep_tiles[index] : flat_tiles[index];
}

bool holds_tile(const ptx::ImageLevel& level, const ptx::Image& image, const CUDA_ARRAY_SPARSE_PROPERTIES& properties) {
    auto& tile = properties.tileExtent;
    return level.width >= tile.width && level.height >= tile.height &&
           (image.dimensions < 3 || level.depth >= tile.depth);
}

// How the array is made of tiles, once its levels are laid out as if it were not.
wire::TiledShape shape_of(const CUDA_ARRAY3D_DESCRIPTOR& described, const ptx::Image& image, bool mipmapped,
                          uint64_t bytes) {
    wire::TiledShape shape;
    shape.described = described;
    shape.levels = static_cast<unsigned>(image.levels.size());
    if (described.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) {
        shape.deferred_bytes = whole_tiles(bytes);
        return shape;
    }
    auto& properties = shape.properties;
    const auto tile = tile_of(image);
    properties.tileExtent = {tile.width * image.unit_side(), tile.height * image.unit_side(), tile.depth};
    const bool per_layer = image.layered && mipmapped;
    unsigned first = 0;
    while (first < image.levels.size() && holds_tile(image.levels[first], image, properties)) ++first;
    uint64_t tail = 0;
    for (auto level = first; level < image.levels.size(); ++level)
        tail += image.levels[level].slice_bytes * (per_layer ? 1 : image.levels[level].depth);
    properties.miptailSize = whole_tiles(tail);
    properties.miptailFirstLevel = mipmapped ? first : 0;
    if (!mipmapped && tail != 0) properties.flags = CU_ARRAY_SPARSE_PROPERTIES_SINGLE_MIPTAIL;
    return shape;
}

void place_levels(ptx::Image& image, const wire::TiledShape& shape, const ptx::Tiles& tiles) {
    const auto tile = tile_of(image);
    const unsigned sparse = shape.deferred_bytes != 0 ? 0 : shape.sparse_levels();
    uint64_t in_tail = 0;
    for (unsigned index = 0; index < image.levels.size(); ++index) {
        auto& level = image.levels[index];
        level.tiles = &tiles;
        if (index < sparse) {
            const auto grid = shape.grid(index);
            level.texels = 0;
            level.first_tile = shape.first_tile(index);
            level.tile_row = uint64_t{tile.width} * image.unit_bytes();
            level.tile_rows = tile.height, level.tile_slices = tile.depth;
            level.tiles_across = grid.across, level.tiles_down = grid.down;
        } else if (shape.deferred_bytes == 0) {
            const bool per_layer = shape.tail_of_each_layer();
            level.first_tile = shape.first_tile(sparse);
            level.texels = in_tail;
            in_tail += level.slice_bytes * (per_layer ? 1 : level.depth);
            if (per_layer) level.slice_bytes = shape.tail_tiles() * ptx::tile_bytes;
        }
    }
}

}  // namespace

std::shared_ptr<TiledMemory> TiledMemory::create(const CUDA_ARRAY3D_DESCRIPTOR& described, ptx::Image& image,
                                                 unsigned levels, bool mipmapped) {
    uint64_t bytes = 0;
    lay_out_levels(image, levels, bytes);
    const auto shape = shape_of(described, image, mipmapped, bytes);
    if (shape.tiles() > tiles_max) return nullptr;
    auto made = std::make_shared<TiledMemory>(shape, shape.tiles());
    if (!made->tiles_.is_sound()) return nullptr;
    place_levels(image, shape, made->tiles_);
    image.keeps = made;
    return made;
}

void TiledMemory::map(const wire::TileRegion& region, const std::shared_ptr<PhysicalMemory>& memory, uint64_t offset) {
    auto* window = memory ? memory->window() : nullptr;
    std::vector<std::pair<uint64_t, uint64_t>> runs;
    shape.each_run(region, [&](uint64_t first, uint64_t count) { runs.emplace_back(first, count); });
    LockGuard lock(mutex_);
    for (auto [first, count] : runs)
        for (uint64_t tile = first; tile < first + count; ++tile, offset += ptx::tile_bytes) {
            tiles_.set(tile, window ? window + offset : nullptr);
            if (window)
                memory_[tile] = memory;
            else
                memory_.erase(tile);
        }
}

}  // namespace tnr::emulated
