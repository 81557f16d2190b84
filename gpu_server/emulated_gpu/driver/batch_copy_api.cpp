// Copies in batches. They run one after another, which is one of the orders that a batch may have.
#include <algorithm>

#include "gpu_server/emulated_gpu/driver/array.hpp"
#include "gpu_server/emulated_gpu/driver/copy.hpp"
#include "gpu_server/emulated_gpu/driver/per_thread.hpp"

#include "gpu_client/protocol/batch_attributes.hpp"

using namespace tnr::emulated;

namespace {

bool is_default(CUstream stream) {
    return stream == nullptr || stream == CU_STREAM_LEGACY;
}

CUresult copy_one(CUstream stream, const Copy& copy, Side to, Side from, CUmemcpySrcAccessOrder order, size_t index,
                  size_t* failed) {
    CUresult result = order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ? copy_from_present(stream, copy, to, from)
                                                                          : copy_later(stream, copy, to, from);
    if (result != CUDA_SUCCESS && failed) *failed = index;
    return result;
}

CUresult copy_lines(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
                    size_t* first, size_t number, size_t* failed, CUstream stream) {
    if (failed) *failed = SIZE_MAX;  // "none of them"
    bool sound = to && from && sizes && count > 0 && !is_default(stream) &&
                 tnr::are_batch_attributes(attributes, first, number, count);
    if (!sound) return CUDA_ERROR_INVALID_VALUE;
    return on_stream(stream, [&](Stream& in) -> CUresult {
        for (size_t i = 0; i < count; ++i)
            if (CUresult error = check_copy(in.context, line(to[i], from[i], sizes[i]), Side::either, Side::either)) {
                if (failed) *failed = i;
                return error;
            }
        for (size_t i = 0, group = 0; i < count; ++i) {
            if (group + 1 < number && first[group + 1] == i) ++group;
            if (CUresult error = copy_one(stream, line(to[i], from[i], sizes[i]), Side::either, Side::either,
                                          attributes[group].srcAccessOrder, i, failed))
                return error;
        }
        return CUDA_SUCCESS;
    });
}

// What a copy counts: texels, or blocks of so many on each side. `bytes`: 0 if the operand is no array.
struct Unit {
    size_t bytes = 0, side = 1;
    size_t across(size_t texels) const { return texels / side + (texels % side != 0); }
};
Unit unit_of(const CUmemcpy3DOperand& operand) {
    auto array = operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY ? find<Array>(operand.op.array.array) : nullptr;
    return array ? Unit{array->image.unit_bytes(), array->image.unit_side()} : Unit{};
}

bool is_known_operand(const CUmemcpy3DOperand& operand, const Unit& unit) {
    if (operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER) return operand.op.ptr.ptr != 0;
    auto& offset = operand.op.array.offset;
    return operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY && unit.bytes != 0 && offset.x % unit.side == 0 &&
           offset.y % unit.side == 0;
}

// The operation as a box; its extent counts texels.
CUresult box_of_operation(const CUDA_MEMCPY3D_BATCH_OP& given, CUDA_MEMCPY3D& box) {
    const Unit from = unit_of(given.src), to = unit_of(given.dst);
    bool sound = is_known_operand(given.src, from) && is_known_operand(given.dst, to) &&
                 tnr::is_batch_order(given.srcAccessOrder) && tnr::is_batch_flag(given.flags) && given.extent.width &&
                 given.extent.height && given.extent.depth;
    if (!sound) return CUDA_ERROR_INVALID_VALUE;
    if (from.bytes && to.bytes && (from.bytes != to.bytes || from.side != to.side)) return CUDA_ERROR_INVALID_VALUE;
    Unit unit = from.bytes ? from : to;
    unit.bytes = std::max<size_t>(unit.bytes, 1);
    bool packed = given.extent.width <= SIZE_MAX / unit.bytes;
    for (auto* operand : {&given.src, &given.dst})
        if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
            auto& memory = operand->op.ptr;
            packed = packed && (memory.rowLength == 0 || memory.rowLength >= given.extent.width) &&
                     (memory.layerHeight == 0 || memory.layerHeight >= given.extent.height);
        }
    if (!packed) return CUDA_ERROR_INVALID_VALUE;
    box.WidthInBytes = unit.across(given.extent.width) * unit.bytes;
    box.Height = unit.across(given.extent.height);
    box.Depth = given.extent.depth;
    if (from.bytes) {
        auto& offset = given.src.op.array.offset;
        box.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        box.srcArray = given.src.op.array.array;
        box.srcXInBytes = offset.x / unit.side * unit.bytes, box.srcY = offset.y / unit.side, box.srcZ = offset.z;
    } else {
        box.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
        box.srcDevice = given.src.op.ptr.ptr;
        box.srcPitch = unit.across(given.src.op.ptr.rowLength) * unit.bytes;
        box.srcHeight = unit.across(given.src.op.ptr.layerHeight);
    }
    if (to.bytes) {
        auto& offset = given.dst.op.array.offset;
        box.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        box.dstArray = given.dst.op.array.array;
        box.dstXInBytes = offset.x / unit.side * unit.bytes, box.dstY = offset.y / unit.side, box.dstZ = offset.z;
    } else {
        box.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
        box.dstDevice = given.dst.op.ptr.ptr;
        box.dstPitch = unit.across(given.dst.op.ptr.rowLength) * unit.bytes;
        box.dstHeight = unit.across(given.dst.op.ptr.layerHeight);
    }
    return CUDA_SUCCESS;
}

