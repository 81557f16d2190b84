// Arrays that get their memory later: sparse ones tile by tile, deferred ones as a whole. Tiles lie in memory of cuMemCreate.
#pragma once

#include <unordered_map>

#include "gpu_client/protocol/tiled_arrays.hpp"
#include "gpu_server/emulated_gpu/driver/array.hpp"
#include "gpu_server/emulated_gpu/driver/physical_memory.hpp"

namespace tnr::emulated {

class TiledMemory {
public:
    // Lays the image out in tiles of its own, none of which is anywhere. Null: it is too large.
    static std::shared_ptr<TiledMemory> create(const CUDA_ARRAY3D_DESCRIPTOR& described, ptx::Image& image,
                                               unsigned levels, bool mipmapped);
    TiledMemory(const wire::TiledShape& laid_out, uint64_t tiles) : shape(laid_out), tiles_(tiles) {}

    const wire::TiledShape shape;

    // In the stream's time. The memory is kept for as long as a tile has it. Null: the tiles have none any more.
    void map(const wire::TileRegion& region, const std::shared_ptr<PhysicalMemory>& memory, uint64_t offset);

private:
    ptx::Tiles tiles_;
    tnr::Mutex mutex_;
    std::unordered_map<uint64_t, std::shared_ptr<PhysicalMemory>> memory_ TNR_GUARDED_BY(mutex_);  // by tile
};

}  // namespace tnr::emulated
