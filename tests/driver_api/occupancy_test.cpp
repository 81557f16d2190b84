// How much fits on a multiprocessor.
#include "gpu.hpp"

using namespace driver_api;

TEST_CASE("occupancy stays within the multiprocessor's limits", "[occupancy]") {
    Gpu gpu;
    Module module;
    CUfunction function = module.function("use_dynamic_shared");
    int previous = 1 << 20;
    for (int threads : {32, 128, 256, 512, 1024}) {
        int blocks = -1;
        CU_OK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, 0));
        CHECK(blocks >= 1);
        CHECK(blocks <= previous);
        CHECK(blocks * threads <= gpu.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR));
        CHECK(blocks <= gpu.attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR));
        previous = blocks;
    }
}

TEST_CASE("shared memory limits the occupancy", "[occupancy]") {
    Gpu gpu;
    Module module;
    CUfunction function = module.function("use_dynamic_shared");
    int room = gpu.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR), most = 0, blocks = -1;
    CU_OK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&most, function, 32, 0));
    for (size_t shared : {size_t{16} << 10, size_t{48} << 10}) {
        CU_OK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 32, shared));
        CHECK(blocks >= 1);
        CHECK(blocks < most);
        CHECK(size_t(blocks) * shared <= size_t(room));
        int same = -1;
        CU_OK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&same, function, 32, shared, 0));
        CHECK(same == blocks);
    }
}

TEST_CASE("the suggested block size can be launched and fills the device", "[occupancy]") {
    Gpu gpu;
    Module module;
    int grid = 0, block = 0;
    CU_OK(cu.cuOccupancyMaxPotentialBlockSize(&grid, &block, module.function("store"), nullptr, 0, 0));
    CHECK(block >= 32);
    CHECK(block <= 1024);
    CHECK(grid >= gpu.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    CU_OK(cu.cuOccupancyMaxPotentialBlockSize(&grid, &block, module.function("at_most_64_threads"), nullptr, 0, 0));
    CHECK(block <= 64);
    CU_OK(cu.cuOccupancyMaxPotentialBlockSize(&grid, &block, module.function("store"), nullptr, 0, 96));
    CHECK(block <= 96);
    CU_OK(cu.cuOccupancyMaxPotentialBlockSize(
        &grid, &block, module.function("store"), [](int threads) { return size_t(threads) * 100; }, 0, 0));
    CHECK(block * 100 <= 48 << 10);
}

TEST_CASE("the shared memory left for a block is room that a launch can take", "[occupancy]") {
    Gpu gpu;
    Module module;
    CUfunction function = module.function("use_dynamic_shared");
    size_t one = 0, two = 0;
    CU_OK(cu.cuOccupancyAvailableDynamicSMemPerBlock(&one, function, 1, 32));
    CU_OK(cu.cuOccupancyAvailableDynamicSMemPerBlock(&two, function, 2, 32));
    CHECK(one >= two);
    CHECK(two > 0);
    CHECK(one <= size_t(gpu.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)));
}

TEST_CASE("occupancy of no threads is refused", "[occupancy]") {
    Gpu gpu;
    Module module;
    int blocks = 0;
    CU_CHECK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, module.function("store"), 0, 0),
             CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(nullptr, module.function("store"), 32, 0),
             CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("clusters: how large, and how many at once", "[occupancy][cluster]") {
    Gpu gpu;
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)) {
        WARN("this GPU has no clusters: not tested");
        return;
    }
    Module module;
    CUfunction function = module.function("use_dynamic_shared");
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    CUlaunchConfig config{};
    config.gridDimX = 64, config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 128, config.blockDimY = config.blockDimZ = 1;
    int largest = 0;
    CU_OK(cu.cuOccupancyMaxPotentialClusterSize(&largest, function, &config));
    CHECK(largest == 8);  // what is portable
    CU_OK(cu.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
    CU_OK(cu.cuOccupancyMaxPotentialClusterSize(&largest, function, &config));
    CHECK(largest >= 8);

    config.attrs = &attribute;
    config.numAttrs = 1;
    int previous = 1 << 20;
    for (unsigned size : {1u, 2u, 8u}) {
        attribute.value.clusterDim = {size, 1, 1};
        int clusters = 0;
        CU_OK(cu.cuOccupancyMaxActiveClusters(&clusters, function, &config));
        CHECK(clusters >= 1);
        CHECK(clusters <= previous);
        previous = clusters;
    }
    attribute.value.clusterDim = {3, 1, 1};  // 64 blocks are no whole number of these
    int clusters = 0;
    CHECK(cu.cuOccupancyMaxActiveClusters(&clusters, function, &config) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
    CHECK(cu.cuOccupancyMaxActiveClusters(nullptr, function, &config) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu.cuOccupancyMaxPotentialClusterSize(&largest, function, nullptr) == CUDA_ERROR_INVALID_VALUE);
}
