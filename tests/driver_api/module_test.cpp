// Modules: every form of image, bad images, functions and variables by name.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "gpu.hpp"

using namespace driver_api;

namespace {
const char* const broken =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry f() { no_such.instruction; }\n";

void check_works(CUmodule module) {
    CUfunction store = nullptr;
    CU_OK(cu.cuModuleGetFunction(&store, module, "store"));
    Memory out(sizeof(int));
    CU_OK(launch(store, nullptr, out.address, 1234));
    CHECK(out.first<int>() == 1234);
}

// NVIDIA's driver looks at a library's text when it is first used; others do at once.
void check_is_bad(CUlibrary library) {
    CUkernel kernel = nullptr;
    CU_CHECK(cu.cuLibraryGetKernel(&kernel, library, "f"), CUDA_ERROR_INVALID_PTX);
    CU_OK(cu.cuLibraryUnload(library));
}
}  // namespace

TEST_CASE("a module is loaded from every form of image", "[module]") {
    Gpu gpu;
    CUmodule module = nullptr;
    FatbinWrapper wrapper;
    SECTION("PTX text") {
        CU_OK(cu.cuModuleLoadData(&module, ptx_image().data));
    }
    SECTION("a fat binary with zstd") {
        CU_OK(cu.cuModuleLoadData(&module, fatbin_image().data));
    }
    SECTION("a fat binary with LZ4") {
        CU_OK(cu.cuModuleLoadData(&module, fatbin_lz4_image().data));
    }
    SECTION("a fat binary without compression") {
        CU_OK(cu.cuModuleLoadData(&module, fatbin_plain_image().data));
    }
    SECTION("the wrapper of a fat binary") {
        wrapper.data = fatbin_image().data;
        CU_OK(cu.cuModuleLoadData(&module, &wrapper));
    }
    SECTION("a fat binary through its own call") {
        wrapper.data = fatbin_image().data;
        CU_OK(cu.cuModuleLoadFatBinary(&module, &wrapper));
    }
    SECTION("with options") {
        char log[1000] = {}, errors[1000] = {};
        CUjit_option names[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER,
                                CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_MAX_REGISTERS};
        void* values[] = {log, reinterpret_cast<void*>(sizeof(log)), errors, reinterpret_cast<void*>(sizeof(errors)),
                          reinterpret_cast<void*>(size_t{64})};
        CU_OK(cu.cuModuleLoadDataEx(&module, ptx_image().data, 5, names, values));
    }
    REQUIRE(module != nullptr);
    check_works(module);
    CU_OK(cu.cuModuleUnload(module));
}

// The emulated GPU estimates 16 registers or more for any kernel.
TEST_CASE("code of any age is taken, from PTX 3.0 for compute capability 2.0 on", "[module]") {
    Gpu gpu;
    const std::string head =
        GENERATE(as<std::string>(), ".version 3.0\n.target sm_20\n", ".version 3.1\n.target sm_30\n",
                 ".version 4.0\n.target sm_35\n", ".version 6.3\n.target sm_70\n");
    const auto text = head + R"(.address_size 64
.entry twice(.param .u64 at) {
    .reg .u64 %a;
    .reg .u32 %v;
    ld.param.u64 %a, [at];
    ld.global.u32 %v, [%a];
    add.u32 %v, %v, %v;
    st.global.u32 [%a], %v;
    ret;
}
)";
    CUmodule module = nullptr;
    CUfunction twice = nullptr;
    Memory value(std::vector<int>{21});
    CU_OK(cu.cuModuleLoadData(&module, text.c_str()));
    CU_OK(cu.cuModuleGetFunction(&twice, module, "twice"));
    CU_OK(launch(twice, nullptr, value.address));
    CHECK(value.first<int>() == 42);
    CU_OK(cu.cuModuleUnload(module));
}

