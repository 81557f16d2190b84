// How large an array a device makes: what its attributes say of textures and surfaces.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstddef>

namespace tnr::wire {

struct ArraySides {
    size_t width, height, depth;
};

// The largest array of that shape on a device whose attributes `limit` tells.
template <class Limit>
ArraySides largest_array(const CUDA_ARRAY3D_DESCRIPTOR& given, const Limit& limit) {
    bool layered = given.Flags & CUDA_ARRAY3D_LAYERED, surface = given.Flags & CUDA_ARRAY3D_SURFACE_LDST;
    auto choose = [&](CUdevice_attribute texture, CUdevice_attribute of_surface) {
        return surface ? std::min<size_t>(limit(texture), limit(of_surface)) : size_t{limit(texture)};
    };
    if (given.Flags & CUDA_ARRAY3D_CUBEMAP) {
        auto side = layered ? choose(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH,
                                     CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH)
                            : choose(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH,
                                     CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH);
        auto faces = layered ? choose(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS,
                                      CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS)
                             : 6;
        return {side, side, faces};
    }
    if (layered && given.Height == 0)
        return {choose(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH,
                       CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH),
                0,
                choose(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS,
                       CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS)};
    if (layered)
        return {choose(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH,
                       CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH),
                choose(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT,
                       CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT),
                choose(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS,
                       CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS)};
    if (given.Depth != 0)
        return {choose(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH),
                choose(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT),
                choose(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH)};
    if (given.Height == 0)
        return {choose(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH), 0, 0};
    if (given.Flags & CUDA_ARRAY3D_TEXTURE_GATHER)
        return {limit(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH),
                limit(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT), 0};
    return {choose(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH),
            choose(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT), 0};
}

template <class Limit>
bool fits_limits(const CUDA_ARRAY3D_DESCRIPTOR& given, const Limit& limit) {
    const auto most = largest_array(given, limit);
    return given.Width <= most.width && given.Height <= most.height && given.Depth <= most.depth;
}

}  // namespace tnr::wire
