// cuMemcpy* and cuMemset*: each function in two flavours, which differ in the stream that "no stream" means.
#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/copy.hpp"
#include "gpu_server/emulated_gpu/driver/memory.hpp"
#include "gpu_server/emulated_gpu/driver/per_thread.hpp"

using namespace tnr::emulated;

namespace {

CUresult line_now(CUstream stream, uint64_t destination, uint64_t source, size_t bytes, Side to, Side from) {
    return in_context(
        [&](Context& context) { return copy_now(context, stream, line(destination, source, bytes), to, from); });
}

template <class Box>
CUresult box_now(CUstream stream, const Box* given, bool of_peers = false) {
    return in_context([&](Context& context) -> CUresult {
        if (!given) return CUDA_ERROR_INVALID_VALUE;
        Copy copy;
        copy.of_peers = of_peers;
        Side to = Side::either, from = Side::either;
        if (CUresult error = box_of(*given, copy, to, from)) return error;
        return copy_now(context, stream, copy, to, from);
    });
}

template <class Box>
CUresult box_later(CUstream stream, const Box* given, bool of_peers = false) {
    return in_context([&](Context&) -> CUresult {
        if (!given) return CUDA_ERROR_INVALID_VALUE;
        Copy copy;
        copy.of_peers = of_peers;
        Side to = Side::either, from = Side::either;
        if (CUresult error = box_of(*given, copy, to, from)) return error;
        return copy_later(stream, copy, to, from);
    });
}

// A line of which at least one end is in an array. Each end gives its address, or the array and an offset in it.
struct LineEnd {
    uint64_t address = 0;
    CUarray array = nullptr;
    size_t offset = 0;
    Side side = Side::array;
};

CUresult array_line_of(const LineEnd& to, const LineEnd& from, size_t bytes, Copy& copy) {
    copy = line(to.address, from.address, bytes);
    if (to.side == Side::array)
        if (CUresult error = array_line(to.array, to.offset, bytes, copy.destination, copy.destination_array))
            return error;
    if (from.side != Side::array) return CUDA_SUCCESS;
    return array_line(from.array, from.offset, bytes, copy.source, copy.source_array);
}

CUresult array_line_now(CUstream stream, const LineEnd& to, const LineEnd& from, size_t bytes) {
    return in_context([&](Context& context) -> CUresult {
        Copy copy;
        if (CUresult error = array_line_of(to, from, bytes, copy)) return error;
        return copy_now(context, stream, copy, to.side, from.side);
    });
}

CUresult array_line_later(CUstream stream, const LineEnd& to, const LineEnd& from, size_t bytes) {
    return in_context([&](Context&) -> CUresult {
        Copy copy;
        if (CUresult error = array_line_of(to, from, bytes, copy)) return error;
        return copy_later(stream, copy, to.side, from.side);
    });
}

LineEnd in_array(CUarray array, size_t offset) {
    return {0, array, offset, Side::array};
}
LineEnd in_memory(uint64_t address, Side side) {
    return {address, nullptr, 0, side};
}

// The peers' contexts only name devices, and all devices are the same memory here.
CUDA_MEMCPY3D without_contexts(const CUDA_MEMCPY3D_PEER& peer) {
    CUDA_MEMCPY3D box{};
    box.srcXInBytes = peer.srcXInBytes;
    box.srcY = peer.srcY;
    box.srcZ = peer.srcZ;
    box.srcMemoryType = peer.srcMemoryType;
    box.srcHost = peer.srcHost;
    box.srcDevice = peer.srcDevice;
    box.srcArray = peer.srcArray;
    box.srcPitch = peer.srcPitch;
    box.srcHeight = peer.srcHeight;
    box.dstXInBytes = peer.dstXInBytes;
    box.dstY = peer.dstY;
    box.dstZ = peer.dstZ;
    box.dstMemoryType = peer.dstMemoryType;
    box.dstHost = peer.dstHost;
    box.dstDevice = peer.dstDevice;
    box.dstArray = peer.dstArray;
    box.dstPitch = peer.dstPitch;
    box.dstHeight = peer.dstHeight;
    box.WidthInBytes = peer.WidthInBytes;
    box.Height = peer.Height;
    box.Depth = peer.Depth;
    return box;
}

// Null is the current one.
std::shared_ptr<Context> peer(CUcontext handle) {
    Context* current = current_context();
    return find<Context>(handle || !current ? handle : current->as<CUcontext>());
}

// Each side needs to be reachable from its own context only. A graph's copy has one context: so there is no such copy
// between two devices.
CUresult peer_line(CUstream stream, CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                   size_t bytes, bool now) {
    auto destination = peer(to_context), source = peer(from_context);
    if (!destination || !source) return CUDA_ERROR_INVALID_CONTEXT;
    if (!usable(*destination, to, bytes) || !usable(*source, from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    Copy copy = line(to, from, bytes);
    copy.of_peers = true;
    if (now)
        return in_context(
            [&](Context& context) { return copy_now(context, stream, copy, Side::device, Side::device); });
    return on_stream(stream, [&](Stream& in) -> CUresult {
        if (&destination->device != &source->device)
            if (CUresult error = refuse_while_capturing(in)) return error;
        return copy_later(stream, copy, Side::device, Side::device);
    });
}

CUresult peer_box(CUstream stream, const CUDA_MEMCPY3D_PEER* given, bool now) {
    if (!given) return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D box = without_contexts(*given);
    return now ? box_now(stream, &box, true) : box_later(stream, &box, true);
}

CUresult fill_rows(CUstream stream, CUdeviceptr address, size_t pitch, unsigned value, unsigned element, size_t width,
                   size_t height, bool now) {
    Fill rows;
    rows.destination = address;
    rows.pitch = pitch;
    rows.value = value;
    rows.element = element;
    rows.width = width;
    rows.height = height;
    return fill(stream, rows, now);
}

}  // namespace

// ---- one line each: name, parameters, what it does in `stream`

TNR_NOW(cuMemcpyHtoD_v2, (CUdeviceptr to, const void* from, size_t bytes),
        line_now(stream, to, number(from), bytes, Side::device, Side::host))
TNR_NOW(cuMemcpyDtoH_v2, (void* to, CUdeviceptr from, size_t bytes),
        line_now(stream, number(to), from, bytes, Side::host, Side::device))
TNR_NOW(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
        line_now(stream, to, from, bytes, Side::device, Side::device))
TNR_NOW(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
        line_now(stream, to, from, bytes, Side::either, Side::either))
TNR_NOW(cuMemcpyPeer, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes),
        peer_line(stream, to, to_context, from, from_context, bytes, true))

TNR_LATER(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream),
          copy_later(stream, line(to, number(from), bytes), Side::device, Side::host))
