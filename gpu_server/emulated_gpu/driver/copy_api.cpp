// cuMemcpy* and cuMemset*: each function in two flavours, which differ in the stream that "no stream" means.
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
CUresult box_now(CUstream stream, const Box* given) {
    return in_context([&](Context& context) -> CUresult {
        if (!given) return CUDA_ERROR_INVALID_VALUE;
        Copy copy;
        Side to = Side::either, from = Side::either;
        if (CUresult error = box_of(*given, copy, to, from)) return error;
        return copy_now(context, stream, copy, to, from);
    });
}

template <class Box>
CUresult box_later(CUstream stream, const Box* given) {
    return in_context([&](Context&) -> CUresult {
        if (!given) return CUDA_ERROR_INVALID_VALUE;
        Copy copy;
        Side to = Side::either, from = Side::either;
        if (CUresult error = box_of(*given, copy, to, from)) return error;
        return copy_later(stream, copy, to, from);
    });
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
    box.srcPitch = peer.srcPitch;
    box.srcHeight = peer.srcHeight;
    box.dstXInBytes = peer.dstXInBytes;
    box.dstY = peer.dstY;
    box.dstZ = peer.dstZ;
    box.dstMemoryType = peer.dstMemoryType;
    box.dstHost = peer.dstHost;
    box.dstDevice = peer.dstDevice;
    box.dstPitch = peer.dstPitch;
    box.dstHeight = peer.dstHeight;
    box.WidthInBytes = peer.WidthInBytes;
    box.Height = peer.Height;
    box.Depth = peer.Depth;
    return box;
}

// Each side needs to be reachable from its own context only.
CUresult check_peers(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes) {
    auto destination = find<Context>(to_context), source = find<Context>(from_context);
    if (!destination || !source) return CUDA_ERROR_INVALID_CONTEXT;
    return usable(*destination, to, bytes) && usable(*source, from, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult peer_box(CUstream stream, const CUDA_MEMCPY3D_PEER* given, bool now) {
    if (!given) return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D box = without_contexts(*given);
    return now ? box_now(stream, &box) : box_later(stream, &box);
}

CUresult fill_rows(CUstream stream, CUdeviceptr address, size_t pitch, unsigned value, unsigned element, size_t width,
                   size_t height) {
    Fill fill;
    fill.destination = address;
    fill.pitch = pitch;
    fill.value = value;
    fill.element = element;
    fill.width = width;
    fill.height = height;
    return fill_later(stream, fill);
}

}  // namespace
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
    return line_now(CU_STREAM_LEGACY, to, number(from), bytes, Side::device, Side::host);
}
CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void* from, size_t bytes) {
    return line_now(CU_STREAM_PER_THREAD, to, number(from), bytes, Side::device, Side::host);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    return copy_later(stream, line(to, number(from), bytes), Side::device, Side::host);
}
CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    return copy_later(per_thread(stream), line(to, number(from), bytes), Side::device, Side::host);
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
    return line_now(CU_STREAM_LEGACY, number(to), from, bytes, Side::host, Side::device);
}
CUresult cuMemcpyDtoH_v2_ptds(void* to, CUdeviceptr from, size_t bytes) {
    return line_now(CU_STREAM_PER_THREAD, number(to), from, bytes, Side::host, Side::device);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy_later(stream, line(number(to), from, bytes), Side::host, Side::device);
}
CUresult cuMemcpyDtoHAsync_v2_ptsz(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy_later(per_thread(stream), line(number(to), from, bytes), Side::host, Side::device);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return line_now(CU_STREAM_LEGACY, to, from, bytes, Side::device, Side::device);
}
CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return line_now(CU_STREAM_PER_THREAD, to, from, bytes, Side::device, Side::device);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy_later(stream, line(to, from, bytes), Side::device, Side::device);
}
CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy_later(per_thread(stream), line(to, from, bytes), Side::device, Side::device);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return line_now(CU_STREAM_LEGACY, to, from, bytes, Side::either, Side::either);
}
CUresult cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return line_now(CU_STREAM_PER_THREAD, to, from, bytes, Side::either, Side::either);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy_later(stream, line(to, from, bytes), Side::either, Side::either);
}
CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy_later(per_thread(stream), line(to, from, bytes), Side::either, Side::either);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes) {
    if (CUresult error = check_peers(to, to_context, from, from_context, bytes)) return error;
    return line_now(CU_STREAM_LEGACY, to, from, bytes, Side::peer, Side::peer);
}
CUresult cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                           size_t bytes) {
    if (CUresult error = check_peers(to, to_context, from, from_context, bytes)) return error;
    return line_now(CU_STREAM_PER_THREAD, to, from, bytes, Side::peer, Side::peer);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                           CUstream stream) {
    if (CUresult error = check_peers(to, to_context, from, from_context, bytes)) return error;
    return copy_later(stream, line(to, from, bytes), Side::peer, Side::peer);
}
CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                size_t bytes, CUstream stream) {
    if (CUresult error = check_peers(to, to_context, from, from_context, bytes)) return error;
    return copy_later(per_thread(stream), line(to, from, bytes), Side::peer, Side::peer);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) {
    return box_now(CU_STREAM_LEGACY, copy);
}
CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D* copy) {
    return box_now(CU_STREAM_PER_THREAD, copy);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) {
    return box_now(CU_STREAM_LEGACY, copy);
}
CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D* copy) {
    return box_now(CU_STREAM_PER_THREAD, copy);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
    return box_later(stream, copy);
}
CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D* copy, CUstream stream) {
    return box_later(per_thread(stream), copy);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) {
    return box_now(CU_STREAM_LEGACY, copy);
}
CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D* copy) {
    return box_now(CU_STREAM_PER_THREAD, copy);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
    return box_later(stream, copy);
}
CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D* copy, CUstream stream) {
    return box_later(per_thread(stream), copy);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* copy) {
    return peer_box(CU_STREAM_LEGACY, copy, true);
}
CUresult cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER* copy) {
    return peer_box(CU_STREAM_PER_THREAD, copy, true);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
    return peer_box(stream, copy, false);
}
CUresult cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
    return peer_box(per_thread(stream), copy, false);
}

