// Variables of code that a client loads: they are in the GPU's memory, and charged like it. Runs as grants_test.cpp does.
#include <algorithm>
#include <string>
#include <vector>

#include "raw_records.hpp"

using namespace tnr;
using namespace tnr::test;

namespace {

std::string code_with(const std::string& variable) {
    return ".version 7.0\n.target sm_80\n.address_size 64\n.visible .global .align 16 .b8 big[" + variable +
           "];\n.visible .const .align 4 .b8 small[64];\n"
           ".visible .entry nothing() {\n ret;\n}\n";
}

// Loads until it is refused; beyond `most` it does not go on.
std::vector<CUmodule> load_all(const std::string& code, size_t most) {
    std::vector<CUmodule> modules;
    CUresult result = CUDA_SUCCESS;
    while (modules.size() <= most) {
        CUmodule module = nullptr;
        result = cuModuleLoadData(&module, code.c_str());
        if (result != CUDA_SUCCESS) break;
        modules.push_back(module);
    }
    CHECK(result == CUDA_ERROR_OUT_OF_MEMORY);
    return modules;
}

void unload_all(const std::vector<CUmodule>& modules) {
    for (auto module : modules) REQUIRE(cuModuleUnload(module) == CUDA_SUCCESS);
}

}  // namespace

TEST_CASE("the variables of code are charged when it is loaded, whether it is used or not", "[code]") {
    Held held;
    const uint64_t most = gpu_bytes - reserve_bytes, free_before = free_bytes();
    const auto code = code_with("100 * 1024 * 1024");
    SECTION("as many as there is room for") {
        auto modules = load_all(code, 100);
        CHECK(modules.size() >= 18);
        CHECK(modules.size() <= most / (100 * mib));
        CHECK(free_bytes() + modules.size() * 100 * mib <= gpu_bytes);
        CUdeviceptr memory = 0;
        CHECK(cuMemAlloc_v2(&memory, 200 * mib) == CUDA_ERROR_OUT_OF_MEMORY);
        unload_all(modules);
        CHECK(free_bytes() + 8 * mib >= free_before);
        REQUIRE(cuMemAlloc_v2(&memory, 1800 * mib) == CUDA_SUCCESS);
        CHECK(load_all(code, 100).size() <= 1);
        REQUIRE(cuMemFree_v2(memory) == CUDA_SUCCESS);
    }
    SECTION("as often as they are refused") {
        for (auto size : {"4294967296", "1 << 40", "0xffffffffffff", "(1 << 20) * (1 << 30)"}) {
            CAPTURE(size);
            CUmodule module = nullptr;
            auto result = cuModuleLoadData(&module, code_with(size).c_str());
            CHECK(result != CUDA_SUCCESS);
        }
        CHECK(free_bytes() + 8 * mib >= free_before);
    }
    SECTION("small ones together") {
        auto modules = load_all(code_with("1048576"), 3000);
        CHECK(modules.size() >= 1500);
        CHECK(modules.size() <= most / mib);
        unload_all(modules);
    }
    SECTION("for each context") {
        CUmodule module = nullptr;
        REQUIRE(cuModuleLoadData(&module, code_with("700 * 1024 * 1024").c_str()) == CUDA_SUCCESS);
        CHECK(ask(wire::op_cuCtxCreate_v4, uint32_t{0}, uint64_t{7001}, uint32_t{0}) == CUDA_SUCCESS);
        CHECK(ask(wire::op_cuCtxCreate_v4, uint32_t{0}, uint64_t{7002}, uint32_t{0}) == CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(ask(wire::op_cuCtxDestroy_v2, uint64_t{7001}) == CUDA_SUCCESS);
        CHECK(ask(wire::op_cuCtxCreate_v4, uint32_t{0}, uint64_t{7003}, uint32_t{0}) == CUDA_SUCCESS);
    }
}

TEST_CASE("loading code takes what a program was granted and does not use any more", "[idle]") {
    Held held;
    CUdeviceptr all = 0;
    REQUIRE(cuMemAlloc_v2(&all, gpu_bytes - reserve_bytes - 64 * mib) == CUDA_SUCCESS);
    CUmodule module = nullptr;
    CHECK(cuModuleLoadData(&module, code_with("1073741824").c_str()) == CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE(cuMemFree_v2(all) == CUDA_SUCCESS);
    REQUIRE(cuModuleLoadData(&module, code_with("1073741824").c_str()) == CUDA_SUCCESS);
    CUdeviceptr big = 0;
    size_t bytes = 0;
    CHECK(cuModuleGetGlobal_v2(&big, &bytes, module, "big") == CUDA_SUCCESS);
    CHECK(bytes == uint64_t{1} << 30);
    CHECK(free_bytes() <= uint64_t{1} << 30);
    REQUIRE(cuModuleUnload(module) == CUDA_SUCCESS);
}