TEST_CASE("the compiler hears a program's options", "[module]") {
    Gpu gpu;
    CUjit_option names[] = {CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_MAX_REGISTERS};
    void* values[] = {reinterpret_cast<void*>(size_t{2}), reinterpret_cast<void*>(size_t{12})};
    const auto registers = [](CUfunction function) {
        int count = 0;
        CU_OK(cu.cuFuncGetAttribute(&count, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
        return count;
    };
    CUfunction store = nullptr;
    SECTION("for a module") {
        CUmodule module = nullptr;
        CU_OK(cu.cuModuleLoadDataEx(&module, ptx_image().data, 2, names, values));
        CU_OK(cu.cuModuleGetFunction(&store, module, "store"));
        CHECK(registers(store) <= 12);
        check_works(module);
        CU_OK(cu.cuModuleUnload(module));
    }
    SECTION("for a library") {
        CUlibrary library = nullptr;
        CUkernel kernel = nullptr;
        CU_OK(cu.cuLibraryLoadData(&library, ptx_image().data, names, values, 2, nullptr, nullptr, 0));
        CU_OK(cu.cuLibraryGetKernel(&kernel, library, "store"));
        CU_OK(cu.cuKernelGetFunction(&store, kernel));
        CHECK(registers(store) <= 12);
        CU_OK(cu.cuLibraryUnload(library));
    }
    CU_CHECK(cu.cuLibraryLoadData(nullptr, ptx_image().data, nullptr, nullptr, 1, nullptr, nullptr, 0),
             CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("the compiler's logs are written whatever becomes of the code", "[module]") {
    Gpu gpu;
    char errors[1000];
    std::memset(errors, 'x', sizeof errors);
    CUjit_option names[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {errors, reinterpret_cast<void*>(sizeof errors)};
    const auto written = [&] { return reinterpret_cast<size_t>(values[1]); };
    CUlibrary library = nullptr;
    CUmodule module = nullptr;
    SECTION("a library that is bad") {
        CUresult loaded = cu.cuLibraryLoadData(&library, broken, names, values, 2, nullptr, nullptr, 0);
        if (loaded == CUDA_SUCCESS) return check_is_bad(library);
        CU_CHECK(loaded, CUDA_ERROR_INVALID_PTX);
        CHECK(written() > 0);
        CHECK(std::string(errors).find("no_such") != std::string::npos);
    }
    SECTION("a module that is bad") {
        CU_CHECK(cu.cuModuleLoadDataEx(&module, broken, 2, names, values), CUDA_ERROR_INVALID_PTX);
        CHECK(written() > 0);
        CHECK(std::string(errors).find("no_such") != std::string::npos);
    }
    SECTION("a library that is good") {
        CU_OK(cu.cuLibraryLoadData(&library, ptx_image().data, names, values, 2, nullptr, nullptr, 0));
        CHECK(errors[0] == 0);
        CU_OK(cu.cuLibraryUnload(library));
    }
    SECTION("a module that is none") {
        CHECK(cu.cuModuleLoadDataEx(&module, "this is no module", 2, names, values) != CUDA_SUCCESS);
        CHECK(std::memchr(errors, 0, sizeof errors));
    }
    SECTION("a module with nothing for this GPU") {
        if (gpu.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) == 7) return;  // it would run
        CU_CHECK(cu.cuModuleLoadDataEx(&module, fatbin_sm75_image().data, 2, names, values),
                 CUDA_ERROR_NO_BINARY_FOR_GPU);
        CHECK(std::memchr(errors, 0, sizeof errors));
    }
}

FRESH_PROCESS_TEST_CASE("who wants the compiler's logs gets them at once however code is loaded", "[module]") {
    setenv("CUDA_MODULE_LOADING", "LAZY", 1);
    Gpu gpu;
    char errors[1000] = {};
    CUjit_option names[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {errors, reinterpret_cast<void*>(sizeof errors)};
    CUmodule module = nullptr;
    CU_CHECK(cu.cuModuleLoadDataEx(&module, broken, 2, names, values), CUDA_ERROR_INVALID_PTX);
    CHECK(std::string(errors).find("no_such") != std::string::npos);
    std::memset(errors, 0, sizeof errors);
    values[1] = reinterpret_cast<void*>(sizeof errors);
    CUlibrary library = nullptr;
    CUresult loaded = cu.cuLibraryLoadData(&library, broken, names, values, 2, nullptr, nullptr, 0);
    if (loaded == CUDA_SUCCESS) return check_is_bad(library);
    CU_CHECK(loaded, CUDA_ERROR_INVALID_PTX);
    CHECK(std::string(errors).find("no_such") != std::string::npos);
}

TEST_CASE("an image may be thrown away once the module is loaded", "[module]") {
    Gpu gpu;
    for (Image image : {ptx_image(), fatbin_image()}) {
        std::vector<unsigned char> copy(image.data, image.data + image.size + 1);
        CUmodule module = nullptr;
        CU_OK(cu.cuModuleLoadData(&module, copy.data()));
        std::fill(copy.begin(), copy.end(), 0xff);
        check_works(module);
        CU_OK(cu.cuModuleUnload(module));
    }
}

TEST_CASE("a module is loaded from a file", "[module]") {
    Gpu gpu;
    char path[] = "/tmp/driver_api_module.XXXXXX";
    int file = mkstemp(path);
    REQUIRE(file >= 0);
    REQUIRE(write(file, ptx_image().data, ptx_image().size) == ssize_t(ptx_image().size));
    close(file);
    CUmodule module = nullptr;
    CUresult loaded = cu.cuModuleLoad(&module, path);
    unlink(path);
    CU_OK(loaded);
    check_works(module);
    CU_OK(cu.cuModuleUnload(module));
    CU_CHECK(cu.cuModuleLoad(&module, path), CUDA_ERROR_FILE_NOT_FOUND);
    CU_CHECK_EITHER(cu.cuModuleLoad(&module, "/tmp"), CUDA_ERROR_FILE_NOT_FOUND, CUDA_ERROR_INVALID_IMAGE);
}

TEST_CASE("images that are none are refused", "[module]") {
    Gpu gpu;
    CUmodule module = nullptr;
    char errors[1000] = {};
    CUjit_option names[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {errors, reinterpret_cast<void*>(sizeof(errors))};
    CU_CHECK(cu.cuModuleLoadDataEx(&module, broken, 2, names, values), CUDA_ERROR_INVALID_PTX);
    CHECK(std::strlen(errors) > 0);
    CU_CHECK_EITHER(cu.cuModuleLoadData(&module, "this is no module"), CUDA_ERROR_INVALID_PTX,
                    CUDA_ERROR_INVALID_IMAGE);
    CU_CHECK(cu.cuModuleLoadData(&module, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuModuleLoadData(nullptr, ptx_image().data), CUDA_ERROR_INVALID_VALUE);
    Module still_works;
    check_works(still_works.handle);
}

TEST_CASE("machine code for another architecture alone is refused", "[module]") {
    Gpu gpu;
    if (gpu.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) == 7) return;  // it would run
    CUmodule module = nullptr;
    CU_CHECK(cu.cuModuleLoadData(&module, fatbin_sm75_image().data), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

TEST_CASE("functions and variables that do not exist are not found", "[module]") {
    Gpu gpu;
    Module module;
    CUfunction function = nullptr;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    CU_CHECK(cu.cuModuleGetFunction(&function, module.handle, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
    CU_CHECK(cu.cuModuleGetGlobal(&address, &bytes, module.handle, "no_such_variable"), CUDA_ERROR_NOT_FOUND);
    CU_CHECK(cu.cuModuleGetFunction(&function, module.handle, "counter"), CUDA_ERROR_NOT_FOUND);
    CU_CHECK(cu.cuModuleGetFunction(nullptr, module.handle, "store"), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuModuleGetFunction(&function, module.handle, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuModuleGetGlobal(&address, &bytes, module.handle, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("one name gives one function", "[module]") {
    Gpu gpu;
    Module module;
    CHECK(module.function("store") == module.function("store"));
    CHECK(module.function("store") != module.function("add"));
}

TEST_CASE("variables have their initial values, and kernels see what is written to them", "[module]") {
    Gpu gpu;
    Module module;
    CUdeviceptr counter = 0, table = 0, factors = 0, unset = 0;
    size_t bytes = 0;
    CU_OK(cu.cuModuleGetGlobal(&counter, &bytes, module.handle, "counter"));
    CHECK(bytes == sizeof(int));
    CU_OK(cu.cuModuleGetGlobal(&table, &bytes, module.handle, "table"));
    CHECK(bytes == 16 * sizeof(double));
    CU_OK(cu.cuModuleGetGlobal(&factors, nullptr, module.handle, "factors"));
    CU_OK(cu.cuModuleGetGlobal(nullptr, &bytes, module.handle, "factors"));
    CHECK(bytes == 4 * sizeof(int));
    CU_OK(cu.cuModuleGetGlobal(&unset, &bytes, module.handle, "unset_factors"));

    int value = 0;
    CU_OK(launch(module.function("bump_counter"), nullptr, 3));
    CU_OK(cu.cuMemcpyDtoH(&value, counter, sizeof(value)));
    CHECK(value == 10);

    std::vector<double> numbers(16, -1);
    CU_OK(cu.cuMemcpyDtoH(numbers.data(), table, 16 * sizeof(double)));
    CHECK(numbers == std::vector<double>(16, 0));
    std::vector<double> expected(16);
    for (int i = 0; i < 16; ++i) expected[size_t(i)] = (numbers[size_t(i)] = i) * 2.5;
    CU_OK(cu.cuMemcpyHtoD(table, numbers.data(), 16 * sizeof(double)));
    CU_OK(launch_shaped(module.function("scale_table"), 1, 16, 0, nullptr, 2.5));
    CU_OK(cu.cuMemcpyDtoH(numbers.data(), table, 16 * sizeof(double)));
    CHECK(numbers == expected);

    int constants[4] = {100, 200, 300, 400};
    CU_OK(cu.cuMemcpyHtoD(unset, constants, sizeof(constants)));
    Memory out(4 * sizeof(int));
    CU_OK(launch_shaped(module.function("apply_factors"), 1, 4, 0, nullptr, out.address));
    CHECK(out.read<int>(4) == std::vector<int>{102, 203, 305, 407});
}

TEST_CASE("a module loaded twice has its variables twice", "[module]") {
    Gpu gpu;
    Module first, second;
    CUdeviceptr one = 0, other = 0;
    CU_OK(cu.cuModuleGetGlobal(&one, nullptr, first.handle, "counter"));
    CU_OK(cu.cuModuleGetGlobal(&other, nullptr, second.handle, "counter"));
    CHECK(one != other);
    CU_OK(launch(first.function("bump_counter"), nullptr, 1));
    int value = 0;
    CU_OK(cu.cuMemcpyDtoH(&value, other, sizeof(value)));
    CHECK(value == 7);
}

TEST_CASE("a module lists its functions", "[module]") {
    Gpu gpu;
    Module module;
    unsigned count = 0;
    CU_OK(cu.cuModuleGetFunctionCount(&count, module.handle));
    CHECK(count == 32);  // as many as kernels.cu has
    std::vector<CUfunction> functions(count);
    CU_OK(cu.cuModuleEnumerateFunctions(functions.data(), count, module.handle));
    bool found = false;
    for (CUfunction function : functions) {
        const char* name = nullptr;
        CU_OK(cu.cuFuncGetName(&name, function));
        found = found || name == std::string("take_parcel");
    }
    CHECK(found);
}

TEST_CASE("modules can be loaded and unloaded many times", "[module]") {
    Gpu gpu;
    for (int i = 0; i < 20; ++i) {
        Module module(fatbin_image().data);
        check_works(module.handle);
    }
}

TEST_CASE("the loading mode is one of the two there are", "[module]") {
    CU_OK(cu.cuInit(0));
    CUmoduleLoadingMode mode{};
    CU_OK(cu.cuModuleGetLoadingMode(&mode));
    CHECK((mode == CU_MODULE_EAGER_LOADING || mode == CU_MODULE_LAZY_LOADING));
}
