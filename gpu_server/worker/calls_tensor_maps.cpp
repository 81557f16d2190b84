// Descriptors of tensors: the driver makes them, the client keeps them. Lengths are the record's own, so what a client says
// of its rank makes the driver read nothing else.
#include <bit>

#include "gpu_client/protocol/tensor_records.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static_assert(sizeof(CUtensorMap) == sizeof(wire::TensorMap));

// `encode` gets the map to fill.
template <class Encode>
static Answer answer_map(Call& call, const wire::DescribedTensor& tensor, bool there, Encode&& encode) {
    if (!there) return CUDA_ERROR_NOT_SUPPORTED;
    if (tensor.rank == 0 || tensor.rank > wire::tensor_rank_max) return CUDA_ERROR_INVALID_VALUE;
    CUtensorMap map{};
    CUresult result = encode(&map);
    call.reply(wire::TensorMapReply{std::bit_cast<wire::TensorMap>(map)});
    return result;
}

static void* address_of(const wire::DescribedTensor& tensor) {
    return reinterpret_cast<void*>(tensor.address);
}

template <class Enum>
static Enum as(uint32_t value) {
    return static_cast<Enum>(value);
}

static Answer encode_tiled(WorkerSession&, Call& call, const wire::EncodeTiled<Resolved>& wanted) {
    auto& t = wanted.tensor;
    auto run = driver().cuTensorMapEncodeTiled;
    return answer_map(call, t, run != nullptr, [&](CUtensorMap* map) {
        return run(map, as<CUtensorMapDataType>(t.type), t.rank, address_of(t), t.sizes.data(), t.strides.data(),
                   wanted.box.data(), t.steps.data(), as<CUtensorMapInterleave>(t.interleave),
                   as<CUtensorMapSwizzle>(t.swizzle), as<CUtensorMapL2promotion>(t.promotion),
                   as<CUtensorMapFloatOOBfill>(t.fill));
    });
}

static Answer encode_im2col(WorkerSession&, Call& call, const wire::EncodeIm2col<Resolved>& wanted) {
    auto& t = wanted.tensor;
    auto run = driver().cuTensorMapEncodeIm2col;
    return answer_map(call, t, run != nullptr, [&](CUtensorMap* map) {
        return run(map, as<CUtensorMapDataType>(t.type), t.rank, address_of(t), t.sizes.data(), t.strides.data(),
                   wanted.lower.data(), wanted.upper.data(), wanted.channels, wanted.pixels, t.steps.data(),
                   as<CUtensorMapInterleave>(t.interleave), as<CUtensorMapSwizzle>(t.swizzle),
                   as<CUtensorMapL2promotion>(t.promotion), as<CUtensorMapFloatOOBfill>(t.fill));
    });
}

static Answer encode_im2col_wide(WorkerSession&, Call& call, const wire::EncodeIm2colWide<Resolved>& wanted) {
    auto& t = wanted.tensor;
    auto run = driver().cuTensorMapEncodeIm2colWide;
    return answer_map(call, t, run != nullptr, [&](CUtensorMap* map) {
        return run(map, as<CUtensorMapDataType>(t.type), t.rank, address_of(t), t.sizes.data(), t.strides.data(),
                   wanted.lower, wanted.upper, wanted.channels, wanted.pixels, t.steps.data(),
                   as<CUtensorMapInterleave>(t.interleave), as<CUtensorMapIm2ColWideMode>(wanted.mode),
                   as<CUtensorMapSwizzle>(t.swizzle), as<CUtensorMapL2promotion>(t.promotion),
                   as<CUtensorMapFloatOOBfill>(t.fill));
    });
}

static Answer replace_address(WorkerSession&, Call& call, const wire::ReplaceTensorAddress<Resolved>& wanted) {
    if (!driver().cuTensorMapReplaceAddress) return CUDA_ERROR_NOT_SUPPORTED;
    auto map = std::bit_cast<CUtensorMap>(wanted.map);
    auto result = driver().cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(wanted.address));
    call.reply(wire::TensorMapReply{std::bit_cast<wire::TensorMap>(map)});
    return result;
}

void add_tensor_map_calls(HandlerTable& table) {
    table.add<encode_tiled>();
    table.add<encode_im2col>();
    table.add<encode_im2col_wide>();
    table.add<replace_address>();
}

}  // namespace tnr::worker
