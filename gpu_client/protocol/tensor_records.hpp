// cuTensorMap...: descriptors of tensors for the copies of compute capability 9.0 and later. Their 128 bytes mean something
// to the driver and the GPU only; addresses in them are the GPU's, as everywhere. The answers depend on nothing but what
// is asked, so the client remembers them.
#pragma once

#include "gpu_client/protocol/call_records.hpp"

namespace tnr::wire {

using TensorMap = std::array<std::byte, 128>;
inline constexpr uint32_t tensor_rank_max = 5;

struct TensorMapReply {
    TensorMap map{};
    auto fields() { return std::tie(map); }
};

// What the three ways of describing a tensor have in common. Axes beyond `rank` are zero.
struct DescribedTensor {
    uint32_t type = 0, rank = 0;
    uint64_t address = 0;
    std::array<uint64_t, tensor_rank_max> sizes{}, strides{};  // in elements; in bytes, of all axes but the first
    std::array<uint32_t, tensor_rank_max> steps{};             // elementStrides
    uint32_t interleave = 0, swizzle = 0, promotion = 0, fill = 0;
    auto fields() { return std::tie(type, rank, address, sizes, strides, steps, interleave, swizzle, promotion, fill); }
};

template <class Side = Numbers>
struct EncodeTiled {
    static constexpr uint16_t op = op_cuTensorMapEncodeTiled;
    static constexpr auto way = CallWay::cached;
    DescribedTensor tensor{};
    std::array<uint32_t, tensor_rank_max> box{};
    auto fields() { return std::tie(tensor, box); }
    using Reply = TensorMapReply;
};

template <class Side = Numbers>
struct EncodeIm2col {
    static constexpr uint16_t op = op_cuTensorMapEncodeIm2col;
    static constexpr auto way = CallWay::cached;
    DescribedTensor tensor{};
    std::array<int32_t, tensor_rank_max> lower{}, upper{};  // corners of the box, of rank - 2 axes
    uint32_t channels = 0, pixels = 0;
    auto fields() { return std::tie(tensor, lower, upper, channels, pixels); }
    using Reply = TensorMapReply;
};

template <class Side = Numbers>
struct EncodeIm2colWide {
    static constexpr uint16_t op = op_cuTensorMapEncodeIm2colWide;
    static constexpr auto way = CallWay::cached;
    DescribedTensor tensor{};
    int32_t lower = 0, upper = 0;
    uint32_t channels = 0, pixels = 0, mode = 0;
    auto fields() { return std::tie(tensor, lower, upper, channels, pixels, mode); }
    using Reply = TensorMapReply;
};

template <class Side = Numbers>
struct ReplaceTensorAddress {
    static constexpr uint16_t op = op_cuTensorMapReplaceAddress;
    static constexpr auto way = CallWay::cached;
    TensorMap map{};
    uint64_t address = 0;
    auto fields() { return std::tie(map, address); }
    using Reply = TensorMapReply;
};

}  // namespace tnr::wire
