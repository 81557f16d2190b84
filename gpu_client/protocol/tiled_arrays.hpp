// Sparse arrays and those that are mapped later: which of their tiles a CUarrayMapInfo names, and what each tile has for its
// memory. Tiles are numbered level by level, in each layer by layer (or slice by slice), row by row; behind them those of the
// mip tail, layer by layer.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "gpu_client/protocol/array_charge.hpp"

namespace tnr::wire {

// Of every GPU and every format.
inline constexpr uint64_t array_tile_bytes = 64 << 10;

// CUarrayMapInfo without the resource and the memory. `tail`: of the mip tail, `offset` and `extent` are one number each.
struct TileRegion {
    uint32_t tail = 0, level = 0, layer = 0;
    std::array<uint64_t, 3> offset{}, extent{};
    auto fields() { return std::tie(tail, level, layer, offset, extent); }
};

struct TiledShape {
    CUDA_ARRAY3D_DESCRIPTOR described{};
    unsigned levels = 1;
    CUDA_ARRAY_SPARSE_PROPERTIES properties{};
    uint64_t deferred_bytes = 0;  // of an array that is mapped as a whole; 0: it is sparse

    struct Grid {
        uint64_t across = 0, down = 0, deep = 0;
        uint64_t count() const { return across * down * deep; }
    };
    bool layered() const { return is_stacked(described); }
    uint64_t layers() const { return layered() ? described.Depth : 1; }
    // A driver may say of a flat one that it has none.
    uint64_t tile_depth() const { return std::max(properties.tileExtent.depth, 1u); }
    // Levels that are not in the tail.
    unsigned sparse_levels() const {
        return properties.miptailSize == 0 ? levels : std::min(levels, properties.miptailFirstLevel);
    }
    Grid grid(unsigned level) const {
        const auto size = level_of(described, level);
        const auto& tile = properties.tileExtent;
        auto tiles = [](uint64_t side, uint64_t of_tile) {
            return (std::max<uint64_t>(side, 1) + of_tile - 1) / of_tile;
        };
        return {tiles(size.Width, tile.width), tiles(size.Height, tile.height),
                layered() ? described.Depth : tiles(size.Depth, tile_depth())};
    }
    uint64_t first_tile(unsigned level) const {
        uint64_t first = 0;
        for (unsigned before = 0; before < level; ++before) first += grid(before).count();
        return first;
    }
    bool tail_of_each_layer() const {
        return layered() && !(properties.flags & CU_ARRAY_SPARSE_PROPERTIES_SINGLE_MIPTAIL);
    }
    uint64_t tail_tiles() const { return (properties.miptailSize + array_tile_bytes - 1) / array_tile_bytes; }
    uint64_t deferred_tiles() const { return (deferred_bytes + array_tile_bytes - 1) / array_tile_bytes; }
    uint64_t tiles() const {
        if (deferred_bytes != 0) return deferred_tiles();
        return first_tile(sparse_levels()) + tail_tiles() * (tail_of_each_layer() ? layers() : 1);
    }
    // Can be computed with, whatever a driver says.
    bool is_sound() const {
        const auto& tile = properties.tileExtent;
        const bool sparse = tile.width != 0 && tile.height != 0 && levels != 0;
        return deferred_bytes != 0 || sparse;
    }

