// What atomics GPUs can do on each other's memory: the server knows.
#include <algorithm>

#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/protocol/call_records.hpp"

namespace tnr::cuda {

static CUresult get_peer_atomics(unsigned* capabilities, const CUatomicOperation* operations, unsigned count,
                                 CUdevice from, CUdevice to) {
    if (!capabilities || !operations || count == 0) return CUDA_ERROR_INVALID_VALUE;
    auto *source = find_device(from), *target = find_device(to);
    if (!source || !target || source == target) return CUDA_ERROR_INVALID_DEVICE;
    bool known =
        std::all_of(operations, operations + count, [](auto one) { return one >= 0 && one < CU_ATOMIC_OPERATION_MAX; });
    if (!known) return CUDA_ERROR_INVALID_VALUE;
    RemoteCall call(wire::GetPeerAtomics<>{source->number, target->number});
    call.on(*source);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::GetPeerAtomics<>::Reply reply;
    if (auto result = call.take(reply); result != CUDA_SUCCESS) return result;
    for (unsigned i = 0; i < count; ++i) {
        auto operation = static_cast<size_t>(operations[i]);
        capabilities[i] = operation < reply.capabilities.size() ? reply.capabilities[operation] : 0;
    }
    return CUDA_SUCCESS;
}

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuDeviceGetP2PAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation* operations,
                                                  unsigned int count, CUdevice from, CUdevice to) {
    return guarded("cuDeviceGetP2PAtomicCapabilities",
                   [&] { return get_peer_atomics(capabilities, operations, count, from, to); });
}

}  // extern "C"
