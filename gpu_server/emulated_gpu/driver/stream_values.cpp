// Streams that write words to memory and wait for words in it.
#include <atomic>
#include <chrono>
#include <thread>

#include "gpu_server/emulated_gpu/driver/memory.hpp"
#include "gpu_server/emulated_gpu/driver/operation.hpp"
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

bool is_word(Context& context, uint64_t address, size_t bytes) {
    return address % bytes == 0 && usable(context, address, bytes);
}

CUresult check_one(Context& context, const CUstreamBatchMemOpParams& op) {
    auto when = [](bool fine) { return fine ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; };
    constexpr unsigned write_flags = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
    const auto& wait = op.waitValue;
    const auto& write = op.writeValue;
    switch (op.operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            return when(!(wait.flags & ~conditions) && is_word(context, wait.address, 4));
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            return when(!(wait.flags & ~conditions) && is_word(context, wait.address, 8));
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            return when(!(write.flags & ~write_flags) && is_word(context, write.address, 4));
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            return when(!(write.flags & ~write_flags) && is_word(context, write.address, 8));
        case CU_STREAM_MEM_OP_BARRIER:
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
    }
}

void perform_one(Context& context, const CUstreamBatchMemOpParams& op) {
    const auto& wait = op.waitValue;
    const auto& write = op.writeValue;
    switch (op.operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            return wait_for<uint32_t>(context, wait.address, wait.value, wait.flags);
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            return wait_for<uint64_t>(context, wait.address, wait.value64, wait.flags);
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            return std::atomic_ref(*static_cast<uint32_t*>(pointer(write.address))).store(write.value);
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            return std::atomic_ref(*static_cast<uint64_t*>(pointer(write.address))).store(write.value64);
        default:
            return;  // a barrier: memory is coherent
    }
}

CUresult enqueue_values(Stream& stream, ValueOperations operations) {
    if (CUresult error = check_values(stream.context, operations)) return error;
    return operations.list.empty() ? CUDA_SUCCESS : enqueue(stream, std::move(operations));
}

template <class T>
CUresult wait_value(Stream& stream, uint64_t address, T value, unsigned flags) {
    CUstreamBatchMemOpParams op{};
    op.waitValue.operation = sizeof(T) == 4 ? CU_STREAM_MEM_OP_WAIT_VALUE_32 : CU_STREAM_MEM_OP_WAIT_VALUE_64;
    op.waitValue.address = address;
    op.waitValue.value64 = value;
    op.waitValue.flags = flags;
    return enqueue_values(stream, {{op}});
}

template <class T>
CUresult write_value(Stream& stream, uint64_t address, T value, unsigned flags) {
    CUstreamBatchMemOpParams op{};
    op.writeValue.operation = sizeof(T) == 4 ? CU_STREAM_MEM_OP_WRITE_VALUE_32 : CU_STREAM_MEM_OP_WRITE_VALUE_64;
    op.writeValue.address = address;
    op.writeValue.value64 = value;
    op.writeValue.flags = flags;
    return enqueue_values(stream, {{op}});
}

}  // namespace

CUresult check_values(Context& context, const ValueOperations& operations) {
    if (operations.list.size() > value_operations_max) return CUDA_ERROR_INVALID_VALUE;
    for (const CUstreamBatchMemOpParams& op : operations.list)
        if (CUresult error = check_one(context, op)) return error;
    return CUDA_SUCCESS;
}

void perform(Context& context, const ValueOperations& operations) {
    for (const CUstreamBatchMemOpParams& op : operations.list)
        if (!context.faulted()) perform_one(context, op);
}

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
        if (flags || count > value_operations_max || (count && !operations)) return CUDA_ERROR_INVALID_VALUE;
        return enqueue_values(stream, {{operations, operations + count}});
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
