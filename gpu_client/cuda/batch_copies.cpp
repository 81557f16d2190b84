// Copies in batches: one after another, which is one of the orders that a batch may have. All are checked first.
#include <algorithm>
#include <cstring>
#include <vector>

#include "gpu_client/cuda/boxes.hpp"
#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/copies.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_memory.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/per_thread.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "gpu_client/protocol/batch_attributes.hpp"

namespace tnr::cuda {

namespace {

CUresult find_stream(CUstream handle, StreamRef& stream) {
    if (auto result = resolve_stream(handle, stream); result != CUDA_SUCCESS) return result;
    return stream.number <= 1 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;  // the default streams take no batches
}

bool is_sound_batch_side(const BoxSide& side, const Box& box) {
    if (side.array) return true;
    uint64_t bytes = (box.slices - 1) * side.slice_bytes + extent(box.row_bytes, box.rows, side.pitch);
    return side.address != 0 && side.pitch >= box.row_bytes && (!side.on_device || is_allocated(side.address, bytes));
}

// A source that is the program's only until the call returns is copied, packed, to where it stays until it has been
// sent: copies from pageable memory do not return before.
CUresult copy_present(Box box, const StreamRef& stream, CUstream in) {
    if (is_captured(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // no launch could read it again
    std::vector<std::byte> packed(box.row_bytes * box.rows * box.slices);
    auto* next = packed.data();
    for (uint64_t slice = 0; slice < box.slices; ++slice)
        for (uint64_t row = 0; row < box.rows; ++row, next += box.row_bytes)
            std::memcpy(next,
                        handle_of<std::byte*>(box.from.address + slice * box.from.slice_bytes + row * box.from.pitch),
                        box.row_bytes);
    box.from.address = value_of(packed.data());
    box.from.pitch = box.row_bytes;
    box.from.slice_bytes = box.row_bytes * box.rows;
    return copy_box(box, in, false);
}

struct BatchItem {
    Box box;
    CUmemcpySrcAccessOrder order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
};

CUresult copy_all(const std::vector<BatchItem>& items, size_t* failed, const StreamRef& stream, CUstream in) {
    auto fail = [&](size_t index, CUresult result) {
        if (failed) *failed = index;
        return result;
    };
    for (size_t i = 0; i < items.size(); ++i) {
        auto& box = items[i].box;
        if (!is_sound_batch_side(box.to, box) || !is_sound_batch_side(box.from, box))
            return fail(i, CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t i = 0; i < items.size(); ++i) {
        auto& [box, order] = items[i];
        bool present = order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL && !box.from.on_device;
        auto result = present ? copy_present(box, stream, in) : copy_box(box, in, false);
        if (result != CUDA_SUCCESS) return fail(i, result);
    }
    return CUDA_SUCCESS;
}

CUresult copy_lines(const CUdeviceptr* to, const CUdeviceptr* from, const size_t* sizes, size_t count,
                    const CUmemcpyAttributes* attributes, const size_t* first, size_t number, size_t* failed,
                    CUstream in) {
    if (failed) *failed = SIZE_MAX;  // none of them
    bool sound = to && from && sizes && count != 0 && tnr::are_batch_attributes(attributes, first, number, count);
    if (!sound) return CUDA_ERROR_INVALID_VALUE;
    StreamRef stream;
    if (auto result = find_stream(in, stream); result != CUDA_SUCCESS) return result;
    std::vector<BatchItem> items(count);
    for (size_t i = 0, group = 0; i < count; ++i) {
        if (group + 1 < number && first[group + 1] == i) ++group;
        items[i].order = attributes[group].srcAccessOrder;
        items[i].box.row_bytes = sizes[i];
        items[i].box.rows = 1;
        items[i].box.to = line_side(to[i], sizes[i]);
        items[i].box.from = line_side(from[i], sizes[i]);
    }
    return copy_all(items, failed, stream, in);
}

// False: neither memory, which has no unit of its own, nor an array.
bool find_unit(const CUmemcpy3DOperand& operand, wire::ArrayUnit& unit) {
    if (operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER) return operand.op.ptr.ptr != 0;
    auto* array = operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY ? find_array(operand.op.array.array) : nullptr;
    if (array) unit = array->unit;
    return array && unit.bytes != 0;
}

// A copy begins where a block does.
bool begins_whole(const CUmemcpy3DOperand& operand, size_t side) {
    auto& offset = operand.op.array.offset;
    return operand.type != CU_MEMCPY_OPERAND_TYPE_ARRAY || (offset.x % side == 0 && offset.y % side == 0);
}

bool is_packed(const CUmemcpy3DOperand& operand, const CUextent3D& extent) {
    if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return true;
    auto& memory = operand.op.ptr;
    return (memory.rowLength == 0 || memory.rowLength >= extent.width) &&
           (memory.layerHeight == 0 || memory.layerHeight >= extent.height);
}

// The operation in the words of other copies.
CUresult read_operation(const CUDA_MEMCPY3D_BATCH_OP& given, BatchItem& item) {
    auto& extent = given.extent;
    wire::ArrayUnit source_unit, destination_unit;
    bool known = find_unit(given.src, source_unit) && find_unit(given.dst, destination_unit);
    const size_t from = source_unit.bytes, to = destination_unit.bytes;
    bool fits = from == 0 || to == 0 || (from == to && source_unit.side == destination_unit.side);
    bool sound = known && fits && tnr::is_batch_order(given.srcAccessOrder) && tnr::is_batch_flag(given.flags) &&
                 extent.width != 0 && extent.height != 0 && extent.depth != 0 && is_packed(given.src, extent) &&
                 is_packed(given.dst, extent);
    wire::ArrayUnit unit = from != 0 ? source_unit : destination_unit;  // all is given in texels
    unit.bytes = std::max<uint64_t>(unit.bytes, 1);
    sound = sound && extent.width <= SIZE_MAX / unit.bytes && begins_whole(given.src, unit.side) &&
            begins_whole(given.dst, unit.side);
    if (!sound) return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D box{};
    box.WidthInBytes = unit.across(extent.width) * unit.bytes, box.Height = unit.across(extent.height);
    box.Depth = extent.depth;
    auto& source = given.src.op;
    box.srcMemoryType = from != 0 ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED;
    if (from != 0) {
        box.srcArray = source.array.array;
        box.srcXInBytes = source.array.offset.x / unit.side * unit.bytes;
        box.srcY = source.array.offset.y / unit.side, box.srcZ = source.array.offset.z;
    } else {
        box.srcDevice = source.ptr.ptr, box.srcPitch = unit.across(source.ptr.rowLength) * unit.bytes;
        box.srcHeight = unit.across(source.ptr.layerHeight);
    }
    auto& destination = given.dst.op;
    box.dstMemoryType = to != 0 ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED;
    if (to != 0) {
        box.dstArray = destination.array.array;
        box.dstXInBytes = destination.array.offset.x / unit.side * unit.bytes;
        box.dstY = destination.array.offset.y / unit.side, box.dstZ = destination.array.offset.z;
    } else {
        box.dstDevice = destination.ptr.ptr, box.dstPitch = unit.across(destination.ptr.rowLength) * unit.bytes;
        box.dstHeight = unit.across(destination.ptr.layerHeight);
    }
    item.order = given.srcAccessOrder;
    return read_3d(&box, item.box);
}

CUresult copy_boxes(const CUDA_MEMCPY3D_BATCH_OP* given, size_t count, unsigned long long flags, size_t* failed,
                    CUstream in) {
    if (failed) *failed = SIZE_MAX;
    if (!given || count == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    StreamRef stream;
    if (auto result = find_stream(in, stream); result != CUDA_SUCCESS) return result;
    std::vector<BatchItem> items(count);
    for (size_t i = 0; i < count; ++i)
        if (auto result = read_operation(given[i], items[i]); result != CUDA_SUCCESS) {
            if (failed) *failed = i;
            return result;
        }
    return copy_all(items, failed, stream, in);
}

}  // namespace

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                                    CUmemcpyAttributes* attributes, size_t* first, size_t number, size_t* failed,
                                    CUstream stream) {
    return guarded("cuMemcpyBatchAsync",
                   [&] { return copy_lines(to, from, sizes, count, attributes, first, number, failed, stream); });
}
CUresult CUDAAPI cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                                       CUmemcpyAttributes* attributes, size_t* first, size_t number, CUstream stream) {
    return guarded("cuMemcpyBatchAsync",
                   [&] { return copy_lines(to, from, sizes, count, attributes, first, number, nullptr, stream); });
}
CUresult CUDAAPI cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* given, size_t* failed,
                                      unsigned long long flags, CUstream stream) {
    return guarded("cuMemcpy3DBatchAsync", [&] { return copy_boxes(given, count, flags, failed, stream); });
}
CUresult CUDAAPI cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* given, unsigned long long flags,
                                         CUstream stream) {
    return guarded("cuMemcpy3DBatchAsync", [&] { return copy_boxes(given, count, flags, nullptr, stream); });
}

}  // extern "C"
