// Formats of arrays as video has them: in planes, each of which is an array of its own (cuArrayGetPlane), or packed.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>

namespace tnr::wire {

struct VideoFormat {
    CUarray_format format;
    unsigned channels;      // cuda.h names some; with 3, programs make all that have planes
    unsigned bytes;         // of a component
    unsigned planes;        // 1: packed, without any. 2: the second has both colors
    unsigned across, down;  // texels for one of the colors

    bool planar() const { return planes > 1; }
    // Each component is counted, whatever number of them was asked for; ten bits of three and two more make four bytes.
    uint64_t packed_bytes(unsigned asked) const { return uint64_t{bytes} * std::max(asked, channels); }
};

// Null: another one. R10G10B10A2 is no video, but packed as Y410 is.
inline const VideoFormat* find_video_format(CUarray_format format) {
    static constexpr VideoFormat all[] = {
        {CU_AD_FORMAT_NV12, 3, 1, 2, 2, 2},
        {CU_AD_FORMAT_P010, 3, 2, 2, 2, 2},
        {CU_AD_FORMAT_P016, 3, 2, 2, 2, 2},
        {CU_AD_FORMAT_NV16, 3, 1, 2, 2, 1},
        {CU_AD_FORMAT_P210, 3, 2, 2, 2, 1},
        {CU_AD_FORMAT_P216, 3, 2, 2, 2, 1},
        {CU_AD_FORMAT_Y444_PLANAR8, 3, 1, 3, 1, 1},
        {CU_AD_FORMAT_Y444_PLANAR10, 3, 2, 3, 1, 1},
        {CU_AD_FORMAT_YUV444_8bit_SemiPlanar, 3, 1, 2, 1, 1},
        {CU_AD_FORMAT_YUV444_16bit_SemiPlanar, 3, 2, 2, 1, 1},
        {CU_AD_FORMAT_YUY2, 2, 1, 1, 2, 1},
        {CU_AD_FORMAT_Y210, 2, 2, 1, 2, 1},
        {CU_AD_FORMAT_Y216, 2, 2, 1, 2, 1},
        {CU_AD_FORMAT_AYUV, 4, 1, 1, 1, 1},
        {CU_AD_FORMAT_Y410, 4, 1, 1, 1, 1},
        {CU_AD_FORMAT_Y416, 4, 2, 1, 1, 1},
        {CU_AD_FORMAT_UNORM_INT_101010_2, 4, 1, 1, 1, 1},
    };
    for (auto& each : all)
        if (each.format == format) return &each;
    return nullptr;
}

// Its planes, none if it has no such format.
inline unsigned planes_of(CUarray_format format) {
    auto* video = find_video_format(format);
    return video && video->planar() ? video->planes : 0;
}

// A plane of such an array as an array. Sizes are rounded up: where they are odd, a driver may refuse.
inline CUDA_ARRAY3D_DESCRIPTOR plane_of(CUDA_ARRAY3D_DESCRIPTOR described, const VideoFormat& video, unsigned plane) {
    described.Format = video.bytes == 1 ? CU_AD_FORMAT_UNSIGNED_INT8 : CU_AD_FORMAT_UNSIGNED_INT16;
    described.NumChannels = plane != 0 && video.planes == 2 ? 2 : 1;
    if (plane == 0) return described;
    described.Width = (described.Width + video.across - 1) / video.across;
    described.Height = (described.Height + video.down - 1) / video.down;
    return described;
}

}  // namespace tnr::wire
