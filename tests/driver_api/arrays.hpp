// Arrays for tests.
#pragma once

#include "gpu.hpp"

namespace driver_api {

// An array of floats.
inline CUDA_ARRAY3D_DESCRIPTOR described(size_t width, size_t height, size_t depth = 0, unsigned flags = 0,
                                         unsigned channels = 1) {
    return {width, height, depth, CU_AD_FORMAT_FLOAT, channels, flags};
}

class Array {
public:
    explicit Array(const CUDA_ARRAY3D_DESCRIPTOR& description) { CU_OK(cu.cuArray3DCreate(&handle, &description)); }
    ~Array() { cu.cuArrayDestroy(handle); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;
    operator CUarray() const { return handle; }

    CUarray handle = nullptr;
};

inline CUDA_RESOURCE_DESC resource_of(CUarray array) {
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    return resource;
}

inline CUDA_TEXTURE_DESC sampled(CUaddress_mode mode = CU_TR_ADDRESS_MODE_CLAMP,
                                 CUfilter_mode filter = CU_TR_FILTER_MODE_POINT, unsigned flags = 0) {
    CUDA_TEXTURE_DESC description{};
    for (auto& each : description.addressMode) each = mode;
    description.filterMode = filter;
    description.flags = flags;
    return description;
}

}  // namespace driver_api
