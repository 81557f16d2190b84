// Libraries and kernels: how the CUDA 12 and 13 runtime loads code, independent of any context.
#include "gpu.hpp"

using namespace driver_api;

namespace {
class Library {
public:
    explicit Library(const void* image) {
        CU_OK(cu.cuLibraryLoadData(&handle, image, nullptr, nullptr, 0, nullptr, nullptr, 0));
    }
    ~Library() { cu.cuLibraryUnload(handle); }
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;
    CUkernel kernel(const char* name) const {
        CUkernel kernel = nullptr;
        CU_OK(cu.cuLibraryGetKernel(&kernel, handle, name));
        return kernel;
    }
    CUfunction as_function(const char* name) const { return reinterpret_cast<CUfunction>(kernel(name)); }
    CUlibrary handle = nullptr;
};
}  // namespace

TEST_CASE("a library's kernel is launched as if it were a function", "[library]") {
    Gpu gpu;
    FatbinWrapper wrapper;
    wrapper.data = fatbin_image().data;
    for (const void* image : {static_cast<const void*>(ptx_image().data), static_cast<const void*>(&wrapper),
                              static_cast<const void*>(fatbin_lz4_image().data)}) {
        Library library(image);
        Memory out(sizeof(int));
        CU_OK(launch(library.as_function("store"), nullptr, out.address, 55));
        CHECK(out.first<int>() == 55);
    }
}

TEST_CASE("a library is loaded with the runtime's own option", "[library]") {
    Gpu gpu;
    FatbinWrapper wrapper;
    wrapper.data = fatbin_image().data;
    CUlibraryOption options[] = {CU_LIBRARY_BINARY_IS_PRESERVED};
    void* values[] = {reinterpret_cast<void*>(size_t{1})};
    CUlibrary library = nullptr;
    CUkernel kernel = nullptr;
    CU_OK(cu.cuLibraryLoadData(&library, &wrapper, nullptr, nullptr, 0, options, values, 1));
    CU_OK(cu.cuLibraryGetKernel(&kernel, library, "store"));
    Memory out(sizeof(int));
    CU_OK(launch(reinterpret_cast<CUfunction>(kernel), nullptr, out.address, 56));
    CHECK(out.first<int>() == 56);
    CU_OK(cu.cuLibraryUnload(library));
}

TEST_CASE("a library needs no context to be loaded", "[library]") {
    CU_OK(cu.cuInit(0));
    CUlibrary library = nullptr;
    CU_OK(cu.cuLibraryLoadData(&library, ptx_image().data, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUkernel kernel = nullptr;
    CU_OK(cu.cuLibraryGetKernel(&kernel, library, "store"));
    {
        Gpu gpu;
        Memory out(sizeof(int));
        CU_OK(launch(reinterpret_cast<CUfunction>(kernel), nullptr, out.address, 57));
        CHECK(out.first<int>() == 57);
    }
    CU_OK(cu.cuLibraryUnload(library));
}

TEST_CASE("one kernel runs in several contexts, each with variables of its own", "[library]") {
    Gpu gpu;
    Library library(ptx_image().data);
    CUfunction bump = library.as_function("bump_counter");
    auto counter_after = [&](int amount) {
        CU_OK(launch(bump, nullptr, amount));
        CUdeviceptr address = 0;
        size_t bytes = 0;
        int value = 0;
        CU_OK(cu.cuLibraryGetGlobal(&address, &bytes, library.handle, "counter"));
        CHECK(bytes == sizeof(int));
        CU_OK(cu.cuMemcpyDtoH(&value, address, sizeof(value)));
        return value;
    };
    CHECK(counter_after(1) == 8);
    CUcontext other = nullptr;
    CU_OK(cu.context_create(&other, 0, gpu.device));
    CHECK(counter_after(10) == 17);
    CU_OK(cu.cuCtxDestroy(other));
    CHECK(counter_after(1) == 9);
}

TEST_CASE("kernels know their name, parameters and attributes", "[library]") {
    Gpu gpu;
    Library library(fatbin_image().data);
    const char* name = nullptr;
    CU_OK(cu.cuKernelGetName(&name, library.kernel("mixed")));
    CHECK(name == std::string("mixed"));
    size_t offset = 0, size = 0;
    CU_OK(cu.cuKernelGetParamInfo(library.kernel("mixed"), 3, &offset, &size));
    CHECK(offset == 24);
    CHECK(size == 8);
    CU_CHECK(cu.cuKernelGetParamInfo(library.kernel("mixed"), 7, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    int value = 0;
    CU_OK(cu.cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, library.kernel("at_most_64_threads"),
                                  0));
    CHECK(value == 64);
    for (int which = 0; which <= CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE; ++which)
        CU_CHECK(cu.cuKernelGetAttribute(&value, static_cast<CUfunction_attribute>(which), library.kernel("store"), 0),
                 CUDA_SUCCESS);
}

TEST_CASE("a kernel's shared memory limit is set per device", "[library]") {
    Gpu gpu;
    Library library(ptx_image().data);
    CUkernel kernel = library.kernel("use_dynamic_shared");
    int limit = gpu.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), value = 0;
    CU_OK(cu.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, limit, kernel, gpu.device));
    CU_OK(cu.cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, gpu.device));
    CHECK(value == limit);
    Memory out(sizeof(int));
    CU_OK(launch_shaped(reinterpret_cast<CUfunction>(kernel), 1, 32, unsigned(limit), nullptr, out.address, limit / 4));
    CHECK(out.first<int>() == limit / 4 - 1);
}

