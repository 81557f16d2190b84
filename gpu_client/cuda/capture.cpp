// Stream capture is not carried yet, so no stream is ever being captured; libraries ask before most of what they do.
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/streams.hpp"

using namespace tnr::cuda;

static CUresult not_capturing(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id) {
    if (!status) return CUDA_ERROR_INVALID_VALUE;
    StreamRef stream;
    if (auto result = resolve_stream(handle, stream); result != CUDA_SUCCESS) return result;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (id) *id = 0;
    return CUDA_SUCCESS;
}

extern "C" {

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    return guarded("cuStreamIsCapturing", [&] { return not_capturing(stream, status, nullptr); });
}

CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
    return guarded("cuStreamGetCaptureInfo", [&] { return not_capturing(stream, status, id); });
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                           CUgraph* graph, const CUgraphNode** nodes, size_t* count) {
    return guarded("cuStreamGetCaptureInfo", [&]() -> CUresult {
        if (graph) *graph = nullptr;
        if (nodes) *nodes = nullptr;
        if (count) *count = 0;
        return not_capturing(stream, status, id);
    });
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                           CUgraph* graph, const CUgraphNode** nodes, const CUgraphEdgeData** edges,
                                           size_t* count) {
    return guarded("cuStreamGetCaptureInfo", [&]() -> CUresult {
        if (graph) *graph = nullptr;
        if (nodes) *nodes = nullptr;
        if (edges) *edges = nullptr;
        if (count) *count = 0;
        return not_capturing(stream, status, id);
    });
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    return guarded("cuThreadExchangeStreamCaptureMode", [&]() -> CUresult {
        static thread_local CUstreamCaptureMode of_thread = CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
            return CUDA_ERROR_INVALID_VALUE;
        std::swap(*mode, of_thread);
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
