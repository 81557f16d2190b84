// cuStream*: making streams, waiting for them, and what is known of them.
#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/event.hpp"
#include "gpu_server/emulated_gpu/driver/green_context.hpp"
#include "gpu_server/emulated_gpu/driver/per_thread.hpp"
#include "gpu_server/emulated_gpu/driver/pool.hpp"
#include "gpu_server/emulated_gpu/driver/print.hpp"

using namespace tnr::emulated;

namespace {

// As on the real thing: lower numbers are served first. Here priorities are kept but change nothing.
constexpr int priority_least = 0, priority_greatest = -5;

int clamped(int priority) {
    return std::min(std::max(priority, priority_greatest), priority_least);
}

// That of the stream, or for a special one the current one. Mostly null.
CUresult green_of(CUstream handle, const Stream& stream, std::shared_ptr<GreenContext>& green) {
    bool special = stream.role != Stream::Role::created;
    green = special ? current_green_context() : stream.green;
    return green && handle == CU_STREAM_PER_THREAD ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    return in_context([&](Context&) {
        if (least) *least = priority_least;
        if (greatest) *greatest = priority_greatest;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
    return in_context([&](Context& context) -> CUresult {
        if (!stream || (flags & ~unsigned{CU_STREAM_NON_BLOCKING})) return CUDA_ERROR_INVALID_VALUE;
        *stream = context.create_stream(flags, clamped(priority), current_green_context())->as<CUstream>();
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
    return cuStreamCreateWithPriority(stream, flags, 0);
}

// Work that is still in it goes on.
CUresult cuStreamDestroy_v2(CUstream handle) {
    return initialized([&]() -> CUresult {
        auto stream = find<Stream>(handle);
        if (stream && stream->green && !stream->green->alive()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        if (!stream || !driver().registry.remove(stream->handle())) return CUDA_ERROR_INVALID_HANDLE;
        abandon_capture(*stream);
        stream->context.retire(stream);
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamDestroy(CUstream stream) {
    return cuStreamDestroy_v2(stream);
}

CUresult cuStreamQuery(CUstream handle) {
    return on_stream(handle, [](Stream& stream) -> CUresult {
        if (CUresult error = refuse_wait(stream)) return error;
        if (!stream.context.passed_through(stream)) return CUDA_ERROR_NOT_READY;
        return stream.context.status();
    });
}

CUresult cuStreamSynchronize(CUstream handle) {
    return on_stream(handle, [](Stream& stream) -> CUresult {
        if (CUresult error = refuse_wait(stream)) return error;
        stream.context.wait_through(stream);
        flush_print();
        release_after_wait(stream.context.device);
        return stream.context.status();
    });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) return CUDA_ERROR_INVALID_VALUE;
        auto event = find<Event>(event_handle);
        if (!event) return CUDA_ERROR_INVALID_HANDLE;
        bool captured = false;
        CUresult error = flags & CU_EVENT_WAIT_EXTERNAL
                             ? capture(stream, Work(std::make_shared<NodeWork>(WaitWork{event})), captured)
                             : capture_wait(stream, *event, captured);
        if (error || captured) return error;
        if (auto record = event->last()) stream.context.submit(stream, [] {}, {record->point});
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data, unsigned flags) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (!callback || flags) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = refuse_while_capturing(stream)) return error;
        // Unlike a host function it is called even after a fault, and told of it.
        stream.context.submit(stream, [handle, callback, data, &context = stream.context] {
            flush_print();
            call_program_function(callback, handle, context.status(), data);
        });
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (!context) return CUDA_ERROR_INVALID_VALUE;
        std::shared_ptr<GreenContext> green;
        if (CUresult error = green_of(handle, stream, green)) return error;
        *context = green ? green->converted() : stream.context.as<CUcontext>();
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx* out) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        std::shared_ptr<GreenContext> green;
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = green_of(handle, stream, green)) return error;
        *out = green ? green->as<CUgreenCtx>() : nullptr;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext* context, CUgreenCtx* out) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        std::shared_ptr<GreenContext> green;
        if (!context || !out) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = green_of(handle, stream, green)) return error;
        *context = stream.context.as<CUcontext>();
        *out = green ? green->as<CUgreenCtx>() : nullptr;
        return CUDA_SUCCESS;
    });
}

CUresult cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx handle, unsigned flags, int priority) {
    return on_green(handle, [&](const std::shared_ptr<GreenContext>& green) -> CUresult {
        if (!stream || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
        *stream = green->primary.create_stream(flags, clamped(priority), green)->as<CUstream>();
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (!device) return CUDA_ERROR_INVALID_VALUE;
        *device = stream.context.device.ordinal;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (!flags) return CUDA_ERROR_INVALID_VALUE;
        *flags = stream.flags;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (!priority) return CUDA_ERROR_INVALID_VALUE;
        *priority = stream.priority;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (!id) return CUDA_ERROR_INVALID_VALUE;
        *id = stream.context.id << 32 | stream.id;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue* value) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (!value) return CUDA_ERROR_INVALID_VALUE;
        if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
            value->priority = stream.priority;
            return CUDA_SUCCESS;
        }
        return stream.context.attribute(stream, attribute, *value);
    });
}

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue* value) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (!value) return CUDA_ERROR_INVALID_VALUE;
        return stream.context.set_attribute(stream, attribute, *value);
    });
}

CUresult cuStreamCopyAttributes(CUstream to, CUstream from) {
    return on_stream(to, [&](Stream& target) {
        return on_stream(from, [&](Stream& source) -> CUresult {
            if (&target.context != &source.context) return CUDA_ERROR_INVALID_VALUE;
            target.context.copy_attributes(target, source);
            return CUDA_SUCCESS;
        });
    });
}

CUresult cuStreamQuery_ptsz(CUstream stream) {
    return cuStreamQuery(per_thread(stream));
}
CUresult cuStreamSynchronize_ptsz(CUstream stream) {
    return cuStreamSynchronize(per_thread(stream));
}
CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags) {
    return cuStreamWaitEvent(per_thread(stream), event, flags);
}
CUresult cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback callback, void* data, unsigned flags) {
    return cuStreamAddCallback(per_thread(stream), callback, data, flags);
}
CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext* context) {
    return cuStreamGetCtx(per_thread(stream), context);
}
CUresult cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext* context, CUgreenCtx* green) {
    return cuStreamGetCtx_v2(per_thread(stream), context, green);
}
CUresult cuStreamGetDevice_ptsz(CUstream stream, CUdevice* device) {
    return cuStreamGetDevice(per_thread(stream), device);
}
CUresult cuStreamGetFlags_ptsz(CUstream stream, unsigned* flags) {
    return cuStreamGetFlags(per_thread(stream), flags);
}
CUresult cuStreamGetPriority_ptsz(CUstream stream, int* priority) {
    return cuStreamGetPriority(per_thread(stream), priority);
}
CUresult cuStreamGetId_ptsz(CUstream stream, unsigned long long* id) {
    return cuStreamGetId(per_thread(stream), id);
}
CUresult cuStreamGetAttribute_ptsz(CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue* value) {
    return cuStreamGetAttribute(per_thread(stream), attribute, value);
}
CUresult cuStreamSetAttribute_ptsz(CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue* value) {
    return cuStreamSetAttribute(per_thread(stream), attribute, value);
}
CUresult cuStreamCopyAttributes_ptsz(CUstream to, CUstream from) {
    return cuStreamCopyAttributes(per_thread(to), per_thread(from));
}