TEST_CASE("a kernel gives the current context's function, and a library its module", "[library]") {
    Gpu gpu;
    Library library(ptx_image().data);
    CUfunction function = nullptr, same = nullptr;
    CUmodule module = nullptr;
    CU_OK(cu.cuKernelGetFunction(&function, library.kernel("store")));
    CU_OK(cu.cuLibraryGetModule(&module, library.handle));
    CU_OK(cu.cuModuleGetFunction(&same, module, "store"));
    CHECK(function == same);
    Memory out(sizeof(int));
    CU_OK(launch(function, nullptr, out.address, 58));
    CHECK(out.first<int>() == 58);
}

TEST_CASE("a library lists its kernels", "[library]") {
    Gpu gpu;
    Library library(fatbin_image().data);
    unsigned count = 0;
    CU_OK(cu.cuLibraryGetKernelCount(&count, library.handle));
    CHECK(count == 32);  // as many as kernels.cu has
    std::vector<CUkernel> kernels(count);
    CU_OK(cu.cuLibraryEnumerateKernels(kernels.data(), count, library.handle));
    CHECK(std::count(kernels.begin(), kernels.end(), library.kernel("store")) == 1);
}

TEST_CASE("what a library lacks is not found, and what is no library is refused", "[library]") {
    Gpu gpu;
    Library library(ptx_image().data);
    CUkernel kernel = nullptr;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    CU_CHECK(cu.cuLibraryGetKernel(&kernel, library.handle, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
    CU_CHECK(cu.cuLibraryGetGlobal(&address, &bytes, library.handle, "no_such_variable"), CUDA_ERROR_NOT_FOUND);
    CU_CHECK(cu.cuLibraryGetKernel(nullptr, library.handle, "store"), CUDA_ERROR_INVALID_VALUE);
    CUlibrary refused = nullptr;
    CU_CHECK(cu.cuLibraryLoadData(&refused, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0),
             CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuLibraryLoadFromFile(&refused, "/nonexistent/file", nullptr, nullptr, 0, nullptr, nullptr, 0),
             CUDA_ERROR_FILE_NOT_FOUND);
}

FRESH_PROCESS_TEST_CASE("a library whose variables find no room is loaded once there is some", "[library][full]") {
    setenv("CUDA_MODULE_LOADING", "LAZY", 1);
    Gpu gpu;
    size_t free_bytes = 0, total = 0;
    CU_OK(cu.cuMemGetInfo(&free_bytes, &total));
    const std::string code = R"(.version 6.0
.target sm_50
.address_size 64
.global .align 4 .b8 table[)" +
                             std::to_string(total / 8) + R"(];
.visible .entry first() {
    .reg .b32 %r;
    mov.u32 %r, 1;
    st.global.u32 [table], %r;
    ret;
})";
    std::vector<CUdeviceptr> hogs;
    for (CUdeviceptr hog = 0; cu.cuMemAlloc(&hog, total / 16) == CUDA_SUCCESS;) hogs.push_back(hog);
    auto run = [](const Library& library) {  // whichever call loads it
        CUkernel kernel = nullptr;
        if (auto result = cu.cuLibraryGetKernel(&kernel, library.handle, "first"); result != CUDA_SUCCESS)
            return result;
        return launch(reinterpret_cast<CUfunction>(kernel), nullptr);
    };
    {
        Library never_loaded(code.c_str());
        CU_CHECK(run(never_loaded), CUDA_ERROR_OUT_OF_MEMORY);
    }
    Library library(code.c_str());
    CU_CHECK(run(library), CUDA_ERROR_OUT_OF_MEMORY);
    for (auto hog : hogs) CU_OK(cu.cuMemFree(hog));
    CU_OK(run(library));
    CU_OK(cu.cuCtxSynchronize());
}
