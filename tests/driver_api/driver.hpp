// The driver under test as a table of functions, found in whatever libcuda TNR_TEST_DRIVER names. Nothing here links
// a libcuda, so one binary tests the emulated driver, our client library and NVIDIA's own.
//
// `cu.cuMemAlloc(...)` calls what cuda.h means by cuMemAlloc today (cuMemAlloc_v2): the header's own renaming applies
// to the member names as well as to the calls.
#pragma once

#include <cuda.h>

#include <stdexcept>
#include <string>

namespace driver_api {

// A function of the driver. Calling one that the library lacks fails the test by name instead of crashing the run.
template <class Pointer>
class Function;

template <class... Parameters>
class Function<CUresult (*)(Parameters...)> {
public:
    CUresult operator()(Parameters... parameters) const {
        if (!pointer) throw std::runtime_error(std::string(name) + " is not exported by the driver under test");
        return pointer(parameters...);
    }
    CUresult (*pointer)(Parameters...) = nullptr;
    const char* name = "";
};

struct Driver {
#define TNR_FUNCTION(name) Function<decltype(&::name)> name;  // NOLINT(bugprone-macro-parentheses): a declaration
#include "functions.inc"
#undef TNR_FUNCTION

    // The forms that a program compiled for per-thread default streams calls; cuda.h hides their declarations.
    Function<decltype(&::cuLaunchKernel)> launch_kernel_per_thread;
    Function<decltype(&::cuStreamSynchronize)> stream_synchronize_per_thread;
    Function<decltype(&::cuStreamQuery)> stream_query_per_thread;
    Function<decltype(&::cuMemcpyHtoDAsync)> copy_to_device_async_per_thread;
    Function<decltype(&::cuMemcpyDtoH)> copy_to_host_per_thread;
    Function<decltype(&::cuMemsetD32Async)> memset_per_thread;
    Function<decltype(&::cuEventRecord)> event_record_per_thread;
    // cuCtxCreate's form of CUDA 3.2 to 11.3 is the one that every driver of today exports.
    Function<CUresult (*)(CUcontext*, unsigned, CUdevice)> context_create;

    void* library = nullptr;
};

extern Driver cu;

// Fills `cu`. Returns what went wrong, or an empty string.
std::string load_driver(const char* path);

// The names in the table that the library does not export.
std::string missing_functions();

}  // namespace driver_api
