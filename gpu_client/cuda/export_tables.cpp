// cuGetExportTable: tables of functions that NVIDIA's libraries ask for by UUID and that no header documents. What each
// slot must do was found by watching what cudart and the libraries call. A slot that we do not know answers "not
// supported" instead of being empty, since empty slots have been called.
//
// Slot 0 of a table is its size in bytes, except in the context storage, which begins with a function.
#include <pthread.h>
#include <unistd.h>

#include <cstring>

#include "gpu_client/cuda/context_storage.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/integrity.hpp"
#include "gpu_client/cuda/libraries.hpp"
#include "gpu_client/cuda/thread_state.hpp"

namespace tnr::cuda {

namespace {

template <class Function>
void* slot(Function* function) {
    return reinterpret_cast<void*>(function);
}
void* bytes_of(size_t slots) {
    return reinterpret_cast<void*>(slots * sizeof(void*));
}

// Fills slots that nobody is known to need.
CUresult unknown_slot() {
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult nothing_to_do() {
    return CUDA_SUCCESS;
}

// A table of `Slots` words whose unnamed slots are unknown_slot.
template <size_t Slots>
struct Table {
    void* slots[Slots];
    Table() {
        slots[0] = bytes_of(Slots);
        for (size_t i = 1; i < Slots; ++i) slots[i] = slot(unknown_slot);
    }
};

// ---- cudart's own ----

CUresult load_wrapper(CUmodule* out, const void* wrapper) {
    return cuModuleLoadData(out, wrapper);
}
// The handle of a context that need not be active: retaining it later gives the same one.
CUresult primary_context_handle(CUcontext* out, CUdevice ordinal) {
    return guarded("CUDART[2]", [&]() -> CUresult {
        auto* device = find_device(ordinal);
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        *out = handle_of<CUcontext>(device->primary_context);
        return CUDA_SUCCESS;
    });
}
CUresult load_wrapper_with_variables(CUmodule* out, const void* wrapper, void* first, void* second, size_t count) {
    if (first || second || count != 0) return CUDA_ERROR_NOT_SUPPORTED;
    return load_wrapper(out, wrapper);
}
CUresult load_header_with_variables(const void* header, CUmodule* out, void* first, void* second, uint32_t count) {
    return load_wrapper_with_variables(out, header, first, second, count);
}
CUresult launch_in_stream(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** extra) {
    return cuLaunchKernel_ptsz(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                               nullptr, extra);
}

struct Cudart : Table<13> {
    Cudart() {
        slots[1] = slot(load_wrapper);
        slots[2] = slot(primary_context_handle);
        slots[6] = slot(load_wrapper_with_variables);
        slots[7] = slot(nothing_to_do);  // a module was destroyed
        slots[8] = slot(load_header_with_variables);
        slots[9] = slot(launch_in_stream);
        slots[12] = slot(nothing_to_do);  // load the PTX compiler: the worker's driver has one
    }
};

// ---- profilers' hooks: flags that say which calls a tool wants to hear of. None. ----

CUresult callback_flags(void** buffer, size_t* bytes) {
    // One u32 per callback id of the runtime. It ignores our size and reads up to its own last id, 523 in 13.0.
    static uint32_t flags[4096];
    *buffer = flags;
    *bytes = sizeof flags;
    return CUDA_SUCCESS;
}
CUresult domain_flags(void** buffer, size_t* bytes) {
    static uint8_t flags[64];  // 15 are looked at
    *buffer = flags;
    *bytes = 14;
    return CUDA_SUCCESS;
}

struct Hooks : Table<7> {
    Hooks() {
        for (int i : {1, 3, 4, 5}) slots[i] = slot(nothing_to_do);
        slots[2] = slot(callback_flags);
        slots[6] = slot(domain_flags);
    }
};

// ---- small ones ----

CUresult current_context_of_thread(CUcontext* out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = handle_of<CUcontext>(refusal() == CUDA_SUCCESS ? current_context_handle() : 0);
    return CUDA_SUCCESS;
}
struct ThreadLocal : Table<4> {
    ThreadLocal() { slots[2] = slot(current_context_of_thread); }
};

// Whether the context is wrapped in another: never.
CUresult is_wrapped(CUcontext, uint32_t* wrapped, void**) {
    if (wrapped) *wrapped = 0;
    return CUDA_SUCCESS;
}
uint32_t no_checks() {
    return 0;
}
struct ContextChecks : Table<15> {
    ContextChecks() {
        slots[2] = slot(is_wrapped);
        slots[3] = slot(no_checks);
    }
};

CUresult guarded_put(CUcontext context, void* key, void* value, StorageDestructor destructor) {
    return guarded("CLS.put", [&] { return storage_put(context, key, value, destructor); });
}
CUresult guarded_delete(CUcontext context, void* key) {
    return guarded("CLS.del", [&] { return storage_delete(context, key); });
}
CUresult guarded_get(void** value, CUcontext context, void* key) {
    if (auto refused = refusal(); refused != CUDA_SUCCESS) {
        if (refused == CUDA_ERROR_DEINITIALIZED) late_call();
        return refused;
    }
    return storage_get(value, context, key);  // on the way of every runtime call: no counting
}
struct ContextStorage {
    void* slots[4] = {slot(guarded_put), slot(guarded_delete), slot(guarded_get), nullptr};
};

CUresult create_plain_context(CUcontext* out, unsigned flags, CUdevice device) {
    return cuCtxCreate_v2(out, flags, device);
}
struct ContextBypass : Table<2> {
    ContextBypass() { slots[1] = slot(create_plain_context); }
};

// Callbacks at the end of a thread: accepted, but never made.
CUresult notify_at_thread_end(void** handle, void*, void*) {
    static int accepted;
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    *handle = &accepted;
    return CUDA_SUCCESS;
}
struct ThreadNotices : Table<3> {
    ThreadNotices() {
        slots[1] = slot(notify_at_thread_end);
        slots[2] = slot(nothing_to_do);
    }
};

// ---- what cuBLAS and cuFFT need ----

CUresult context_id(CUcontext context, uint64_t* id) {
    unsigned long long value = 0;
    auto result = cuCtxGetId(context, &value);
    if (result == CUDA_SUCCESS && id) *id = value;
    return result;
}
// "Was there later work in this stream?" No is always correct enough: they then order it themselves.
CUresult later_work(CUcontext, void*, uint64_t* answer) {
    if (answer) *answer = 0;
    return CUDA_SUCCESS;
}
// An object per stream that they only hand back to us.
CUresult stream_object(CUcontext, CUstream stream, void** object) {
    if (!object) return CUDA_ERROR_INVALID_VALUE;
    if (value_of(stream) == ~uint64_t{0}) return CUDA_ERROR_INVALID_HANDLE;
    *object = handle_of<void*>(value_of(stream) + 16);
    return CUDA_SUCCESS;
}
struct LibraryServices : Table<96> {
    LibraryServices() {
        slots[4] = slot(context_id);
        slots[39] = slot(later_work);
        slots[51] = slot(stream_object);
    }
};

using EachFunction = void (*)(void* data, CUfunction function, uint64_t owner);
// Calls `tell` for every kernel of a module; 1 on success.
uint64_t enumerate_functions(CUcontext, CUmodule module, EachFunction tell, void* data, CUmodule) {
    uint64_t told = 0;
    guarded("6E16[7]", [&]() -> CUresult {
        auto* library = find_module(module);
        if (!library || !tell) return CUDA_ERROR_INVALID_HANDLE;
        if (auto result = ensure_loaded(*library); result != CUDA_SUCCESS) return result;
        size_t count = library->code.load()->kernels.size();
        for (size_t i = 0; i < count; ++i) {
            uint64_t function = 0;
            if (auto result = kernel_handle(*library, i, function); result != CUDA_SUCCESS) return result;
            tell(data, handle_of<CUfunction>(function), value_of(module));
        }
        told = 1;
        return CUDA_SUCCESS;
    });
    return told;
}
struct Enumeration : Table<105> {
    Enumeration() { slots[7] = slot(enumerate_functions); }
};

// cuBLASLt wants the table, and does without any of its functions. Its real size is not known; this is ample.
struct Matmul : Table<64> {};

// ---- profilers ----

// CUPTI 13.2 and newer ask the driver which implementation of one of their calls to use, and ask for ever if it has
// none. We name the one that they bring along: it finds none of the driver's other tables, and returns an error.
CUresult profiler_call(void** out, void* const* own, uint32_t index, uint32_t count) {
    if (!out || !own || index >= count) return CUDA_ERROR_INVALID_VALUE;
    *out = own[index];
    return CUDA_SUCCESS;
}
struct Profilers : Table<128> {  // ample: CUPTI 13.5 looks at nothing behind slot 67
    Profilers() { slots[67] = slot(profiler_call); }
};

// ---- is this a driver? ----

struct Tables;
Tables& tables();
CUresult answer_integrity(uint32_t version, uint64_t unix_seconds, uint64_t* out);

struct Integrity : Table<3> {
    Integrity() {
        slots[1] = slot(answer_integrity);
        slots[2] = slot(nothing_to_do);
    }
};

struct Tables {
    Cudart cudart;
    Hooks hooks;
    ThreadLocal thread_local_state;
    ContextChecks context_checks;
    ContextStorage context_storage;
    Integrity integrity;
    LibraryServices library_services;
    Enumeration enumeration;
    Matmul matmul;
    ThreadNotices thread_notices;
    ContextBypass context_bypass;
    Profilers profilers;
};

// Never destroyed: cudart's exit handlers call through it after our destructors.
Tables& tables() {
    static auto* all = new Tables;
    return *all;
}

CUresult answer_integrity(uint32_t version, uint64_t unix_seconds, uint64_t* out) {
    return guarded_always("INTEG[1]", [&]() -> CUresult {
        IntegrityQuestion question;
        question.driver_version = static_cast<uint32_t>(driver_version());
        question.version = version;
        question.process = static_cast<uint32_t>(::getpid());
        question.thread = static_cast<uint32_t>(::pthread_self());
        question.cudart_table = value_of(&tables().cudart.slots[0]);
        question.integrity_table = value_of(&tables().integrity.slots[0]);
        question.function = value_of(tables().integrity.slots[1]);
        question.unix_seconds = unix_seconds;
        for (auto* device : devices())
            question.devices.push_back({device->uuid, device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                                        device->attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
                                        device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)});
        auto digest = integrity_answer(question);
        std::memcpy(out, digest.data(), digest.size());
        return CUDA_SUCCESS;
    });
}

struct Named {
    uint8_t id[16];
    const void* table;
};

const void* find_table(const CUuuid& id) {
    auto& all = tables();
    const Named named[] = {
        {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9}, &all.cudart},
        {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66}, &all.hooks},
        {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc},
         &all.thread_local_state},
        {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93},
         &all.context_storage},
        {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e},
         &all.context_checks},
        {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2},
         &all.integrity},
        {{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2},
         &all.library_services},
        {{0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99, 0x1e},
         &all.enumeration},
        {{0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b, 0xca}, &all.matmul},
        {{0x19, 0x5b, 0xcb, 0xf4, 0xd6, 0x7d, 0x02, 0x4a, 0xac, 0xc5, 0x1d, 0x29, 0xce, 0xa6, 0x31, 0xae},
         &all.thread_notices},
        {{0x0c, 0xa5, 0x0b, 0x8c, 0x10, 0x04, 0x92, 0x9a, 0x89, 0xa7, 0xd0, 0xdf, 0x10, 0xe7, 0x72, 0x86},
         &all.context_bypass},
        {{0x7c, 0xb6, 0x3f, 0x9b, 0x9c, 0xa4, 0x8e, 0x42, 0xa4, 0x84, 0xbe, 0xb6, 0x6e, 0x6a, 0xed, 0x7f},
         &all.profilers},
    };
    for (auto& entry : named)
        if (std::memcmp(entry.id, id.bytes, sizeof entry.id) == 0) return entry.table;
    return nullptr;
}

}  // namespace

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" CUresult CUDAAPI cuGetExportTable(const void** table, const CUuuid* id) {
    return guarded_always("cuGetExportTable", [&]() -> CUresult {
        if (!table || !id) return CUDA_ERROR_INVALID_VALUE;
        *table = find_table(*id);
        uint64_t halves[2];
        std::memcpy(halves, id->bytes, sizeof halves);
        log(LogLevel::debug, "hidden table %016llx%016llx: %s",
            static_cast<unsigned long long>(__builtin_bswap64(halves[0])),
            static_cast<unsigned long long>(__builtin_bswap64(halves[1])), *table ? "given" : "refused");
        return *table ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}
