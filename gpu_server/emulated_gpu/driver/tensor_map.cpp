// cuTensorMapEncodeTiled, ...Im2col, ...Im2colWide and ...ReplaceAddress. The limits are those that cuda.h gives.
#include "gpu_server/emulated_gpu/ptx/tensor_map.hpp"

#include <bit>

#include "gpu_server/emulated_gpu/driver/current.hpp"

using namespace tnr::emulated;
using tnr::ptx::Packing;
using tnr::ptx::SwizzleAtom;
using tnr::ptx::TensorMap;
using tnr::ptx::TensorWay;
using tnr::ptx::Type;

namespace {

constexpr uint64_t map_unit = 16;      // of addresses, strides and rows of a box, in bytes
constexpr uint32_t row_of_gaps = 128;  // values in each row of a box with gaps, and what divides a row of its tensor

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
        case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B:
        case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B:
        case CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B:
            return Type::b8;
        default:
            return Type::none;
    }
}

Packing packing_of(CUtensorMapDataType type) {
    switch (type) {
        case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B:
            return Packing::b4x16;
        case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B:
            return Packing::b4x16_p64;
        case CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B:
            return Packing::b6x16_p32;
        default:
            return Packing::none;
    }
}

// True of packets that have gaps in shared memory.
bool has_gaps(const TensorMap& map) {
    return map.packing > Packing::b4x16;
}

