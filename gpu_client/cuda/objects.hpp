// What stands behind the handles that programs hold. Fields that change after creation are atomic: programs use
// handles from several threads at once.
//
// "Position" is the count of records in this process's one stream of commands: a record that was appended at position
// p is known to be complete on the GPU once a wait that was appended later has been answered.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu_client/cuda/driver_api.hpp"
#include "gpu_client/cuda/handles.hpp"
#include "gpu_client/protocol/code_records.hpp"

namespace tnr::cuda {

inline void raise_to(std::atomic<uint64_t>& value, uint64_t at_least) {
    uint64_t seen = value.load(std::memory_order_relaxed);
    while (seen < at_least && !value.compare_exchange_weak(seen, at_least)) {
    }
}

class ClientSession;

struct Context {
    uint64_t number = 0;  // on the wire
    uint64_t handle = 0;
    uint64_t id = 0;  // cuCtxGetId: never reused
    int device = 0;
    bool primary = false;
    std::atomic<unsigned> flags{0};
    std::atomic<ClientSession*> session{nullptr};  // its device's; not null once it has been active
    std::atomic<bool> active{false};               // a primary context has a handle before it is retained
    std::atomic<int> sticky{0};                    // the CUresult that ended it; every later call returns that
    std::atomic<int> uses{1};                      // cuCtxAttach and cuCtxDetach; of a primary one nobody counts
    std::atomic<int> cache_config{0}, shared_config{0};
    std::atomic<int> nonblocking_streams{0};  // ever made; 0: waiting for the null stream waits for everything
    std::atomic<uint64_t> last_use{0};        // position of the last record that ran in it
    std::atomic<uint64_t> synced{0};          // all its work up to this position is complete
    std::atomic<uint64_t> default_synced{0};  // of its default stream alone
    std::atomic<uint64_t> default_waited{0};  // as a stream's
    std::atomic<int> downloads{0};            // copies to pinned memory that have not arrived
};

struct Stream {
    uint64_t number = 0;
    uint64_t handle = 0;
    uint64_t id = 0;
    uint64_t context = 0;  // handle
    uint64_t green = 0;    // handle of the green context that it was made in; 0: in none
    unsigned flags = 0;
    int priority = 0;
    std::atomic<uint64_t> last_use{0};
    std::atomic<uint64_t> synced{0};
    std::atomic<uint64_t> waited{0};   // synced by a waiting call: what earlier kernels printed has come out, too
    std::atomic<uint64_t> watched{0};  // the worker will tell when work up to this position is complete
    std::atomic<uint64_t> asked{0};    // completions_heard() when the worker was last asked and said "not ready"
    std::atomic<uint64_t> capture{0};  // id of the capture that it takes part in; 0: none
    // The newest function of the program that its work may come after, as host_functions counts them; of a stream that waits
    // for the default stream, any may be.
    std::atomic<uint64_t> after_function{0};
};

// A stream as a record names it.
struct StreamRef {
    uint64_t number = 0;       // on the wire; 0 and 1 are the driver's own default streams
    Stream* object = nullptr;  // null for those
    bool is_default() const { return object == nullptr; }
};

struct Event {
    uint64_t number = 0;
    uint64_t handle = 0;
    uint64_t context = 0;
    unsigned flags = 0;
    std::atomic<uint64_t> stream{0};    // handle of the stream it was last recorded in; 0: a default stream
    std::atomic<uint64_t> recorded{0};  // position of that; 0: never
    std::atomic<uint64_t> completed{0};
    std::atomic<uint64_t> watched{0};
    std::atomic<uint64_t> asked{0};    // as a stream's
    std::atomic<uint64_t> capture{0};  // id of the capture that it was last recorded in; 0: in none
    // Launches of a graph record it, or may: only the worker knows its state.
    std::atomic<bool> in_graphs{false};
    // Launches under way that record it, and have yet to fetch what they have copied to the host before that.
    std::atomic<int> held{0};
};

struct Parameter {
    uint32_t offset = 0;
    uint32_t size = 0;
};

// One kernel, as the worker described it.
struct KernelInfo {
    std::string name;
    std::vector<Parameter> parameters;
    uint32_t parameter_bytes = 0;
    std::atomic<int> attributes[wire::function_attributes] = {};  // by CUfunction_attribute
    uint32_t attribute_count = 0;
    std::atomic<uint64_t> handle{0};  // minted when first asked for
};

struct LoadedCode;  // libraries.hpp

// Both CUmodule and CUlibrary: the worker does not tell them apart either.
struct Library {
    uint64_t number = 0;
    uint64_t handle = 0;
    uint64_t context = 0;                 // of a module; 0 for a library, which belongs to none
    std::atomic<bool> of_runtime{false};  // loaded by the CUDA runtime for the program
    std::atomic<LoadedCode*> code{nullptr};
};

// Both CUfunction and CUkernel: programs pass one for the other.
struct Function {
    uint64_t number = 0;
    uint64_t handle = 0;
    uint64_t library = 0;
    uint64_t context = 0;  // the library's, if that is a module
    std::atomic<KernelInfo*> info{nullptr};
};

using Contexts = HandleRegistry<Context, HandleKind::context>;
using Streams = HandleRegistry<Stream, HandleKind::stream>;
using Events = HandleRegistry<Event, HandleKind::event>;
using Libraries = HandleRegistry<Library, HandleKind::library>;
using Functions = HandleRegistry<Function, HandleKind::function>;

// Made at first use, never destroyed.
Contexts& contexts();
Streams& streams();
Events& events();
Libraries& libraries();
Functions& functions();

template <class Pointer>
uint64_t value_of(Pointer handle) {
    return reinterpret_cast<uint64_t>(handle);
}
template <class Pointer>
Pointer handle_of(uint64_t value) {
    return reinterpret_cast<Pointer>(value);
}

// A green context converted to a CUcontext stands for the primary context, wherever a context is named
// (green_contexts.hpp). Other handles stay as they are; so does that of a green context that is gone, which stands for
// nothing.
uint64_t context_behind_converted(uint64_t handle);
inline uint64_t context_behind(uint64_t handle) {
    return kind_of_handle(handle) == HandleKind::converted_context ? context_behind_converted(handle) : handle;
}

inline Context* find_context(CUcontext handle) {
    return contexts().find(context_behind(value_of(handle)));
}
inline Event* find_event(CUevent handle) {
    return events().find(value_of(handle));
}
inline Library* find_library(CUlibrary handle) {
    return libraries().find(value_of(handle));
}
inline Library* find_module(CUmodule handle) {
    return libraries().find(value_of(handle));
}
inline Function* find_function(CUfunction handle) {
    return functions().find(value_of(handle));
}
inline Function* find_function(CUkernel handle) {
    return functions().find(value_of(handle));
}

// The number that stands for a handle on the wire. For an invalid handle `none`, the error that a driver would return.
template <class Object>
CUresult number_of_object(const Object* object, uint64_t& number, CUresult none = CUDA_ERROR_INVALID_HANDLE) {
    if (!object) return none;
    number = object->number;
    return CUDA_SUCCESS;
}
inline CUresult number_of(CUcontext handle, uint64_t& number) {
    return number_of_object(find_context(handle), number, CUDA_ERROR_INVALID_CONTEXT);
}
inline CUresult number_of(CUevent handle, uint64_t& number) {
    return number_of_object(find_event(handle), number);
}
inline CUresult number_of(CUlibrary handle, uint64_t& number) {
    return number_of_object(find_library(handle), number);
}
inline CUresult number_of(CUfunction handle, uint64_t& number) {
    return number_of_object(find_function(handle), number);
}
inline CUresult number_of(CUkernel handle, uint64_t& number) {
    return number_of_object(find_function(handle), number);
}

}  // namespace tnr::cuda
