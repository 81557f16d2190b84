// Tiles of sparse arrays for tests.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "arrays.hpp"

namespace driver_api {

inline constexpr size_t tile_size = 64 << 10;  // bytes

// Memory for tiles; released at the end of the scope.
class TilePool {
public:
    explicit TilePool(size_t bytes, int device = 0, unsigned short usage = CU_MEM_CREATE_USAGE_TILE_POOL) {
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
        properties.allocFlags.usage = usage;
        CU_OK(cu.cuMemCreate(&handle, bytes, &properties, 0));
    }
    ~TilePool() { release(); }
    TilePool(const TilePool&) = delete;
    TilePool& operator=(const TilePool&) = delete;
    void release() {
        if (handle) cu.cuMemRelease(handle);
        handle = 0;
    }

    CUmemGenericAllocationHandle handle = 0;
};
inline constexpr size_t pool_bytes = 2 << 20;

class SparseMipmap {
public:
    SparseMipmap(const CUDA_ARRAY3D_DESCRIPTOR& description, unsigned levels) {
        CU_OK(cu.cuMipmappedArrayCreate(&handle, &description, levels));
    }
    ~SparseMipmap() { cu.cuMipmappedArrayDestroy(handle); }
    SparseMipmap(const SparseMipmap&) = delete;
    SparseMipmap& operator=(const SparseMipmap&) = delete;
    CUarray level(unsigned index) const {
        CUarray array = nullptr;
        CU_OK(cu.cuMipmappedArrayGetLevel(&array, handle, index));
        return array;
    }

    CUmipmappedArray handle = nullptr;
};

struct TileRegion {
    unsigned x, y, z, width, height, depth, level = 0, layer = 0;
};

inline CUarrayMapInfo tiles_of(CUarray array) {
    CUarrayMapInfo info{};
    info.resourceType = CU_RESOURCE_TYPE_ARRAY;
    info.resource.array = array;
    info.deviceBitMask = 1;
    return info;
}
inline CUarrayMapInfo tiles_of(const SparseMipmap& mipmap) {
    CUarrayMapInfo info{};
    info.resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    info.resource.mipmap = mipmap.handle;
    info.deviceBitMask = 1;
    return info;
}
inline CUarrayMapInfo tiles_at(CUarrayMapInfo info, const TileRegion& region) {
    info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
    info.subresource.sparseLevel = {region.level, region.layer, region.x,      region.y,
                                    region.z,     region.width, region.height, region.depth};
    return info;
}
inline CUarrayMapInfo tail_of(CUarrayMapInfo info, size_t offset, size_t size, unsigned layer = 0) {
    info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
    info.subresource.miptail = {layer, offset, size};
    return info;
}
inline CUarrayMapInfo mapped_to(CUarrayMapInfo info, const TilePool& pool, size_t offset = 0) {
    info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
    info.memHandle.memHandle = pool.handle;
    info.offset = offset;
    return info;
}
inline CUarrayMapInfo unmapped_from(CUarrayMapInfo info) {
    info.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
    return info;
}
inline CUresult change_tiles(CUarrayMapInfo info, CUstream stream = nullptr) {
    return cu.cuMemMapArrayAsync(&info, 1, stream);
}

inline CUDA_ARRAY3D_DESCRIPTOR sparse_shape(size_t width, size_t height, size_t depth = 0, unsigned flags = 0,
                                            unsigned channels = 1) {
    return described(width, height, depth, flags | CUDA_ARRAY3D_SPARSE, channels);
}

// The whole of a level, of floats, from or to the host.
inline CUDA_MEMCPY3D whole_level(CUarray array, size_t width, size_t height, size_t depth) {
    CUDA_MEMCPY3D copy{};
    copy.srcArray = copy.dstArray = array;
    copy.WidthInBytes = width * 4, copy.Height = height, copy.Depth = depth;
    return copy;
}
inline void put_level(CUarray array, size_t width, size_t height, size_t depth, const std::vector<float>& values) {
    auto copy = whole_level(array, width, height, depth);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = values.data(), copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcPitch = width * 4, copy.srcHeight = height;
    CU_OK(cu.cuMemcpy3D(&copy));
}
inline std::vector<float> get_level(CUarray array, size_t width, size_t height, size_t depth = 1) {
    std::vector<float> values(width * height * depth);
    auto copy = whole_level(array, width, height, depth);
    copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = values.data(), copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstPitch = width * 4, copy.dstHeight = height;
    CU_OK(cu.cuMemcpy3D(&copy));
    return values;
}
inline std::vector<float> counted_floats(size_t count, float first = 1) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
}
inline bool are_all(const std::vector<float>& values, float value) {
    return std::all_of(values.begin(), values.end(), [&](float each) { return each == value; });
}

}  // namespace driver_api