CUresult set_swizzle(CUtensorMapSwizzle swizzle, uint64_t row_bytes, TensorMap& map) {
    if (swizzle == CU_TENSOR_MAP_SWIZZLE_NONE) return CUDA_SUCCESS;
    if (swizzle < CU_TENSOR_MAP_SWIZZLE_NONE || swizzle > CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B)
        return CUDA_ERROR_INVALID_VALUE;
    bool larger_atoms = swizzle > CU_TENSOR_MAP_SWIZZLE_128B;
    if (larger_atoms) map.atom = static_cast<SwizzleAtom>(swizzle - CU_TENSOR_MAP_SWIZZLE_128B);
    map.swizzle_chunks = static_cast<uint8_t>(1u << (larger_atoms ? CU_TENSOR_MAP_SWIZZLE_128B : swizzle));
    return row_bytes <= map.swizzle_chunks * 16u ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Packets with gaps fill rows of 128 bytes; their chunks of 16 bytes stay whole.
bool keeps_packets(CUtensorMapSwizzle swizzle, Packing packing) {
    return swizzle == CU_TENSOR_MAP_SWIZZLE_NONE || swizzle == CU_TENSOR_MAP_SWIZZLE_128B ||
           swizzle == CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B ||
           (swizzle == CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B && packing == Packing::b6x16_p32);
}

bool write_map(CUtensorMap* to, const TensorMap& map) {
    constexpr uintptr_t alignment = 64;
    if (reinterpret_cast<uintptr_t>(to) % alignment) return false;
    *to = std::bit_cast<CUtensorMap>(map);
    return true;
}

// What both kinds of map have: what is copied at once is the caller's to fill in.
struct Tensor {
    CUtensorMapDataType type;
    cuuint32_t rank;
    void* address;
    const cuuint64_t *sizes, *strides;
    const cuuint32_t* steps;
    CUtensorMapInterleave interleave;
    CUtensorMapFloatOOBfill fill;
};

CUresult set_axes(const Tensor& tensor, uint32_t element_bytes, TensorMap& map) {
    constexpr uint64_t size_max = uint64_t{1} << 32, stride_end = uint64_t{1} << 40;
    uint64_t unit = has_gaps(map) ? map_unit * 2 : map_unit;
    if (map.address == 0 || map.address % unit) return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t axis = 0; axis < tensor.rank; ++axis) {
        uint64_t stride = axis ? tensor.strides[axis - 1] : element_bytes, size = tensor.sizes[axis];
        constexpr uint32_t step_max = 8;
        if (size == 0 || size > size_max || tensor.steps[axis] == 0 || tensor.steps[axis] > step_max ||
            (axis && (stride % unit || stride >= stride_end)))
            return CUDA_ERROR_INVALID_VALUE;
        map.strides[axis] = stride;
        map.last[axis] = static_cast<uint32_t>(size - 1);
        map.steps[axis] = static_cast<uint8_t>(tensor.steps[axis]);
    }
    map.steps[0] = 1;  // without interleaving the first is ignored
    uint64_t values = has_gaps(map) ? row_of_gaps : map.packing == Packing::b4x16 ? 2 : 1;
    return tensor.sizes[0] % values ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult describe_tensor(const Tensor& tensor, TensorMap& map) {
    auto element = element_of(tensor.type);
    if (element == Type::none || tensor.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
    bool nan = tensor.fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
    if (nan && !is_float(element)) return CUDA_ERROR_INVALID_VALUE;
    map.mark = TensorMap::ours;
    map.address = reinterpret_cast<uint64_t>(tensor.address);
    map.rank = static_cast<uint8_t>(tensor.rank);
    map.element = element;
    map.packing = packing_of(tensor.type);
    uint32_t element_bytes = packet_of(map).bytes;
    map.nan_bytes = static_cast<uint8_t>(nan ? element_bytes : 0);
    return set_axes(tensor, element_bytes, map);
}

CUresult finish_map(CUtensorMap* to, TensorMap& map, CUtensorMapSwizzle swizzle) {
    uint64_t row_bytes = (map.box[0] * map.strides[0]) >> packet_of(map).values_log2;
    if (row_bytes % map_unit) return CUDA_ERROR_INVALID_VALUE;
    if (has_gaps(map) && (map.box[0] != row_of_gaps || !keeps_packets(swizzle, map.packing)))
        return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = set_swizzle(swizzle, row_bytes, map)) return error;
    return write_map(to, map) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Of each axis between channels and images; the more there are of them, the less far a corner may lie from the image.
bool set_corners(const int* lower, const int* upper, TensorMap& map) {
    uint32_t axes = map.rank - 2u;
    int end = axes == 1 ? 32768 : axes == 2 ? 128 : 16;
    for (uint32_t axis = 0; axis < axes; ++axis) {
        int64_t size = int64_t{map.last[axis + 1]} + 1 + upper[axis] - lower[axis];
        if (lower[axis] < -end || lower[axis] >= end || upper[axis] < -end || upper[axis] >= end || size <= 0)
            return false;
        map.lower[axis] = static_cast<int16_t>(lower[axis]);
        map.upper[axis] = static_cast<int16_t>(upper[axis]);
    }
    return true;
}

// Channels and pixels of an im2col map, whichever of them there are.
bool set_column(cuuint32_t channels, cuuint32_t pixels, TensorMap& map) {
    constexpr uint32_t channels_max = 256, pixels_max = 1024;
    map.box[0] = static_cast<uint16_t>(channels);
    map.pixels = static_cast<uint16_t>(pixels);
    return channels > 0 && channels <= channels_max && pixels > 0 && pixels <= pixels_max;
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* to, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
    return in_context([&](Context&) -> CUresult {
        if (!to || !sizes || !box || !steps || rank == 0 || rank > TensorMap::rank_max || (rank > 1 && !strides))
            return CUDA_ERROR_INVALID_VALUE;
        TensorMap map;
        if (CUresult error = describe_tensor({type, rank, address, sizes, strides, steps, interleave, fill}, map))
            return error;
        for (uint32_t axis = 0; axis < rank; ++axis) {
            constexpr uint32_t box_max = 256;
            if (box[axis] == 0 || box[axis] > box_max) return CUDA_ERROR_INVALID_VALUE;
            map.box[axis] = static_cast<uint16_t>(box[axis]);
        }
        return finish_map(to, map, swizzle);
    });
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* to, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                 const cuuint64_t* sizes, const cuuint64_t* strides, const int* lower, const int* upper,
                                 cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* steps,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill fill) {
    return in_context([&](Context&) -> CUresult {
        constexpr uint32_t rank_min = 3;
        if (!to || !sizes || !strides || !lower || !upper || !steps || rank < rank_min || rank > TensorMap::rank_max)
            return CUDA_ERROR_INVALID_VALUE;
        TensorMap map;
        if (!set_column(channels, pixels, map)) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = describe_tensor({type, rank, address, sizes, strides, steps, interleave, fill}, map))
            return error;
        map.way = TensorWay::im2col;
        if (!set_corners(lower, upper, map)) return CUDA_ERROR_INVALID_VALUE;
        return finish_map(to, map, swizzle);
    });
}

CUresult cuTensorMapEncodeIm2colWide(CUtensorMap* to, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                     const cuuint64_t* sizes, const cuuint64_t* strides, int lower, int upper,
                                     cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* steps,
                                     CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
                                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
    return in_context([&](Context&) -> CUresult {
        constexpr uint32_t rank_min = 3;
        constexpr int corner_end = 32768;
        bool fixed = mode == CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128;
        if (!to || !sizes || !strides || !steps || rank < rank_min || rank > TensorMap::rank_max)
            return CUDA_ERROR_INVALID_VALUE;
        if (!fixed && mode != CU_TENSOR_MAP_IM2COL_WIDE_MODE_W) return CUDA_ERROR_INVALID_VALUE;
        if (swizzle < CU_TENSOR_MAP_SWIZZLE_64B || swizzle > CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B)
            return CUDA_ERROR_INVALID_VALUE;
        if (lower < -corner_end || lower >= corner_end || upper < -corner_end || upper >= corner_end)
            return CUDA_ERROR_INVALID_VALUE;
        TensorMap map;
        if (!set_column(channels, fixed ? 1 : pixels, map)) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = describe_tensor({type, rank, address, sizes, strides, steps, interleave, fill}, map))
            return error;
        map.way = fixed ? TensorWay::im2col_wide_128 : TensorWay::im2col_wide;
        map.lower[0] = static_cast<int16_t>(lower);
        map.upper[0] = static_cast<int16_t>(upper);
        if (int64_t{map.last[1]} + 1 + upper - lower <= 0) return CUDA_ERROR_INVALID_VALUE;
        return finish_map(to, map, swizzle);
    });
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* to, void* address) {
    return in_context([&](Context&) -> CUresult {
        if (!to || !address || reinterpret_cast<uintptr_t>(address) % map_unit) return CUDA_ERROR_INVALID_VALUE;
        auto map = std::bit_cast<TensorMap>(*to);
        if (map.mark != TensorMap::ours) return CUDA_ERROR_INVALID_VALUE;
        map.address = reinterpret_cast<uint64_t>(address);
        return write_map(to, map) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}
