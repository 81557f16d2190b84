// What a function says of itself, and what can be set.
#include "gpu.hpp"

using namespace driver_api;

namespace {
int ask(CUfunction_attribute which, CUfunction function) {
    int value = -1;
    CU_OK(cu.cuFuncGetAttribute(&value, which, function));
    return value;
}
}  // namespace

TEST_CASE("a function knows its memory, its limits and where its code came from", "[function]") {
    Gpu gpu;
    Module module;
    CHECK(ask(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, module.function("use_static_shared")) == 1024);
    CHECK(ask(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, module.function("store")) == 0);
    CHECK(ask(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, module.function("at_most_64_threads")) == 64);
    CHECK(ask(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, module.function("store")) == 1024);
    CHECK(ask(CU_FUNC_ATTRIBUTE_NUM_REGS, module.function("store")) > 0);
    CHECK(ask(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, module.function("store")) >= 0);
    CHECK(ask(CU_FUNC_ATTRIBUTE_PTX_VERSION, module.function("store")) == 75);
    CHECK(ask(CU_FUNC_ATTRIBUTE_BINARY_VERSION, module.function("store")) ==
          10 * gpu.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
              gpu.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    int value = 0;
    CU_CHECK(cu.cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(999), module.function("store")),
             CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuFuncGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, module.function("store")),
             CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a function knows its name and its module", "[function]") {
    Gpu gpu;
    Module module;
    CUmodule owner = nullptr;
    const char* name = nullptr;
    CU_OK(cu.cuFuncGetModule(&owner, module.function("store")));
    CHECK(owner == module.handle);
    CU_OK(cu.cuFuncGetName(&name, module.function("store")));
    CHECK(name == std::string("store"));
}

TEST_CASE("a function lists the offsets and sizes of its parameters", "[function]") {
    Gpu gpu;
    Module module;
    // mixed(char, double, short, int*, float, long long, unsigned char)
    const std::vector<std::pair<size_t, size_t>> expected = {{0, 1},  {8, 8},  {16, 2}, {24, 8},
                                                             {32, 4}, {40, 8}, {48, 1}};
    size_t offset = 0, size = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
        CU_OK(cu.cuFuncGetParamInfo(module.function("mixed"), i, &offset, &size));
        CHECK(std::make_pair(offset, size) == expected[i]);
    }
    CU_CHECK(cu.cuFuncGetParamInfo(module.function("mixed"), expected.size(), &offset, &size),
             CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuFuncGetParamInfo(module.function("sum_large"), 0, &offset, &size));
    CHECK(size == 4000);
    CU_CHECK(cu.cuFuncGetParamInfo(module.function("nothing"), 0, &offset, &size), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("more than 48 KiB of dynamic shared memory must be asked for", "[function]") {
    Gpu gpu;
    Module module;
    CUfunction function = module.function("use_dynamic_shared");
    Memory out(sizeof(int));
    int limit = gpu.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    int usual = 48 << 10;
    CU_OK(launch_shaped(function, 1, 32, unsigned(usual), nullptr, out.address, usual / 4));
    CHECK(out.first<int>() == usual / 4 - 1);
    CU_CHECK(launch_shaped(function, 1, 32, unsigned(usual + 4), nullptr, out.address, 1), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, limit));
    CHECK(ask(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function) == limit);
    CU_OK(launch_shaped(function, 1, 32, unsigned(limit), nullptr, out.address, limit / 4));
    CHECK(out.first<int>() == limit / 4 - 1);
    CU_CHECK(cu.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, limit + 1),
             CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("attributes that only describe cannot be set", "[function]") {
    Gpu gpu;
    Module module;
    CU_CHECK(cu.cuFuncSetAttribute(module.function("store"), CU_FUNC_ATTRIBUTE_NUM_REGS, 10), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuFuncSetCacheConfig(module.function("store"), CU_FUNC_CACHE_PREFER_L1), CUDA_SUCCESS);
    for (int none : {-1, 4}) {
        auto cache = static_cast<CUfunc_cache>(none);
        auto width = static_cast<CUsharedconfig>(none);
        CU_CHECK(cu.cuFuncSetCacheConfig(module.function("store"), cache), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuFuncSetSharedMemConfig(module.function("store"), width), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuCtxSetCacheConfig(cache), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuCtxSetSharedMemConfig(width), CUDA_ERROR_INVALID_VALUE);
    }
}