CUresult cuMemsetD8_v2(CUdeviceptr address, unsigned char value, size_t count) {
    return fill_rows(CU_STREAM_LEGACY, address, 0, value, 1, count, 1);
}
CUresult cuMemsetD8_v2_ptds(CUdeviceptr address, unsigned char value, size_t count) {
    return fill_rows(CU_STREAM_PER_THREAD, address, 0, value, 1, count, 1);
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
    return fill_rows(stream, address, 0, value, 1, count, 1);
}
CUresult cuMemsetD8Async_ptsz(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
    return fill_rows(per_thread(stream), address, 0, value, 1, count, 1);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr address, size_t pitch, unsigned char value, size_t width, size_t height) {
    return fill_rows(CU_STREAM_LEGACY, address, pitch, value, 1, width, height);
}
CUresult cuMemsetD2D8_v2_ptds(CUdeviceptr address, size_t pitch, unsigned char value, size_t width, size_t height) {
    return fill_rows(CU_STREAM_PER_THREAD, address, pitch, value, 1, width, height);
}

CUresult cuMemsetD2D8Async(CUdeviceptr address, size_t pitch, unsigned char value, size_t width, size_t height,
                           CUstream stream) {
    return fill_rows(stream, address, pitch, value, 1, width, height);
}
CUresult cuMemsetD2D8Async_ptsz(CUdeviceptr address, size_t pitch, unsigned char value, size_t width, size_t height,
                                CUstream stream) {
    return fill_rows(per_thread(stream), address, pitch, value, 1, width, height);
}

CUresult cuMemsetD16_v2(CUdeviceptr address, unsigned short value, size_t count) {
    return fill_rows(CU_STREAM_LEGACY, address, 0, value, 2, count, 1);
}
CUresult cuMemsetD16_v2_ptds(CUdeviceptr address, unsigned short value, size_t count) {
    return fill_rows(CU_STREAM_PER_THREAD, address, 0, value, 2, count, 1);
}

CUresult cuMemsetD16Async(CUdeviceptr address, unsigned short value, size_t count, CUstream stream) {
    return fill_rows(stream, address, 0, value, 2, count, 1);
}
CUresult cuMemsetD16Async_ptsz(CUdeviceptr address, unsigned short value, size_t count, CUstream stream) {
    return fill_rows(per_thread(stream), address, 0, value, 2, count, 1);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr address, size_t pitch, unsigned short value, size_t width, size_t height) {
    return fill_rows(CU_STREAM_LEGACY, address, pitch, value, 2, width, height);
}
CUresult cuMemsetD2D16_v2_ptds(CUdeviceptr address, size_t pitch, unsigned short value, size_t width, size_t height) {
    return fill_rows(CU_STREAM_PER_THREAD, address, pitch, value, 2, width, height);
}

CUresult cuMemsetD2D16Async(CUdeviceptr address, size_t pitch, unsigned short value, size_t width, size_t height,
                            CUstream stream) {
    return fill_rows(stream, address, pitch, value, 2, width, height);
}
CUresult cuMemsetD2D16Async_ptsz(CUdeviceptr address, size_t pitch, unsigned short value, size_t width, size_t height,
                                 CUstream stream) {
    return fill_rows(per_thread(stream), address, pitch, value, 2, width, height);
}

CUresult cuMemsetD32_v2(CUdeviceptr address, unsigned value, size_t count) {
    return fill_rows(CU_STREAM_LEGACY, address, 0, value, 4, count, 1);
}
CUresult cuMemsetD32_v2_ptds(CUdeviceptr address, unsigned value, size_t count) {
    return fill_rows(CU_STREAM_PER_THREAD, address, 0, value, 4, count, 1);
}

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t count, CUstream stream) {
    return fill_rows(stream, address, 0, value, 4, count, 1);
}
CUresult cuMemsetD32Async_ptsz(CUdeviceptr address, unsigned value, size_t count, CUstream stream) {
    return fill_rows(per_thread(stream), address, 0, value, 4, count, 1);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr address, size_t pitch, unsigned value, size_t width, size_t height) {
    return fill_rows(CU_STREAM_LEGACY, address, pitch, value, 4, width, height);
}
CUresult cuMemsetD2D32_v2_ptds(CUdeviceptr address, size_t pitch, unsigned value, size_t width, size_t height) {
    return fill_rows(CU_STREAM_PER_THREAD, address, pitch, value, 4, width, height);
}

CUresult cuMemsetD2D32Async(CUdeviceptr address, size_t pitch, unsigned value, size_t width, size_t height,
                            CUstream stream) {
    return fill_rows(stream, address, pitch, value, 4, width, height);
}
CUresult cuMemsetD2D32Async_ptsz(CUdeviceptr address, size_t pitch, unsigned value, size_t width, size_t height,
                                 CUstream stream) {
    return fill_rows(per_thread(stream), address, pitch, value, 4, width, height);
}
