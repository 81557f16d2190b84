// cuTensorMap...: the driver makes the descriptors (tensor_records.hpp); each is asked for once.
#include <algorithm>
#include <bit>

#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/protocol/tensor_records.hpp"

using namespace tnr;
using namespace tnr::cuda;

static_assert(sizeof(CUtensorMap) == sizeof(wire::TensorMap));

namespace {

// The arrays that a call is given, of which each has its own length.
struct GivenTensor {
    CUtensorMapDataType type;
    cuuint32_t rank;
    void* address;
    const cuuint64_t* sizes;
    const cuuint64_t* strides;
    const cuuint32_t* steps;
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
    CUtensorMapL2promotion promotion;
    CUtensorMapFloatOOBfill fill;
};

CUresult describe(const GivenTensor& given, wire::DescribedTensor& tensor) {
    if (given.rank == 0 || given.rank > wire::tensor_rank_max) return CUDA_ERROR_INVALID_VALUE;
    if (!given.sizes || !given.steps || (!given.strides && given.rank > 1)) return CUDA_ERROR_INVALID_VALUE;
    tensor.type = static_cast<uint32_t>(given.type);
    tensor.rank = given.rank;
    tensor.address = reinterpret_cast<uint64_t>(given.address);
    std::copy_n(given.sizes, given.rank, tensor.sizes.begin());
    std::copy_n(given.strides, given.rank - 1, tensor.strides.begin());
    std::copy_n(given.steps, given.rank, tensor.steps.begin());
    tensor.interleave = static_cast<uint32_t>(given.interleave);
    tensor.swizzle = static_cast<uint32_t>(given.swizzle);
    tensor.promotion = static_cast<uint32_t>(given.promotion);
    tensor.fill = static_cast<uint32_t>(given.fill);
    return CUDA_SUCCESS;
}

template <class Record>
CUresult ask(const Record& record, CUtensorMap* map) {
    RemoteCall call(record);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::TensorMapReply reply;
    if (auto result = call.take(reply); result != CUDA_SUCCESS) return result;
    *map = std::bit_cast<CUtensorMap>(reply.map);
    return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                        const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                        const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                        CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                        CUtensorMapFloatOOBfill fill) {
    return guarded("cuTensorMapEncodeTiled", [&]() -> CUresult {
        if (!map || !box) return CUDA_ERROR_INVALID_VALUE;
        wire::EncodeTiled<> record;
        GivenTensor given{type, rank, address, sizes, strides, steps, interleave, swizzle, promotion, fill};
        if (auto result = describe(given, record.tensor); result != CUDA_SUCCESS) return result;
        std::copy_n(box, rank, record.box.begin());
        return ask(record, map);
    });
}

CUresult CUDAAPI cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                         const cuuint64_t* sizes, const cuuint64_t* strides, const int* lower,
                                         const int* upper, cuuint32_t channels, cuuint32_t pixels,
                                         const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                         CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                         CUtensorMapFloatOOBfill fill) {
    return guarded("cuTensorMapEncodeIm2col", [&]() -> CUresult {
        constexpr cuuint32_t rank_min = 3;  // channels, at least one axis of pixels, images
        if (!map || !lower || !upper || rank < rank_min) return CUDA_ERROR_INVALID_VALUE;
        wire::EncodeIm2col<> record;
        GivenTensor given{type, rank, address, sizes, strides, steps, interleave, swizzle, promotion, fill};
        if (auto result = describe(given, record.tensor); result != CUDA_SUCCESS) return result;
        std::copy_n(lower, rank - 2, record.lower.begin());
        std::copy_n(upper, rank - 2, record.upper.begin());
        record.channels = channels;
        record.pixels = pixels;
        return ask(record, map);
    });
}

CUresult CUDAAPI cuTensorMapEncodeIm2colWide(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                             const cuuint64_t* sizes, const cuuint64_t* strides, int lower, int upper,
                                             cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* steps,
                                             CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
                                             CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                             CUtensorMapFloatOOBfill fill) {
    return guarded("cuTensorMapEncodeIm2colWide", [&]() -> CUresult {
        if (!map) return CUDA_ERROR_INVALID_VALUE;
        wire::EncodeIm2colWide<> record;
        GivenTensor given{type, rank, address, sizes, strides, steps, interleave, swizzle, promotion, fill};
        if (auto result = describe(given, record.tensor); result != CUDA_SUCCESS) return result;
        record.lower = lower;
        record.upper = upper;
        record.channels = channels;
        record.pixels = pixels;
        record.mode = static_cast<uint32_t>(mode);
        return ask(record, map);
    });
}

CUresult CUDAAPI cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
    return guarded("cuTensorMapReplaceAddress", [&]() -> CUresult {
        if (!map) return CUDA_ERROR_INVALID_VALUE;
        return ask(
            wire::ReplaceTensorAddress<>{std::bit_cast<wire::TensorMap>(*map), reinterpret_cast<uint64_t>(address)},
            map);
    });
}

}  // extern "C"
