// See tiled_arrays.hpp.
#include "gpu_server/worker/tiled_arrays.hpp"

#include <bit>

#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {

template <class Handle, class Sparse, class Requirements>
static CUresult learn(Handle array, CUdevice device, TiledArray& tiled, Sparse sparse, Requirements requirements) {
    auto& shape = tiled.shape;
    if (shape.described.Flags & CUDA_ARRAY3D_SPARSE) {
        if (!sparse) return CUDA_ERROR_NOT_SUPPORTED;
        if (auto result = sparse(&shape.properties, array); result != CUDA_SUCCESS) return result;
    } else {
        CUDA_ARRAY_MEMORY_REQUIREMENTS found{};
        if (!requirements) return CUDA_ERROR_NOT_SUPPORTED;
        if (auto result = requirements(&found, array, device); result != CUDA_SUCCESS) return result;
        shape.deferred_bytes = found.size;
    }
    return shape.is_sound() ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static std::shared_ptr<TiledArray> begin(const CUDA_ARRAY3D_DESCRIPTOR& described, unsigned levels) {
    auto tiled = std::make_shared<TiledArray>();
    tiled->shape.described = described;
    tiled->shape.levels = std::min(levels, wire::array_levels_max);
    return tiled;
}

CUresult learn_tiles(CUarray array, const CUDA_ARRAY3D_DESCRIPTOR& described, CUdevice device,
                     std::shared_ptr<TiledArray>& tiled) {
    tiled = begin(described, 1);
    return learn(array, device, *tiled, driver().cuArrayGetSparseProperties, driver().cuArrayGetMemoryRequirements);
}

CUresult learn_tiles(CUmipmappedArray array, const CUDA_ARRAY3D_DESCRIPTOR& described, unsigned levels, CUdevice device,
                     std::shared_ptr<TiledArray>& tiled) {
    tiled = begin(described, levels);
    return learn(array, device, *tiled, driver().cuMipmappedArrayGetSparseProperties,
                 driver().cuMipmappedArrayGetMemoryRequirements);
}

void UnmappedTiles::put(std::vector<std::shared_ptr<Physical>> memory, CUstream stream) {
    sweep();
    if (memory.empty()) return;
    Waiting waiting{nullptr, std::move(memory)};
    if (mark(waiting.reached, stream) == CUDA_SUCCESS) waiting_.push_back(std::move(waiting));
}

void UnmappedTiles::sweep() {
    std::erase_if(waiting_, [](const Waiting& waiting) { return is_reached(waiting.reached); });
}

}  // namespace tnr::worker
