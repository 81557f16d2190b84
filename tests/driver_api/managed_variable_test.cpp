// Managed variables of modules and libraries: the program finds them by name and uses them like managed memory.
#include <sys/mman.h>

#include <cstring>

#include "gpu.hpp"

using namespace driver_api;

namespace {

const char* managed_number = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 number = 41;
.visible .entry add_one() { .reg .u32 %r; ld.global.u32 %r, [number]; add.u32 %r, %r, 1; st.global.u32 [number], %r; ret; }
)";
const char* plain_number = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 number = 12;
)";

CUmodule load_text(const char* text) {
    CUmodule module = nullptr;
    CU_OK(cu.cuModuleLoadData(&module, text));
    return module;
}

CUdeviceptr number_of(CUmodule module) {
    CUdeviceptr address = 0;
    size_t size = 0;
    CU_OK(cu.cuModuleGetGlobal(&address, &size, module, "number"));
    CHECK(size == sizeof(int));
    return address;
}

void add_one_to(CUmodule module) {
    CUfunction add_one = nullptr;
    CU_OK(cu.cuModuleGetFunction(&add_one, module, "add_one"));
    CU_OK(cu.cuLaunchKernel(add_one, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    CU_OK(cu.cuCtxSynchronize());
}

}  // namespace

TEST_CASE("a module's managed variable is found by name where the program can use it", "[managed]") {
    Gpu gpu;
    CUmodule module = load_text(managed_number);
    auto* number = reinterpret_cast<volatile int*>(number_of(module));
    CHECK(*number == 41);
    for (int value : {42, 8}) {
        add_one_to(module);
        CHECK(*number == value);
        *number = 7;
    }
    CU_OK(cu.cuModuleUnload(module));
}

TEST_CASE("each of a module's managed variables may be attached to a stream", "[managed]") {
    Gpu gpu;
    CUmodule module = load_text(R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 other = 1;
.visible .global .attribute(.managed) .align 4 .u32 number = 41;
.visible .entry add_one() { .reg .u32 %r; ld.global.u32 %r, [number]; add.u32 %r, %r, 1; st.global.u32 [number], %r; ret; }
)");
    CUdeviceptr other = 0, number = number_of(module);
    size_t size = 0;
    CU_OK(cu.cuModuleGetGlobal(&other, &size, module, "other"));
    Stream stream;
    for (CUdeviceptr variable : {other, number})
        for (auto flags : {CU_MEM_ATTACH_HOST, CU_MEM_ATTACH_SINGLE, CU_MEM_ATTACH_GLOBAL})
            for (size_t length : {size_t{0}, sizeof(int)}) {
                CU_OK(cu.cuStreamAttachMemAsync(stream, variable, length, flags));
                CU_CHECK(cu.cuStreamAttachMemAsync(stream, variable, length, 7), CUDA_ERROR_INVALID_VALUE);
            }
    CU_OK(cu.cuStreamAttachMemAsync(stream, other, 0, CU_MEM_ATTACH_HOST));
    CU_OK(cu.cuStreamSynchronize(stream));
    add_one_to(module);
    CHECK(*reinterpret_cast<volatile int*>(number) == 42);  // its neighbour is not attached with it
    CU_OK(cu.cuModuleUnload(module));
}

// Drivers use an address again and again.
TEST_CASE("a managed variable may lie where another module had one", "[managed]") {
    Gpu gpu;
    for (int round = 0; round < 6; ++round) {
        CUmodule plain = load_text(plain_number);
        CHECK(number_of(plain) != 0);
        CUmodule managed = load_text(managed_number), second = load_text(managed_number);
        CU_OK(cu.cuModuleUnload(plain));
        auto* number = reinterpret_cast<volatile int*>(number_of(managed));
        REQUIRE(number);
        add_one_to(managed);
        CHECK(*number == 42);
        CHECK(*reinterpret_cast<volatile int*>(number_of(second)) == 41);
        CU_OK(cu.cuModuleUnload(managed));
        CU_OK(cu.cuModuleUnload(second));
    }
}

FRESH_PROCESS_TEST_CASE("managed variables go where the program has nothing", "[managed]") {
    Gpu gpu;
    CUmodule first = load_text(managed_number);
    constexpr size_t bytes = 3 * 4096;
    // Where the next ones would be. In the driver's own process nothing else can be there.
    auto* beside = reinterpret_cast<void*>(number_of(first) / 4096 * 4096 + 4096);
    void* taken = mmap(beside, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);  // as a hint
    REQUIRE(taken != MAP_FAILED);
    std::memset(taken, 5, bytes);
    std::vector<CUmodule> modules;
    for (int i = 0; i < 4; ++i) {
        modules.push_back(load_text(managed_number));
        auto* number = reinterpret_cast<volatile int*>(number_of(modules.back()));
        REQUIRE(number);
        *number = 10 + i;
    }
    for (int i = 0; i < 4; ++i) {
        add_one_to(modules[i]);
        CHECK(*reinterpret_cast<volatile int*>(number_of(modules[i])) == 11 + i);
        CU_OK(cu.cuModuleUnload(modules[i]));
    }
    CHECK(static_cast<char*>(taken)[bytes / 2] == 5);
    munmap(taken, bytes);
    CU_OK(cu.cuModuleUnload(first));
}

FRESH_PROCESS_TEST_CASE("a library's managed variable is the program's again when its context was reset", "[managed]") {
    CU_OK(cu.cuInit(0));
    CUlibrary library = nullptr;
    CU_OK(cu.cuLibraryLoadData(&library, managed_number, nullptr, nullptr, 0, nullptr, nullptr, 0));
    for (int round = 0; round < 3; ++round) {
        Gpu gpu;
        CUmodule module = nullptr;
        CU_OK(cu.cuLibraryGetModule(&module, library));
        auto* number = reinterpret_cast<volatile int*>(number_of(module));
        REQUIRE(number);
        *number = 50 + round;
        add_one_to(module);
        CHECK(*number == 51 + round);
        CU_OK(cu.cuDevicePrimaryCtxReset(0));
    }
}

TEST_CASE("a library's managed variable is one for all devices", "[managed][devices]") {
    Gpu first{0};
    int count = 0;
    CU_OK(cu.cuDeviceGetCount(&count));
    if (count < 2) {
        WARN("only one device: nothing tested");
        return;
    }
    Gpu second{1};
    CUlibrary library = nullptr;
    CUkernel add_one = nullptr;
    CU_OK(cu.cuLibraryLoadData(&library, managed_number, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CU_OK(cu.cuLibraryGetKernel(&add_one, library, "add_one"));
    int value = 41;
    for (int round = 0; round < 3; ++round)
        for (auto* gpu : {&first, &second}) {
            CU_OK(cu.cuCtxSetCurrent(gpu->context));
            CUdeviceptr address = 0;
            size_t size = 0;
            CU_OK(cu.cuLibraryGetManaged(&address, &size, library, "number"));
            auto* number = reinterpret_cast<volatile int*>(address);
            CHECK(*number == value);
            CU_OK(cu.cuLaunchKernel(reinterpret_cast<CUfunction>(add_one), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr,
                                    nullptr));
            CU_OK(cu.cuCtxSynchronize());
            CHECK(*number == value + 1);
            *number = value += 2;
        }
    CU_OK(cu.cuLibraryUnload(library));
    CU_OK(cu.cuCtxSetCurrent(first.context));
}
