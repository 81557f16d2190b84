// The state of the process, and the frame that every exported function runs in.
//
// Ownership: Driver owns devices and, through the registry, every object that has a handle. Nothing of it
// is ever destroyed: programs call the driver from exit handlers that run after our static destructors
// would have, and our threads may still be at work then.
// Locks, outermost first: primary_turn() (context.hpp; a turn, as tearing down waits) > graph_mutex() (graph.hpp) >
// Event > Context::mutex_ > Queue > pool_mutex() (pool.cpp) > Pool, AddressMap, Registry.
// No lock is held while a caller's function (callback, host node) runs or while work is waited for.
#pragma once

#include <memory>
#include <vector>

#include "gpu_server/emulated_gpu/driver/abi.hpp"
#include "gpu_server/emulated_gpu/driver/address_map.hpp"
#include "gpu_server/emulated_gpu/driver/device.hpp"
#include "gpu_server/emulated_gpu/driver/registry.hpp"

namespace tnr::emulated {

struct Driver {
    std::vector<std::unique_ptr<Device>> devices;
    Registry registry;
    AddressMap addresses;
};

// Usable only after ready() has said CUDA_SUCCESS.
Driver& driver();

// CUDA_ERROR_NOT_INITIALIZED before cuInit has succeeded, and in the child of a fork.
CUresult ready();

// Null unless the ordinal names a device.
Device* device_of(CUdevice ordinal);

template <class T, class Handle>
std::shared_ptr<T> find(Handle handle) {
    return driver().registry.find<T>(handle);
}

// The context on top of this thread's stack, or null.
Context* current_context();
// CUDA_SUCCESS if calls into `context` may go on, else the error that it is stuck with.
CUresult status_of(Context& context);

// Why the last load or launch on this thread failed: for tnr_emulated_last_error and JIT logs.
void set_last_error(std::string text);
// Writes a line to stderr when TNR_LOG is debug or trace.
void log_debug(const std::string& text);
// Tells the program's user what the program itself may never look at: a line on stderr, each text once and few of them.
// Silent when TNR_LOG is off or none.
void say_once(const std::string& text);

CUresult current_exception_code() noexcept;

// Every exported function runs inside this: no exception leaves the library.
template <class Call>
CUresult guarded(Call&& call) noexcept try {
    return call();
} catch (...) {
    return current_exception_code();
}

// For functions that need cuInit to have been called.
template <class Call>
CUresult initialized(Call&& call) noexcept {
    return guarded([&]() -> CUresult {
        if (CUresult error = ready()) return error;
        return call();
    });
}

// True on a thread while it runs a function of the program that a stream calls. Such a function must not use the driver.
extern constinit thread_local bool in_program_function;
template <class Function, class... Arguments>
void call_program_function(Function function, Arguments... arguments) {
    in_program_function = true;
    function(arguments...);
    in_program_function = false;
}

// For functions on an object that has a context: it goes by that one, and none need be current.
template <class Call>
CUresult in_own_context(Context& context, Call&& call) {
    if (in_program_function) return CUDA_ERROR_NOT_PERMITTED;
    if (CUresult error = status_of(context)) return error;
    return call();
}

// For functions that also need a current context that is in working order.
template <class Call>
CUresult in_context(Call&& call) noexcept {
    return initialized([&]() -> CUresult {
        if (in_program_function) return CUDA_ERROR_NOT_PERMITTED;
        Context* context = current_context();
        if (!context) return CUDA_ERROR_INVALID_CONTEXT;
        if (CUresult error = status_of(*context)) return error;
        return call(*context);
    });
}

}  // namespace tnr::emulated