struct CheckedBox {
    Copy copy;
    Side to = Side::either, from = Side::either;
};

CUresult copy_boxes(size_t count, CUDA_MEMCPY3D_BATCH_OP* given, size_t* failed, unsigned long long flags,
                    CUstream stream) {
    if (failed) *failed = SIZE_MAX;
    if (!given || count == 0 || flags != 0 || is_default(stream)) return CUDA_ERROR_INVALID_VALUE;
    return on_stream(stream, [&](Stream& in) -> CUresult {
        std::vector<CheckedBox> boxes(count);
        auto check = [&](size_t i) -> CUresult {
            CUDA_MEMCPY3D box{};
            if (CUresult error = box_of_operation(given[i], box)) return error;
            if (CUresult error = box_of(box, boxes[i].copy, boxes[i].to, boxes[i].from)) return error;
            return check_copy(in.context, boxes[i].copy, boxes[i].to, boxes[i].from);
        };
        for (size_t i = 0; i < count; ++i)
            if (CUresult error = check(i)) {
                if (failed) *failed = i;
                return error;
            }
        for (size_t i = 0; i < count; ++i)
            if (CUresult error =
                    copy_one(stream, boxes[i].copy, boxes[i].to, boxes[i].from, given[i].srcAccessOrder, i, failed))
                return error;
        return CUDA_SUCCESS;
    });
}

}  // namespace

TNR_LATER(cuMemcpyBatchAsync,
          (CUdeviceptr * to, CUdeviceptr* from, size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
           size_t* first, size_t number, size_t* failed, CUstream stream),
          copy_lines(to, from, sizes, count, attributes, first, number, failed, stream))
TNR_LATER(cuMemcpyBatchAsync_v2,
          (CUdeviceptr * to, CUdeviceptr* from, size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
           size_t* first, size_t number, CUstream stream),
          copy_lines(to, from, sizes, count, attributes, first, number, nullptr, stream))
TNR_LATER(cuMemcpy3DBatchAsync,
          (size_t count, CUDA_MEMCPY3D_BATCH_OP* given, size_t* failed, unsigned long long flags, CUstream stream),
          copy_boxes(count, given, failed, flags, stream))
TNR_LATER(cuMemcpy3DBatchAsync_v2,
          (size_t count, CUDA_MEMCPY3D_BATCH_OP* given, unsigned long long flags, CUstream stream),
          copy_boxes(count, given, nullptr, flags, stream))
