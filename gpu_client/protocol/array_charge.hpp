// What arrays are charged to a session's memory: the client says so when it makes one, and the worker charges no less.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>

#include "gpu_client/protocol/video_formats.hpp"

namespace tnr::wire {

// What a driver hands out memory for arrays in.
inline constexpr uint64_t array_granularity = 64 << 10;
// No array of any GPU has longer sides or more levels; keeps sums from overflowing.
inline constexpr size_t array_side_max = size_t{1} << 18;
inline constexpr unsigned array_levels_max = 19;

// 0: a format without texels of its own (block-compressed, or in planes), or one that is not remoted.
inline uint64_t texel_bytes_of(CUarray_format format, unsigned channels) {
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT8:
            return channels;
        case CU_AD_FORMAT_UNSIGNED_INT16:
        case CU_AD_FORMAT_SIGNED_INT16:
        case CU_AD_FORMAT_HALF:
            return uint64_t{2} * channels;
        case CU_AD_FORMAT_UNSIGNED_INT32:
        case CU_AD_FORMAT_SIGNED_INT32:
        case CU_AD_FORMAT_FLOAT:
            return uint64_t{4} * channels;
        case CU_AD_FORMAT_UNORM_INT8X1:
        case CU_AD_FORMAT_SNORM_INT8X1:
            return 1;
        case CU_AD_FORMAT_UNORM_INT8X2:
        case CU_AD_FORMAT_SNORM_INT8X2:
        case CU_AD_FORMAT_UNORM_INT16X1:
        case CU_AD_FORMAT_SNORM_INT16X1:
            return 2;
        case CU_AD_FORMAT_UNORM_INT8X4:
        case CU_AD_FORMAT_SNORM_INT8X4:
        case CU_AD_FORMAT_UNORM_INT16X2:
        case CU_AD_FORMAT_SNORM_INT16X2:
            return 4;
        case CU_AD_FORMAT_UNORM_INT16X4:
        case CU_AD_FORMAT_SNORM_INT16X4:
            return 8;
        default:
            break;
    }
    auto* video = find_video_format(format);
    return video && !video->planar() ? video->packed_bytes(channels) : 0;
}

// Whether CUDA 13.0 has such a format. Those of later versions are unknown to its drivers, too.
inline bool is_format(CUarray_format format) {
    return texel_bytes_of(format, 1) != 0 || find_video_format(format) ||
           (format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_BC7_UNORM_SRGB) ||
           format == CU_AD_FORMAT_UNORM_INT_101010_2;
}

// What copies count of an array: texels, or where they are block-compressed, blocks of 4 by 4 of them.
struct ArrayUnit {
    uint64_t bytes = 0;  // 0: a format that is not remoted, or one whose planes are copied
    size_t side = 1;     // texels

    size_t across(size_t texels) const { return texels / side + (texels % side != 0); }
};

inline uint64_t block_bytes_of(CUarray_format format) {
    if (format < CU_AD_FORMAT_BC1_UNORM || format > CU_AD_FORMAT_BC7_UNORM_SRGB) return 0;
    const bool small =
        format <= CU_AD_FORMAT_BC1_UNORM_SRGB || format == CU_AD_FORMAT_BC4_UNORM || format == CU_AD_FORMAT_BC4_SNORM;
    return small ? 8 : 16;
}

inline ArrayUnit unit_of(CUarray_format format, unsigned channels) {
    if (auto bytes = block_bytes_of(format)) return {bytes, 4};
    return {texel_bytes_of(format, channels), 1};
}

// Whether what follows can be computed; whether a driver makes it is the driver's affair.
inline bool is_array_shape(const CUDA_ARRAY3D_DESCRIPTOR& described) {
    const auto longest = std::max({described.Width, described.Height, described.Depth});
    const auto channels = described.NumChannels;
    const bool counts = channels == 1 || channels == 2 || channels == 4 ||
                        (channels == 3 && (block_bytes_of(described.Format) != 0 || planes_of(described.Format) != 0));
    return described.Width != 0 && longest <= array_side_max && counts;
}

// Its layers are no side of it that levels shrink.
inline bool is_stacked(const CUDA_ARRAY3D_DESCRIPTOR& described) {
    return described.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
}

// Its memory is mapped into it later, and charged where that was made.
inline bool is_tiled(const CUDA_ARRAY3D_DESCRIPTOR& described) {
    return described.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);
}

inline CUDA_ARRAY3D_DESCRIPTOR level_of(CUDA_ARRAY3D_DESCRIPTOR described, unsigned level) {
    auto shrink = [&](size_t& side) {
        if (side != 0) side = std::max<size_t>(side >> level, 1);
    };
    shrink(described.Width);
    shrink(described.Height);
    if (!is_stacked(described)) shrink(described.Depth);
    return described;
}

// Whether such arrays are remoted. Those of video formats have their memory from the beginning.
inline bool is_known_array(const CUDA_ARRAY3D_DESCRIPTOR& described) {
    if (find_video_format(described.Format)) return !is_tiled(described);
    return unit_of(described.Format, described.NumChannels).bytes != 0;
}

// All planes of one level.
inline uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR& level) {
    uint64_t bytes = 0;
    if (auto* video = find_video_format(level.Format); video && video->planar()) {
        for (unsigned plane = 0; plane < video->planes; ++plane) bytes += level_bytes(plane_of(level, *video, plane));
        return bytes;
    }
    const auto unit = unit_of(level.Format, level.NumChannels);
    return unit.across(level.Width) * unit.bytes * unit.across(std::max<size_t>(level.Height, 1)) *
           std::max<size_t>(level.Depth, 1);
}

inline uint64_t array_charge(const CUDA_ARRAY3D_DESCRIPTOR& described, unsigned levels) {
    if (is_tiled(described)) return 0;
    uint64_t bytes = 0;
    for (unsigned index = 0; index < std::min(levels, array_levels_max); ++index)
        bytes += level_bytes(level_of(described, index));
    return (bytes + array_granularity - 1) / array_granularity * array_granularity;
}

}  // namespace tnr::wire
