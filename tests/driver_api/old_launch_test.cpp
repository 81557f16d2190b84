// Launches of the kind before CUDA 4: the block's shape and the parameters are said one by one, and stay said.
#include "gpu.hpp"

using namespace driver_api;

TEST_CASE("parameters are said one by one and stay said", "[launch]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory out(std::vector<int>{0});
    CUfunction store = module.function("store");
    CU_OK(cu.cuParamSetv(store, 0, &out.address, sizeof out.address));
    CU_OK(cu.cuParamSeti(store, 8, 41));
    CU_OK(cu.cuParamSetSize(store, 12));
    CU_OK(cu.cuFuncSetBlockShape(store, 1, 1, 1));
    CU_OK(cu.cuLaunch(store));
    CHECK(out.first<int>() == 41);
    CU_OK(cu.cuParamSeti(store, 8, 42));  // the address stays
    CU_OK(cu.cuLaunchGridAsync(store, 1, 1, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(out.first<int>() == 42);
}

TEST_CASE("a grid of blocks has the shape that was said", "[launch]") {
    Gpu gpu;
    Module module;
    Memory out(std::vector<unsigned>(3 * 2 * 8, 0));
    CUfunction shape = module.function("shape");
    CU_OK(cu.cuParamSetv(shape, 0, &out.address, sizeof out.address));
    CU_OK(cu.cuParamSetSize(shape, sizeof out.address));
    CU_OK(cu.cuFuncSetBlockShape(shape, 2, 2, 2));
    CU_OK(cu.cuLaunchGrid(shape, 3, 2));
    std::vector<unsigned> expected(3 * 2 * 8);
    for (unsigned i = 0; i < expected.size(); ++i) expected[i] = i / 8 * 1000 + i % 8 + 1;
    CHECK(out.read<unsigned>(expected.size()) == expected);
}

TEST_CASE("parameters and shared memory of an old launch arrive", "[launch]") {
    Gpu gpu;
    Module module;
    Memory out(std::vector<double>{0});
    CUfunction shared = module.function("use_dynamic_shared");
    constexpr unsigned words = 64;
    CU_OK(cu.cuParamSetv(shared, 0, &out.address, sizeof out.address));
    CU_OK(cu.cuParamSeti(shared, 8, words));
    CU_OK(cu.cuParamSetSize(shared, 12));
    CU_OK(cu.cuFuncSetSharedSize(shared, words * sizeof(int)));
    CU_OK(cu.cuFuncSetBlockShape(shared, 32, 1, 1));
    CU_OK(cu.cuLaunch(shared));
    Memory modern(std::vector<double>{0});
    CU_OK(launch_shaped(shared, 1, 32, words * sizeof(int), nullptr, modern.address, int{words}));
    CHECK(out.first<int>() == modern.first<int>());
    CU_CHECK(cu.cuFuncSetSharedSize(shared, 1 << 30), CUDA_ERROR_INVALID_VALUE);
    CUfunction mixed = module.function("mixed");  // (char, double, short, int*, float, long long, unsigned char)
    Memory seen(std::vector<int>(6, 0));
    double b = 1e6;
    long long e = 77ll << 32;
    CU_OK(cu.cuParamSeti(mixed, 0, static_cast<unsigned>(-3)));
    CU_OK(cu.cuParamSetv(mixed, 8, &b, sizeof b));
    CU_OK(cu.cuParamSeti(mixed, 16, static_cast<unsigned>(-4000)));
    CU_OK(cu.cuParamSetv(mixed, 24, &seen.address, sizeof seen.address));
    CU_OK(cu.cuParamSetf(mixed, 32, 2.5f));
    CU_OK(cu.cuParamSetv(mixed, 40, &e, sizeof e));
    CU_OK(cu.cuParamSeti(mixed, 48, 200));
    CU_OK(cu.cuParamSetSize(mixed, 49));  // its last is one byte
    CU_OK(cu.cuLaunch(mixed));
    CHECK(seen.read<int>(6) == std::vector<int>{-3, 1'000'000, -4000, 2, 77, 200});
}

TEST_CASE("old launches that make no sense are refused", "[launch]") {
    Gpu gpu;
    Module module;
    CUfunction store = module.function("store");
    int value = 1;
    CU_CHECK(cu.cuFuncSetBlockShape(store, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuFuncSetBlockShape(store, 1, -1, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuFuncSetBlockShape(nullptr, 1, 1, 1), CUDA_ERROR_INVALID_HANDLE);
    CU_CHECK(cu.cuParamSeti(store, -4, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuParamSetv(store, 4090, &value, 8), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuParamSetv(store, 0, &value, 1u << 31), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuParamSetv(store, 0, nullptr, 4), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuParamSetSize(store, 4097), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuParamSetSize(store, 4));
    CU_CHECK(cu.cuLaunch(store), CUDA_ERROR_INVALID_VALUE);  // less than the kernel takes
    CU_CHECK(cu.cuLaunchGrid(store, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuLaunchGrid(store, 1, -1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuLaunch(nullptr), CUDA_ERROR_INVALID_HANDLE);
    CU_OK(cu.cuCtxSynchronize());
}
