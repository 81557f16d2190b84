// Small cases of what driver calls answer. A case makes calls; the codes of those it tells are its outcome, to be compared
// between drivers. Nothing here says what is right: that is NVIDIA's driver's word, once it has been recorded.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace differential {

extern void* library;  // the driver under test

constexpr auto missing = static_cast<CUresult>(-1);  // the library lacks the function

// Thrown by a case whose preparations fail, or that this machine cannot run ("skipped: …").
struct Unprepared {
    std::string why;
};

// The outcome of a case so far: codes, and words for what is no code.
struct Outcome {
    std::string text;
    void add(const std::string& word) { text += (text.empty() ? "" : " ") + word; }
    void add(CUresult code) { add(code == missing ? std::string("missing") : std::to_string(static_cast<int>(code))); }
};

#define DIFFERENTIAL_TEXT(name) #name
// The call's code; `missing` when there is no such function. The name is what cuda.h's macros make of it.
#define DO(name, ...)                                                                                 \
    ([&]() -> CUresult {                                                                              \
        static auto* called =                                                                         \
            reinterpret_cast<decltype(&name)>(dlsym(differential::library, DIFFERENTIAL_TEXT(name))); \
        return called ? called(__VA_ARGS__) : differential::missing;                                  \
    }())
// Makes a call and tells its code.
#define TELL(name, ...) o.add(DO(name, __VA_ARGS__))
// Makes a call that must succeed before anything can be told.
#define NEED(name, ...) differential::need(DO(name, __VA_ARGS__), #name)

void need(CUresult code, const char* what);

enum class Setting {
    context,        // cuInit has been called and device 0's primary context is current; shared by many cases
    alone,          // the same, in a process of the case's own: it leaves behind what others must not see
    uninitialised,  // cuInit has not been called
};

struct Case {
    std::string name;
    std::function<void(Outcome& o)> run;
    Setting setting = Setting::context;
    bool unsafe = false;  // documented as undefined, and likely to crash a real driver: an invented handle or address
};

std::vector<Case> all_cases();

// By file. Each appends.
void add_call_cases(std::vector<Case>& cases);     // every call: valid, without a context, before cuInit
void add_stream_cases(std::vector<Case>& cases);   // every call on streams and events with handles of all kinds
void add_null_cases(std::vector<Case>& cases);     // null where a result goes
void add_memory_cases(std::vector<Case>& cases);   // sizes, ranges, double free
void add_host_cases(std::vector<Case>& cases);     // pinned and registered memory, pointers
void add_pool_cases(std::vector<Case>& cases);     // pools and virtual memory
void add_context_cases(std::vector<Case>& cases);  // contexts and devices
void add_code_cases(std::vector<Case>& cases);     // modules, libraries, functions
void add_launch_cases(std::vector<Case>& cases);   // limits of launches, occupancy

// --- what cases prepare with; all of it stays until the process ends ---------------------------------------------

CUcontext primary();  // of device 0, current in this thread
CUdeviceptr memory(size_t bytes);
void* pinned(size_t bytes);
CUstream stream(unsigned flags = CU_STREAM_DEFAULT);
CUstream destroyed_stream();
CUevent event(unsigned flags = CU_EVENT_DEFAULT);
CUevent destroyed_event();
extern const char* const image;  // PTX: nothing(), store(u64 address, u32 value), limited() of 64 threads at most,
                                 // still(u32) with 4 KiB of static shared memory; and 16 bytes named `word`
CUmodule module();               // made once
CUfunction function(const char* name);
CUfunction own_function();  // nothing(), of a module loaded anew: whose attributes may be changed
CUlibrary code_library();   // made once
CUkernel kernel(const char* name);
void second_device();  // Unprepared when there is none

template <class Handle>
Handle invented() {
    return reinterpret_cast<Handle>(uintptr_t{0x5ec2e70});
}

}  // namespace differential
