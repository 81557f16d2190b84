// See table_call.hpp.
#include "gpu_client/cuda/table_call.hpp"

#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/shared_pages.hpp"
#include "gpu_client/cuda/streams.hpp"

namespace tnr::cuda {

void TableCall::handle(CUstream given) {
    StreamRef stream;
    if (auto result = resolve_stream(given, stream); result != CUDA_SUCCESS) refuse(result);
    if (auto result = refuse_work(stream); result != CUDA_SUCCESS) refuse(result);
    if (anywhere_) {
        if (auto result = detour_.begin(*anywhere_, stream); result != CUDA_SUCCESS) return refuse(result);
        stream = detour_.stream();
    }
    put(stream.number);
    use(stream);
}

void TableCall::handle(CUgraph given) {
    in_any_context();
    uint64_t number = 0;
    if (auto result = number_of(given, number); result != CUDA_SUCCESS) refuse(result);
    named_.name(given);
    put(number);
}

void TableCall::handle(CUgraphNode given) {
    in_any_context();
    uint64_t number = 0;
    if (auto result = number_of(given, number); result != CUDA_SUCCESS) refuse(result);
    named_.name(given);
    put(number);
}

void TableCall::in_null_stream() {
    if (auto result = refuse_wait(StreamRef{}); result != CUDA_SUCCESS) refuse(result);
}

void TableCall::put_count(uint64_t count) {
    if (count > wire::list_items_max) refuse(CUDA_ERROR_INVALID_VALUE);
    put(static_cast<uint32_t>(count));
}

uint64_t TableCall::out_count() {
    uint64_t count = 0;
    out(&count);
    return count;
}

void TableCall::ordinal(CUdevice device) {
    auto* found = find_device(device);
    if (!found) refuse(CUDA_ERROR_INVALID_DEVICE);
    put(found ? found->number : 0);
}

void TableCall::device(CUdeviceptr address, uint64_t bytes) {
    if (!is_allocated(address, bytes)) refuse(CUDA_ERROR_INVALID_VALUE);
    SharedMemory shared;
    uses_shared_ |= find_shared(address, shared);
    put(address);
}

void TableCall::any_device(CUdeviceptr address, uint64_t bytes) {
    device(address, bytes);
    anywhere_ = address;
}

CUresult TableCall::send() {
    GpuTurn turn;
    Context* context = nullptr;
    if (uses_shared_ && !is_captured(stream()) && context_of_stream(stream(), context) == CUDA_SUCCESS)
        turn.begin(*context, stream());
    auto result = RemoteCall::send();
    return result == CUDA_SUCCESS && anywhere_ ? detour_.end() : result;
}

bool is_elsewhere(CUdeviceptr address) {
    Context* here = nullptr;
    return current_context(here) == CUDA_SUCCESS && context_for_memory(address, *here) != here;
}

}  // namespace tnr::cuda
