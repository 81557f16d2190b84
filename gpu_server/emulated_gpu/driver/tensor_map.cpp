// cuTensorMapEncodeTiled and ...ReplaceAddress; im2col is not emulated. The limits are those that cuda.h gives.
#include "gpu_server/emulated_gpu/ptx/tensor_map.hpp"

#include <bit>

#include "gpu_server/emulated_gpu/driver/current.hpp"

using namespace tnr::emulated;
using tnr::ptx::TensorMap;
using tnr::ptx::Type;

namespace {

// Type::none: not emulated.
Type element_of(CUtensorMapDataType type) {
    switch (type) {
        case CU_TENSOR_MAP_DATA_TYPE_UINT8:
            return Type::u8;
        case CU_TENSOR_MAP_DATA_TYPE_UINT16:
            return Type::u16;
        case CU_TENSOR_MAP_DATA_TYPE_UINT32:
            return Type::u32;
        case CU_TENSOR_MAP_DATA_TYPE_INT32:
            return Type::s32;
        case CU_TENSOR_MAP_DATA_TYPE_UINT64:
            return Type::u64;
        case CU_TENSOR_MAP_DATA_TYPE_INT64:
            return Type::s64;
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
            return Type::f16;
        case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
            return Type::bf16;
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
            return Type::f32;
        case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
        case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ:
            return Type::tf32;
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
            return Type::f64;
        default:
            return Type::none;
    }
}

CUresult set_swizzle(CUtensorMapSwizzle swizzle, uint64_t row_bytes, TensorMap& map) {
    if (swizzle > CU_TENSOR_MAP_SWIZZLE_128B) return CUDA_ERROR_NOT_SUPPORTED;
    if (swizzle == CU_TENSOR_MAP_SWIZZLE_NONE) return CUDA_SUCCESS;
    map.swizzle_chunks = static_cast<uint8_t>(1u << swizzle);
    return row_bytes <= map.swizzle_chunks * 16u ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool write_map(CUtensorMap* to, const TensorMap& map) {
    constexpr uintptr_t alignment = 64;
    if (reinterpret_cast<uintptr_t>(to) % alignment) return false;
    *to = std::bit_cast<CUtensorMap>(map);
    return true;
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* to, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
    return in_context([&](Context&) -> CUresult {
        if (!to || !sizes || !box || !steps || rank == 0 || rank > TensorMap::rank_max || (rank > 1 && !strides))
            return CUDA_ERROR_INVALID_VALUE;
        auto element = element_of(type);
        uint32_t element_bytes = size_of(element);
        if (!element_bytes || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
        if (fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE && !is_float(element)) return CUDA_ERROR_INVALID_VALUE;
        constexpr uint64_t unit = 16, size_max = uint64_t{1} << 32, stride_end = uint64_t{1} << 40;
        TensorMap map;
        map.mark = TensorMap::ours;
        map.address = reinterpret_cast<uint64_t>(address);
        map.rank = static_cast<uint8_t>(rank);
        map.element = element;
        map.nan_bytes = static_cast<uint8_t>(fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ? 0 : element_bytes);
        if (map.address == 0 || map.address % unit) return CUDA_ERROR_INVALID_VALUE;
        for (uint32_t axis = 0; axis < rank; ++axis) {
            uint64_t stride = axis ? strides[axis - 1] : element_bytes;
            constexpr uint32_t box_max = 256, step_max = 8;
            if (sizes[axis] == 0 || sizes[axis] > size_max || box[axis] == 0 || box[axis] > box_max ||
                steps[axis] == 0 || steps[axis] > step_max || (axis && (stride % unit || stride >= stride_end)))
                return CUDA_ERROR_INVALID_VALUE;
            map.strides[axis] = stride;
            map.last[axis] = static_cast<uint32_t>(sizes[axis] - 1);
            map.box[axis] = static_cast<uint16_t>(box[axis]);
            map.steps[axis] = static_cast<uint8_t>(steps[axis]);
        }
        uint64_t row_bytes = uint64_t{box[0]} * element_bytes;
        if (row_bytes % unit) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = set_swizzle(swizzle, row_bytes, map)) return error;
        return write_map(to, map) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* to, void* address) {
    return in_context([&](Context&) -> CUresult {
        constexpr uintptr_t unit = 16;
        if (!to || !address || reinterpret_cast<uintptr_t>(address) % unit) return CUDA_ERROR_INVALID_VALUE;
        auto map = std::bit_cast<TensorMap>(*to);
        if (map.mark != TensorMap::ours) return CUDA_ERROR_INVALID_VALUE;
        map.address = reinterpret_cast<uint64_t>(address);
        return write_map(to, map) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}
