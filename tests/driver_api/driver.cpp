// Finds the functions of the driver under test.
#include "driver.hpp"

#include <dlfcn.h>

namespace driver_api {

Driver cu;

namespace {

std::string missing;

template <class Pointer>
void find(Function<Pointer>& function, const char* name) {
    function.name = name;
    function.pointer = reinterpret_cast<Pointer>(dlsym(cu.library, name));
    if (!function.pointer) missing += std::string(missing.empty() ? "" : " ") + name;
}

}  // namespace

// Twice, so that the name is what cuda.h's macros turn it into.
#define TNR_TEXT(name) #name
#define TNR_EXPANDED_TEXT(name) TNR_TEXT(name)

std::string load_driver(const char* path) {
    cu.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!cu.library) return dlerror();
#define TNR_FUNCTION(name) find(cu.name, TNR_EXPANDED_TEXT(name));
#include "functions.inc"
#undef TNR_FUNCTION
    find(cu.launch_kernel_per_thread, "cuLaunchKernel_ptsz");
    find(cu.stream_synchronize_per_thread, "cuStreamSynchronize_ptsz");
    find(cu.stream_query_per_thread, "cuStreamQuery_ptsz");
    find(cu.copy_to_device_async_per_thread, "cuMemcpyHtoDAsync_v2_ptsz");
    find(cu.copy_to_host_per_thread, "cuMemcpyDtoH_v2_ptds");
    find(cu.memset_per_thread, "cuMemsetD32Async_ptsz");
    find(cu.event_record_per_thread, "cuEventRecord_ptsz");
    find(cu.context_create, "cuCtxCreate_v2");
    return "";
}

std::string missing_functions() {
    return missing;
}

}  // namespace driver_api
