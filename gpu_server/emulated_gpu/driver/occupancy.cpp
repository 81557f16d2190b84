// The arithmetic of CUDA's occupancy functions, with the limits of compute capability 12.0.
#include "gpu_server/emulated_gpu/driver/occupancy.hpp"

#include "gpu_server/emulated_gpu/driver/addresses.hpp"
#include "gpu_server/emulated_gpu/driver/launch.hpp"

#include <algorithm>

namespace tnr::emulated {
namespace {

// Registers are handed out to warps in units of 256, shared memory to blocks in units of 128 bytes.
constexpr uint64_t register_unit = 256, shared_unit = 128;

uint64_t shared_per_block(const ptx::Kernel& kernel, uint64_t dynamic_bytes) {
    return round_up(kernel.static_shared_bytes + dynamic_bytes, shared_unit) + shared_bytes_reserved;
}

}  // namespace

int blocks_per_multiprocessor_of(const Function& function, uint64_t threads, uint64_t dynamic_bytes) {
    const ptx::Kernel& kernel = function.kernel();
    if (dynamic_bytes > static_cast<uint64_t>(max_dynamic_shared(kernel, *function.settings))) return 0;
    uint64_t warps = round_up(threads, warp_threads) / warp_threads;
    if (warps == 0 || threads > threads_per_block_max) return 0;
    if (kernel.max_threads_per_block && threads > kernel.max_threads_per_block) return 0;
    uint64_t by_threads = threads_per_multiprocessor / warp_threads / warps;
    uint64_t by_shared = shared_bytes_total / shared_per_block(kernel, dynamic_bytes);
    // The interpreter's register count is an estimate before allocation; a compiler would fit the kernel into
    // what one block of its largest size can have, so registers never make that impossible here.
    uint64_t per_warp = round_up(std::max<uint64_t>(1, kernel.registers) * warp_threads, register_unit);
    uint64_t by_registers = std::max<uint64_t>(1, registers_per_block / per_warp / warps);
    return static_cast<int>(std::min({by_threads, by_shared, by_registers, uint64_t{blocks_per_multiprocessor}}));
}

}  // namespace tnr::emulated

using namespace tnr::emulated;
namespace ptx = tnr::ptx;

namespace {

template <class Call>
CUresult on_kernel(CUfunction handle, Call&& call) {
    return in_context([&](Context& context) -> CUresult {
        std::shared_ptr<Function> function;
        if (CUresult error = function_of(context, handle, function)) return error;
        return call(context, *function);
    });
}

}  // namespace

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle, int threads,
                                                              size_t dynamic_bytes, unsigned flags) {
    return on_kernel(handle, [&](Context&, Function& function) -> CUresult {
        if (!blocks || threads <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) return CUDA_ERROR_INVALID_VALUE;
        *blocks = blocks_per_multiprocessor_of(function, static_cast<uint64_t>(threads), dynamic_bytes);
        return CUDA_SUCCESS;
    });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads,
                                                     size_t dynamic_bytes) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, threads, dynamic_bytes, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction handle,
                                                   CUoccupancyB2DSize dynamic_of, size_t dynamic_bytes, int limit,
                                                   unsigned flags) {
    return on_kernel(handle, [&](Context& context, Function& function) -> CUresult {
        if (!grid || !block || limit < 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
            return CUDA_ERROR_INVALID_VALUE;
        const ptx::Kernel& kernel = function.kernel();
        int largest =
            kernel.max_threads_per_block ? static_cast<int>(kernel.max_threads_per_block) : threads_per_block_max;
        largest = std::min(largest, threads_per_block_max);
        if (limit > 0) largest = std::min(largest, limit);
        int best_threads = 0;
        *grid = *block = 0;
        // From large to small, so that of equal occupancies the largest block wins.
        int start = (largest + warp_threads - 1) / warp_threads * warp_threads;
        for (int size = start; size > 0; size -= warp_threads) {
            int threads = std::min(size, largest);
            size_t bytes = dynamic_of ? dynamic_of(threads) : dynamic_bytes;
            int blocks = blocks_per_multiprocessor_of(function, static_cast<uint64_t>(threads), bytes);
            if (blocks * threads <= best_threads) continue;
            best_threads = blocks * threads;
            *block = threads;
            *grid = blocks * context.device.type->multiprocessors;
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction handle, CUoccupancyB2DSize dynamic_of,
                                          size_t dynamic_bytes, int limit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, handle, dynamic_of, dynamic_bytes, limit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks, int threads) {
    return on_kernel(handle, [&](Context&, Function& function) -> CUresult {
        if (!bytes || blocks <= 0 || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
        const ptx::Kernel& kernel = function.kernel();
        if (blocks > blocks_per_multiprocessor_of(function, static_cast<uint64_t>(threads), 0))
            return CUDA_ERROR_INVALID_VALUE;
        int share = shared_bytes_total / blocks / int{shared_unit} * int{shared_unit} - shared_bytes_reserved -
                    static_cast<int>(kernel.static_shared_bytes);
        *bytes = static_cast<size_t>(std::clamp(share, 0, max_dynamic_shared(kernel, *function.settings)));
        return CUDA_SUCCESS;
    });
}

namespace {

// A cluster's blocks stand on one group of multiprocessors; a group here is as large as the largest cluster.
CUresult on_cluster(const CUlaunchConfig* config, CUfunction handle, int* result,
                    int (*call)(const LaunchRequest&, const Function&, int blocks_in_group, int groups)) {
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    return on_kernel(handle, [&](Context& context, Function& function) -> CUresult {
        if (!config || !result || (config->numAttrs && !config->attrs)) return CUDA_ERROR_INVALID_VALUE;
        LaunchRequest request;
        request.grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
        for (unsigned i = 0; i < config->numAttrs; ++i) {
            if (config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
            auto& size = config->attrs[i].value.clusterDim;
            request.cluster = {size.x, size.y, size.z};
        }
        uint64_t threads = uint64_t{config->blockDimX} * config->blockDimY * config->blockDimZ;
        if (threads == 0) return CUDA_ERROR_INVALID_VALUE;
        int each = blocks_per_multiprocessor_of(function, threads, config->sharedMemBytes);
        int groups = static_cast<int>(context.device.type->multiprocessors) / non_portable_cluster_max;
        *result = call(request, function, each * non_portable_cluster_max, groups);
        return *result < 0 ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
    });
}

}  // namespace

CUresult cuOccupancyMaxPotentialClusterSize(int* size, CUfunction handle, const CUlaunchConfig* config) {
    return on_cluster(config, handle, size, [](const LaunchRequest&, const Function& function, int in_group, int) {
        int most = function.settings->non_portable_cluster ? non_portable_cluster_max : portable_cluster_max;
        return std::min(most, in_group);
    });
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle, const CUlaunchConfig* config) {
    return on_cluster(config, handle, clusters,
                      [](const LaunchRequest& request, const Function& function, int in_group, int groups) {
                          ptx::Dim3 cluster;
                          if (choose_cluster(request, function, cluster)) return -1;
                          return in_group / static_cast<int>(cluster.x * cluster.y * cluster.z) * groups;
                      });
}