    // Calls use(first tile, how many) for each run of the region, in the order in which they take the memory. False: there is
    // no such region.
    template <class Use>
    bool each_run(const TileRegion& region, Use&& use) const {
        if (deferred_bytes != 0) return use(uint64_t{0}, deferred_tiles()), true;
        return region.tail != 0 ? tail_run(region, use) : level_runs(region, use);
    }

private:
    template <class Use>
    bool tail_run(const TileRegion& region, Use& use) const {
        const uint64_t bytes = tail_tiles() * array_tile_bytes, offset = region.offset[0], size = region.extent[0];
        const bool inside = size != 0 && offset <= bytes && size <= bytes - offset;
        const bool whole = offset % array_tile_bytes == 0 && size % array_tile_bytes == 0;
        if (!inside || !whole || region.layer >= (tail_of_each_layer() ? layers() : 1)) return false;
        const uint64_t first = first_tile(sparse_levels()) + region.layer * tail_tiles();
        use(first + offset / array_tile_bytes, size / array_tile_bytes);
        return true;
    }
    template <class Use>
    bool level_runs(const TileRegion& region, Use& use) const {
        if (region.level >= sparse_levels() || region.layer >= layers()) return false;
        const auto all = grid(region.level);
        const auto size = level_of(described, region.level);
        const auto& tile = properties.tileExtent;
        uint64_t first[3], count[3];
        // Whole tiles; the last may be said to end where the level does.
        auto take = [&](int axis, uint64_t of_tile, uint64_t texels, uint64_t tiles) {
            const uint64_t offset = region.offset[axis], extent = region.extent[axis];
            first[axis] = offset / of_tile, count[axis] = (extent + of_tile - 1) / of_tile;
            const bool inside = offset < tiles * of_tile && extent != 0 && extent <= tiles * of_tile - offset;
            return inside && offset % of_tile == 0 && (extent % of_tile == 0 || offset + extent == texels);
        };
        const bool flat = layered() || described.Depth == 0;
        const bool sound =
            take(0, tile.width, size.Width, all.across) && take(1, tile.height, size.Height, all.down) &&
            (flat ? region.offset[2] == 0 && region.extent[2] == 1 : take(2, tile_depth(), size.Depth, all.deep));
        if (!sound) return false;
        if (flat) first[2] = region.layer, count[2] = 1;
        for (uint64_t z = first[2]; z < first[2] + count[2]; ++z)
            for (uint64_t y = first[1]; y < first[1] + count[1]; ++y)
                use(first_tile(region.level) + (z * all.down + y) * all.across + first[0], count[0]);
        return true;
    }
};

// What CUarrayMapInfo says of where, which means nothing of an array that is mapped as a whole. False: nothing that is known.
inline bool region_of(const CUarrayMapInfo& info, TileRegion& region) {
    if (info.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
        auto& tail = info.subresource.miptail;
        region.tail = 1, region.layer = tail.layer, region.offset[0] = tail.offset, region.extent[0] = tail.size;
    } else if (info.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL) {
        auto& level = info.subresource.sparseLevel;
        region.level = level.level, region.layer = level.layer;
        region.offset = {level.offsetX, level.offsetY, level.offsetZ};
        region.extent = {level.extentWidth, level.extentHeight, level.extentDepth};
    } else {
        return false;
    }
    return true;
}
// And back, in the driver's words.
inline void put_region(const TileRegion& region, CUarrayMapInfo& info) {
    if (region.tail != 0) {
        info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
        info.subresource.miptail = {region.layer, region.offset[0], region.extent[0]};
        return;
    }
    auto narrow = [](uint64_t value) { return static_cast<unsigned>(value); };
    info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
    info.subresource.sparseLevel = {region.level,
                                    region.layer,
                                    narrow(region.offset[0]),
                                    narrow(region.offset[1]),
                                    narrow(region.offset[2]),
                                    narrow(region.extent[0]),
                                    narrow(region.extent[1]),
                                    narrow(region.extent[2])};
}

// What each tile has for its memory, by runs of tiles. `Memory` is a pointer that owns.
template <class Memory>
class TileBook {
public:
    size_t runs() const { return runs_.size(); }
    // They have none any more; what they had is appended to `dropped`.
    void take(uint64_t first, uint64_t count, std::vector<Memory>& dropped) {
        const uint64_t end = first + count;
        auto run = runs_.upper_bound(first);
        if (run != runs_.begin() && std::prev(run)->second.end > first) --run;
        while (run != runs_.end() && run->first < end) {
            const uint64_t begin = run->first;
            Run old = std::move(run->second);
            run = runs_.erase(run);
            if (begin < first) runs_.emplace(begin, Run{first, old.memory});
            if (old.end > end) runs_.emplace(end, Run{old.end, old.memory});
            dropped.push_back(std::move(old.memory));
        }
    }
    void put(uint64_t first, uint64_t count, const Memory& memory, std::vector<Memory>& dropped) {
        take(first, count, dropped);
        auto before = runs_.lower_bound(first);
        if (before != runs_.begin() && std::prev(before)->second.end == first &&
            std::prev(before)->second.memory == memory)
            std::prev(before)->second.end = first + count;
        else
            runs_.emplace(first, Run{first + count, memory});
    }
    std::vector<Memory> all() && {
        std::vector<Memory> result;
        for (auto& [begin, run] : runs_) result.push_back(std::move(run.memory));
        runs_.clear();
        return result;
    }

private:
    struct Run {
        uint64_t end;
        Memory memory;
    };
    std::map<uint64_t, Run> runs_;  // by first tile
};

}  // namespace tnr::wire
