// What cases prepare with: see cases.hpp.
#include "tests/differential/cases.hpp"

namespace differential {

void* library = nullptr;

const char* const image = R"(.version 7.0
.target sm_75
.address_size 64
.visible .global .align 16 .b8 word[16];
.visible .entry nothing() { ret; }
.visible .entry limited() .maxntid 64, 1, 1 { ret; }
.visible .entry store(.param .u64 address, .param .u32 value)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [address];
    ld.param.u32 %r1, [value];
    cvta.to.global.u64 %rd2, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}
.visible .entry still(.param .u32 value)
{
    .reg .b32 %r<2>;
    .shared .align 16 .b8 block[4096];
    ld.param.u32 %r1, [value];
    st.shared.u32 [block], %r1;
    ret;
}
)";

void need(CUresult code, const char* what) {
    if (code != CUDA_SUCCESS) throw Unprepared{"unprepared: " + std::string(what) + " " + std::to_string(code)};
}

CUcontext primary() {
    static CUcontext context = [] {
        CUcontext made = nullptr;
        NEED(cuInit, 0);
        NEED(cuDevicePrimaryCtxRetain, &made, 0);
        return made;
    }();
    NEED(cuCtxSetCurrent, context);
    return context;
}

CUdeviceptr memory(size_t bytes) {
    CUdeviceptr address = 0;
    NEED(cuMemAlloc, &address, bytes);
    return address;
}

void* pinned(size_t bytes) {
    void* address = nullptr;
    NEED(cuMemHostAlloc, &address, bytes, 0);
    return address;
}

CUstream stream(unsigned flags) {
    CUstream made = nullptr;
    NEED(cuStreamCreate, &made, flags);
    return made;
}

CUstream destroyed_stream() {
    auto made = stream();
    NEED(cuStreamDestroy, made);
    return made;
}

CUevent event(unsigned flags) {
    CUevent made = nullptr;
    NEED(cuEventCreate, &made, flags);
    return made;
}

CUevent destroyed_event() {
    auto made = event();
    NEED(cuEventDestroy, made);
    return made;
}

CUmodule module() {
    static CUmodule made = [] {
        CUmodule loaded = nullptr;
        NEED(cuModuleLoadData, &loaded, image);
        return loaded;
    }();
    return made;
}

CUfunction function(const char* name) {
    CUfunction found = nullptr;
    NEED(cuModuleGetFunction, &found, module(), name);
    return found;
}

CUfunction own_function() {
    CUmodule loaded = nullptr;
    CUfunction found = nullptr;
    NEED(cuModuleLoadData, &loaded, image);
    NEED(cuModuleGetFunction, &found, loaded, "nothing");
    return found;
}

CUlibrary code_library() {
    static CUlibrary made = [] {
        CUlibrary loaded = nullptr;
        NEED(cuLibraryLoadData, &loaded, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
        return loaded;
    }();
    return made;
}

CUkernel kernel(const char* name) {
    CUkernel found = nullptr;
    NEED(cuLibraryGetKernel, &found, code_library(), name);
    return found;
}

void second_device() {
    int count = 0;
    NEED(cuDeviceGetCount, &count);
    if (count < 2) throw Unprepared{"skipped: one device"};
}

std::vector<Case> all_cases() {
    std::vector<Case> cases;
    for (auto add : {add_call_cases, add_stream_cases, add_null_cases, add_memory_cases, add_host_cases, add_pool_cases,
                     add_context_cases, add_code_cases, add_launch_cases})
        add(cases);
    return cases;
}

}  // namespace differential