TNR_LATER(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t bytes, CUstream stream),
          copy_later(stream, line(number(to), from, bytes), Side::host, Side::device))
TNR_LATER(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
          copy_later(stream, line(to, from, bytes), Side::device, Side::device))
TNR_LATER(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
          copy_later(stream, line(to, from, bytes), Side::either, Side::either))
TNR_LATER(cuMemcpyPeerAsync,
          (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
           CUstream stream),
          peer_line(stream, to, to_context, from, from_context, bytes, false))

TNR_NOW(cuMemcpyDtoA_v2, (CUarray to, size_t offset, CUdeviceptr from, size_t bytes),
        array_line_now(stream, in_array(to, offset), in_memory(from, Side::device), bytes))
TNR_NOW(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, size_t offset, size_t bytes),
        array_line_now(stream, in_memory(to, Side::device), in_array(from, offset), bytes))
TNR_NOW(cuMemcpyHtoA_v2, (CUarray to, size_t offset, const void* from, size_t bytes),
        array_line_now(stream, in_array(to, offset), in_memory(number(from), Side::host), bytes))
TNR_NOW(cuMemcpyAtoH_v2, (void* to, CUarray from, size_t offset, size_t bytes),
        array_line_now(stream, in_memory(number(to), Side::host), in_array(from, offset), bytes))
TNR_NOW(cuMemcpyAtoA_v2, (CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes),
        array_line_now(stream, in_array(to, to_offset), in_array(from, from_offset), bytes))
TNR_LATER(cuMemcpyHtoAAsync_v2, (CUarray to, size_t offset, const void* from, size_t bytes, CUstream stream),
          array_line_later(stream, in_array(to, offset), in_memory(number(from), Side::host), bytes))
TNR_LATER(cuMemcpyAtoHAsync_v2, (void* to, CUarray from, size_t offset, size_t bytes, CUstream stream),
          array_line_later(stream, in_memory(number(to), Side::host), in_array(from, offset), bytes))

TNR_NOW(cuMemcpy2D_v2, (const CUDA_MEMCPY2D* copy), box_now(stream, copy))
TNR_NOW(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D* copy), box_now(stream, copy))
TNR_NOW(cuMemcpy3D_v2, (const CUDA_MEMCPY3D* copy), box_now(stream, copy))
TNR_NOW(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER* copy), peer_box(stream, copy, true))
TNR_LATER(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D* copy, CUstream stream), box_later(stream, copy))
TNR_LATER(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D* copy, CUstream stream), box_later(stream, copy))
TNR_LATER(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER* copy, CUstream stream), peer_box(stream, copy, false))

// Fills by the width of their element.
#define TNR_FILL(bits, Value)                                                                                 \
    TNR_NOW(cuMemsetD##bits##_v2, (CUdeviceptr to, Value value, size_t count),                                \
            fill_rows(stream, to, 0, value, (bits) / 8, count, 1, true))                                      \
    TNR_NOW(cuMemsetD2D##bits##_v2, (CUdeviceptr to, size_t pitch, Value value, size_t width, size_t height), \
            fill_rows(stream, to, pitch, value, (bits) / 8, width, height, true))                             \
    TNR_LATER(cuMemsetD##bits##Async, (CUdeviceptr to, Value value, size_t count, CUstream stream),           \
              fill_rows(stream, to, 0, value, (bits) / 8, count, 1, false))                                   \
    TNR_LATER(cuMemsetD2D##bits##Async,                                                                       \
              (CUdeviceptr to, size_t pitch, Value value, size_t width, size_t height, CUstream stream),      \
              fill_rows(stream, to, pitch, value, (bits) / 8, width, height, false))

TNR_FILL(8, unsigned char)
TNR_FILL(16, unsigned short)
TNR_FILL(32, unsigned)
