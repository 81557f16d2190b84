// cuGetProcAddress: our own exported symbols by base name, CUDA version and default-stream flavour.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "gpu_server/emulated_gpu/driver/state.hpp"

using namespace tnr::emulated;

namespace {

// Where several ABIs of a name exist: the CUDA version from which each is what the name means, newest first.
// A name that is not here means the one symbol that we export for it.
struct Abi {
    const char* name;
    int version;
    const char* symbol;
};
constexpr Abi abis[] = {
    {"cuCtxCreate", 12050, "cuCtxCreate_v4"},
    {"cuCtxCreate", 11040, "cuCtxCreate_v3"},
    {"cuCtxCreate", 3020, "cuCtxCreate_v2"},
    {"cuCtxGetDevice", 13000, "cuCtxGetDevice_v2"},
    {"cuCtxGetDevice", 2000, "cuCtxGetDevice"},
    {"cuCtxSynchronize", 13000, "cuCtxSynchronize_v2"},
    {"cuCtxSynchronize", 2000, "cuCtxSynchronize"},
    {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
    {"cuDeviceGetUuid", 9020, "cuDeviceGetUuid"},
    {"cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"},
    {"cuEventElapsedTime", 2000, "cuEventElapsedTime"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
    {"cuGetProcAddress", 11030, "cuGetProcAddress"},
    {"cuGraphAddKernelNode", 12000, "cuGraphAddKernelNode_v2"},
    {"cuGraphAddKernelNode", 10000, "cuGraphAddKernelNode"},
    {"cuGraphAddNode", 12030, "cuGraphAddNode_v2"},
    {"cuGraphAddNode", 12020, "cuGraphAddNode"},
    {"cuGraphAddDependencies", 12030, "cuGraphAddDependencies_v2"},
    {"cuGraphAddDependencies", 10000, "cuGraphAddDependencies"},
    {"cuGraphExecKernelNodeSetParams", 12000, "cuGraphExecKernelNodeSetParams_v2"},
    {"cuGraphExecKernelNodeSetParams", 10010, "cuGraphExecKernelNodeSetParams"},
    {"cuGraphExecUpdate", 12000, "cuGraphExecUpdate_v2"},
    {"cuGraphExecUpdate", 10020, "cuGraphExecUpdate"},
    {"cuGraphGetEdges", 12030, "cuGraphGetEdges_v2"},
    {"cuGraphGetEdges", 10000, "cuGraphGetEdges"},
    {"cuGraphInstantiate", 11000, "cuGraphInstantiate_v2"},
    {"cuGraphInstantiate", 10000, "cuGraphInstantiate"},
    {"cuGraphKernelNodeGetParams", 12000, "cuGraphKernelNodeGetParams_v2"},
    {"cuGraphKernelNodeGetParams", 10000, "cuGraphKernelNodeGetParams"},
    {"cuGraphKernelNodeSetParams", 12000, "cuGraphKernelNodeSetParams_v2"},
    {"cuGraphKernelNodeSetParams", 10000, "cuGraphKernelNodeSetParams"},
    {"cuGraphNodeGetDependencies", 12030, "cuGraphNodeGetDependencies_v2"},
    {"cuGraphNodeGetDependencies", 10000, "cuGraphNodeGetDependencies"},
    {"cuGraphNodeGetDependentNodes", 12030, "cuGraphNodeGetDependentNodes_v2"},
    {"cuGraphNodeGetDependentNodes", 10000, "cuGraphNodeGetDependentNodes"},
    {"cuGraphRemoveDependencies", 12030, "cuGraphRemoveDependencies_v2"},
    {"cuGraphRemoveDependencies", 10000, "cuGraphRemoveDependencies"},
    {"cuMemAdvise", 12020, "cuMemAdvise_v2"},
    {"cuMemAdvise", 8000, "cuMemAdvise"},
    {"cuMemPrefetchAsync", 12020, "cuMemPrefetchAsync_v2"},
    {"cuMemPrefetchAsync", 8000, "cuMemPrefetchAsync"},
    {"cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"},
    {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
    {"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"},
    {"cuStreamGetCaptureInfo", 10010, "cuStreamGetCaptureInfo"},
    {"cuStreamUpdateCaptureDependencies", 12030, "cuStreamUpdateCaptureDependencies_v2"},
    {"cuStreamUpdateCaptureDependencies", 11030, "cuStreamUpdateCaptureDependencies"},
};

// The versions that cudaTypedefs.h has of each name, oldest first: read from it by the build.
struct Introduced {
    const char* name;
    int first, last;
};
constexpr Introduced introduced[] = {
#include "introduced.inc"
};

// Does the name exist for programs of this CUDA version? Of names that once had 32-bit sizes we have only
// what replaced them.
bool exists_in(const std::string& name, int version, bool has_first_form) {
    for (const Introduced& entry : introduced)
        if (name == entry.name) return version >= (has_first_form ? entry.first : entry.last);
    return true;
}

// Only this library's symbols, whatever else the process has loaded under the same names.
void* own_symbol(const std::string& name) {
    static void* const self = [] {
        Dl_info info;
        if (!dladdr(reinterpret_cast<void*>(&own_symbol), &info)) return static_cast<void*>(nullptr);
        return dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
    }();
    return self ? dlsym(self, name.c_str()) : nullptr;
}

void* flavour(const std::string& symbol, bool per_thread_default) {
    if (per_thread_default)
        for (const char* suffix : {"_ptsz", "_ptds"})
            if (void* found = own_symbol(symbol + suffix)) return found;
    return own_symbol(symbol);
}

void* resolve(const std::string& name, int version, bool per_thread_default, CUdriverProcAddressQueryResult& status) {
    bool too_old = false;
    for (const Abi& abi : abis) {
        if (name != abi.name) continue;
        too_old = true;
        void* found = abi.version <= version ? flavour(abi.symbol, per_thread_default) : nullptr;
        if (found) return found;
    }
    status = too_old ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (too_old) return nullptr;
    void* found = nullptr;
    for (const char* suffix : {"_v3", "_v2", ""})
        if (!found) found = flavour(name + suffix, per_thread_default);
    if (!found || exists_in(name, version, own_symbol(name) != nullptr)) return found;
    status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    return nullptr;
}

constexpr cuuint64_t known_flags = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

}  // namespace

CUresult cuGetProcAddress_v2(const char* name, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
    return guarded([&]() -> CUresult {
        if (!name || !function || version > driver_version || (flags & ~known_flags) || flags == known_flags)
            return CUDA_ERROR_INVALID_VALUE;
        CUdriverProcAddressQueryResult ignored, &result = status ? *status : ignored;
        result = CU_GET_PROC_ADDRESS_SUCCESS;
        if (*name == 0) {  // the runtime's first question: the address of this very function
            *function = own_symbol("cuGetProcAddress_v2");
            return CUDA_SUCCESS;
        }
        *function = nullptr;
        if (strncmp(name, "cu", 2) == 0)
            *function = resolve(name, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, result);
        else
            result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        if (*function) result = CU_GET_PROC_ADDRESS_SUCCESS;
        // cuda.h promises success here, but every driver so far has said CUDA_ERROR_NOT_FOUND.
        return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
    });
}

CUresult cuGetProcAddress(const char* name, void** function, int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

// The tables of NVIDIA's own runtime libraries are undocumented and belong to the client's library.
CUresult cuGetExportTable(const void** table, const CUuuid*) {
    if (table) *table = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
}
