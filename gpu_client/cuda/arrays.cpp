// See arrays.hpp.
#include "gpu_client/cuda/arrays.hpp"

#include "gpu_client/cuda/device_memory.hpp"
#include "gpu_client/cuda/devices.hpp"

namespace tnr::cuda {

Arrays& arrays() {
    static auto* all = new Arrays;
    return *all;
}
MipmappedArrays& mipmapped_arrays() {
    static auto* all = new MipmappedArrays;
    return *all;
}

uint64_t texel_bytes_of(CUarray_format format, unsigned channels) {
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
            return 0;
    }
}

void return_array_grant(const Context& context, uint64_t bytes) {
    if (auto* device = find_device(context.device); device && bytes != 0) device->memory->return_grant(bytes);
}

void forget_levels(const MipmappedArray& mipmapped) {
    for (auto level : mipmapped.levels) arrays().destroy(level);
}

void forget_arrays_of(const Context& context) {
    arrays().each([&](Array& array, uint64_t handle) {
        if (array.context != context.handle) return;
        return_array_grant(context, array.charged_bytes);
        arrays().destroy(handle);
    });
    mipmapped_arrays().each([&](MipmappedArray& array, uint64_t handle) {
        if (array.context != context.handle) return;
        return_array_grant(context, array.charged_bytes);
        forget_levels(array);
        mipmapped_arrays().destroy(handle);
    });
}

}  // namespace tnr::cuda
