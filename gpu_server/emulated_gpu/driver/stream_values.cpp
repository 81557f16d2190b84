// Streams that write words to memory and wait for words in it.
#include <atomic>
#include <chrono>
#include <thread>

#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/memory.hpp"
#include "gpu_server/emulated_gpu/driver/per_thread.hpp"

namespace tnr::emulated {
namespace {

// How often a waiting stream looks again, once a short spin has not sufficed.
constexpr std::chrono::microseconds poll_interval{50};
constexpr int spins = 1000;

template <class T>
bool satisfied(T memory, T value, unsigned condition) {
    switch (condition) {
        case CU_STREAM_WAIT_VALUE_GEQ:
            return static_cast<std::make_signed_t<T>>(memory - value) >= 0;
        case CU_STREAM_WAIT_VALUE_EQ:
            return memory == value;
        case CU_STREAM_WAIT_VALUE_AND:
            return (memory & value) != 0;
        default:
            return static_cast<T>(~(memory | value)) != 0;
    }
}

template <class T>
void wait_for(Context& context, uint64_t address, T value, unsigned condition) {
    std::atomic_ref word(*static_cast<T*>(pointer(address)));
    for (int tries = 0; !context.faulted() && !satisfied(word.load(), value, condition); ++tries)
        if (tries > spins) std::this_thread::sleep_for(poll_interval);
}

constexpr unsigned conditions = CU_STREAM_WAIT_VALUE_NOR;  // both bits

template <class T>
CUresult wait_value(Stream& stream, uint64_t address, T value, unsigned flags) {
    if (flags & ~conditions || address % sizeof(T)) return CUDA_ERROR_INVALID_VALUE;
    if (!usable(stream.context, address, sizeof(T))) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = refuse_while_capturing(stream)) return error;
    stream.context.submit(
        stream, [&context = stream.context, address, value, flags] { wait_for<T>(context, address, value, flags); });
    return CUDA_SUCCESS;
}

template <class T>
CUresult write_value(Stream& stream, uint64_t address, T value, unsigned flags) {
    if (flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER} || address % sizeof(T))
        return CUDA_ERROR_INVALID_VALUE;
    if (!usable(stream.context, address, sizeof(T))) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = refuse_while_capturing(stream)) return error;
    stream.context.submit(stream, [&context = stream.context, address, value] {
        if (!context.faulted()) std::atomic_ref(*static_cast<T*>(pointer(address))).store(value);
    });
    return CUDA_SUCCESS;
}

CUresult one_of_batch(Stream& stream, const CUstreamBatchMemOpParams& op) {
    switch (op.operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            return wait_value<uint32_t>(stream, op.waitValue.address, op.waitValue.value, op.waitValue.flags);
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            return wait_value<uint64_t>(stream, op.waitValue.address, op.waitValue.value64, op.waitValue.flags);
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            return write_value<uint32_t>(stream, op.writeValue.address, op.writeValue.value, op.writeValue.flags);
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            return write_value<uint64_t>(stream, op.writeValue.address, op.writeValue.value64, op.writeValue.flags);
        case CU_STREAM_MEM_OP_BARRIER:
            return CUDA_SUCCESS;  // memory is coherent
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
    }
}

// The limit that cuda.h gives for a batch.
constexpr unsigned batch_max = 255;

}  // namespace
}  // namespace tnr::emulated

using namespace tnr::emulated;

CUresult cuStreamWaitValue32_v2(CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    return on_stream(handle, [&](Stream& stream) { return wait_value<uint32_t>(stream, address, value, flags); });
}
CUresult cuStreamWaitValue64_v2(CUstream handle, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    return on_stream(handle, [&](Stream& stream) { return wait_value<uint64_t>(stream, address, value, flags); });
}
CUresult cuStreamWriteValue32_v2(CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    return on_stream(handle, [&](Stream& stream) { return write_value<uint32_t>(stream, address, value, flags); });
}
CUresult cuStreamWriteValue64_v2(CUstream handle, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    return on_stream(handle, [&](Stream& stream) { return write_value<uint64_t>(stream, address, value, flags); });
}

CUresult cuStreamBatchMemOp_v2(CUstream handle, unsigned count, CUstreamBatchMemOpParams* operations, unsigned flags) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (flags || count > batch_max || (count && !operations)) return CUDA_ERROR_INVALID_VALUE;
        for (unsigned i = 0; i < count; ++i)
            if (CUresult error = one_of_batch(stream, operations[i])) return error;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    return cuStreamWaitValue32_v2(per_thread(stream), address, value, flags);
}
CUresult cuStreamWaitValue64_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    return cuStreamWaitValue64_v2(per_thread(stream), address, value, flags);
}
CUresult cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    return cuStreamWriteValue32_v2(per_thread(stream), address, value, flags);
}
CUresult cuStreamWriteValue64_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    return cuStreamWriteValue64_v2(per_thread(stream), address, value, flags);
}
CUresult cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations,
                                    unsigned flags) {
    return cuStreamBatchMemOp_v2(per_thread(stream), count, operations, flags);
}
