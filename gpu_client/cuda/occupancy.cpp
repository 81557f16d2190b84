// Launch shapes that fill the GPU. The count of blocks per multiprocessor comes from the driver (and is remembered);
// the search over block sizes happens here, since it calls the program back.
#include <algorithm>

#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/objects.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/thread_state.hpp"
#include "gpu_client/protocol/call_records.hpp"

using namespace tnr::cuda;

static CUresult best_block_size(int* grid, int* block, CUfunction function, CUoccupancyB2DSize shared_for,
                                size_t shared_bytes, int limit, unsigned flags) {
    if (!grid || !block) return CUDA_ERROR_INVALID_VALUE;
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    auto& device = *find_device(context->device);
    int threads_max = 0;
    auto result = cuFuncGetAttribute(&threads_max, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
    if (result != CUDA_SUCCESS) return result;
    int dynamic_max = 0;  // larger than the usual limit only for functions that opted in
    result = cuFuncGetAttribute(&dynamic_max, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function);
    if (result != CUDA_SUCCESS) return result;
    int warp = std::max(1, device.attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE));
    if (limit > 0) threads_max = std::min(threads_max, limit);
    int best_threads = 0;
    *grid = *block = 0;
    // From large to small: of equals, the largest block wins, as the driver has it.
    for (int size = (threads_max + warp - 1) / warp * warp; size > 0; size -= warp) {
        int tried = std::min(size, threads_max), blocks = 0;
        size_t shared = shared_for ? shared_for(tried) : shared_bytes;
        if (shared > static_cast<size_t>(dynamic_max)) continue;
        result = cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, function, tried, shared, flags);
        if (result != CUDA_SUCCESS) return result;
        if (blocks * tried <= best_threads) continue;
        best_threads = blocks * tried;
        *block = tried;
        *grid = blocks * device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        if (best_threads >= device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)) break;
    }
    return CUDA_SUCCESS;
}

// Record: PotentialClusterSize or ActiveClusters.
template <class Record>
static CUresult ask_about_clusters(int* answer, CUfunction handle, const CUlaunchConfig* config) {
    if (!answer || !config || !handle || (config->numAttrs > 0 && !config->attrs)) return CUDA_ERROR_INVALID_VALUE;
    auto* function = find_function(handle);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    Record record{function->number,
                  {config->gridDimX, config->gridDimY, config->gridDimZ},
                  {config->blockDimX, config->blockDimY, config->blockDimZ},
                  {},
                  config->sharedMemBytes};
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        if (config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
        auto& size = config->attrs[i].value.clusterDim;
        record.cluster = {size.x, size.y, size.z};
    }
    RemoteCall call(record);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    typename Record::Reply reply;
    if (auto result = call.take(reply); result != CUDA_SUCCESS) return result;
    *answer = reply.value;
    return CUDA_SUCCESS;
}

extern "C" {

CUresult CUDAAPI cuOccupancyMaxPotentialClusterSize(int* size, CUfunction function, const CUlaunchConfig* config) {
    return guarded("cuOccupancyMaxPotentialClusterSize",
                   [&] { return ask_about_clusters<tnr::wire::PotentialClusterSize<>>(size, function, config); });
}
CUresult CUDAAPI cuOccupancyMaxActiveClusters(int* clusters, CUfunction function, const CUlaunchConfig* config) {
    return guarded("cuOccupancyMaxActiveClusters",
                   [&] { return ask_about_clusters<tnr::wire::ActiveClusters<>>(clusters, function, config); });
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction function,
                                                  CUoccupancyB2DSize shared_for, size_t shared_bytes, int limit) {
    return guarded("cuOccupancyMaxPotentialBlockSize",
                   [&] { return best_block_size(grid, block, function, shared_for, shared_bytes, limit, 0); });
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction function,
                                                           CUoccupancyB2DSize shared_for, size_t shared_bytes,
                                                           int limit, unsigned int flags) {
    return guarded("cuOccupancyMaxPotentialBlockSizeWithFlags",
                   [&] { return best_block_size(grid, block, function, shared_for, shared_bytes, limit, flags); });
}

// Programs may bracket regions for a profiler; there is none at this end.
CUresult CUDAAPI cuProfilerStart() {
    return guarded("cuProfilerStart", [] { return CUDA_SUCCESS; });
}
CUresult CUDAAPI cuProfilerStop() {
    return guarded("cuProfilerStop", [] { return CUDA_SUCCESS; });
}

}  // extern "C"
