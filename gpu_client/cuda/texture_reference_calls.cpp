// cuTexRef* and cuSurfRef*, which CUDA has deprecated. Settings are the worker's driver's; what a reference is bound to is
// also known here, since only the client can tell an array's handle.
#include <algorithm>
#include <map>
#include <string>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/libraries.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/texture_references.hpp"
#include "gpu_client/protocol/array_records.hpp"

namespace tnr::cuda {

namespace {

uint64_t next_number() {
    static std::atomic<uint64_t> last{0};
    return ++last;
}

template <class Registry>
uint64_t enter(Registry& registry, uint64_t number) {
    return registry.create([&](auto& reference, uint64_t, uint64_t handle) {
        reference.number = number;
        reference.handle = handle;
        reference.array = 0;
    });
}

// By module and name: a reference is the same whenever the program asks.
template <class Registry>
struct Found {
    Mutex mutex;
    std::map<std::pair<uint64_t, std::string>, uint64_t> handles TNR_GUARDED_BY(mutex);
};
template <class Registry>
Found<Registry>& found() {
    static auto* all = new Found<Registry>;
    return *all;
}

template <class Record, class Registry, class Handle>
CUresult get_reference(Registry& registry, Handle* out, CUmodule module, const char* name) {
    if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
    auto* library = find_module(module);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    const std::pair key{value_of(module), std::string(name)};
    {
        LockGuard lock(found<Registry>().mutex);
        auto known = found<Registry>().handles.find(key);
        if (known != found<Registry>().handles.end()) {
            *out = handle_of<Handle>(known->second);
            return CUDA_SUCCESS;
        }
    }
    keep_in_place(*library->code.load());
    uint64_t number = next_number();
    RemoteCall call(Record{number, library->number, name});
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    uint64_t handle = enter(registry, number);
    LockGuard lock(found<Registry>().mutex);
    *out = handle_of<Handle>(found<Registry>().handles.try_emplace(key, handle).first->second);
    return CUDA_SUCCESS;
}

CUresult create_reference(CUtexref* out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    uint64_t number = next_number();
    if (auto result = RemoteCall(wire::CreateTextureReference{number}).send(); result != CUDA_SUCCESS) return result;
    uint64_t handle = enter(texture_references(), number);
    texture_references().find(handle)->own = true;
    *out = handle_of<CUtexref>(handle);
    return CUDA_SUCCESS;
}

CUresult destroy_reference(CUtexref handle) {
    auto* reference = texture_references().find(value_of(handle));
    if (!reference || !reference->own) return CUDA_ERROR_INVALID_HANDLE;
    auto result = RemoteCall(wire::DestroyTextureReference<>{reference->number}).send();
    if (result == CUDA_SUCCESS) texture_references().destroy(value_of(handle));
    return result;
}

void bind(CUtexref handle, uint64_t array, uint64_t mipmapped) {
    auto* reference = texture_references().find(value_of(handle));
    if (!reference) return;
    reference->array = array;
    reference->mipmapped = mipmapped;
}

CUresult set_address(size_t* offset, CUtexref handle, CUdeviceptr address, size_t bytes) {
    wire::SetReferenceAddress<> record{0, address, bytes};
    if (auto result = number_of(handle, record.reference); result != CUDA_SUCCESS) return result;
    if (!is_allocated(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    RemoteCall call(record);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::SetReferenceAddress<>::Reply reply;
    if (auto result = call.take(reply); result != CUDA_SUCCESS) return result;
    if (offset) *offset = reply.offset;
    bind(handle, 0, 0);
    return CUDA_SUCCESS;
}

CUresult set_border(CUtexref handle, const float* color) {
    if (!color) return CUDA_ERROR_INVALID_VALUE;
    wire::SetReferenceBorder<> record;
    std::copy(color, color + 4, record.color.begin());
    if (auto result = number_of(handle, record.reference); result != CUDA_SUCCESS) return result;
    return RemoteCall(record).send();
}

CUresult get_border(float* color, CUtexref handle) {
    if (!color) return CUDA_ERROR_INVALID_VALUE;
    wire::GetReferenceBorder<> record;
    if (auto result = number_of(handle, record.named); result != CUDA_SUCCESS) return result;
    RemoteCall call(record);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::GetReferenceBorder<>::Reply reply;
    if (auto result = call.take(reply); result != CUDA_SUCCESS) return result;
    std::copy(reply.color.begin(), reply.color.end(), color);
    return CUDA_SUCCESS;
}

template <class Handle>
CUresult tell_bound(Handle* out, const std::atomic<uint64_t>& bound) {
    if (!out || bound == 0) return CUDA_ERROR_INVALID_VALUE;
    *out = handle_of<Handle>(bound);
    return CUDA_SUCCESS;
}

}  // namespace

// For the calls of the table that are `noted`.
void note_cuTexRefSetArray(CUtexref handle, CUarray array, unsigned) {
    bind(handle, value_of(array), 0);
}
void note_cuTexRefSetMipmappedArray(CUtexref handle, CUmipmappedArray array, unsigned) {
    bind(handle, 0, value_of(array));
}
void note_cuTexRefSetAddress2D_v3(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR*, CUdeviceptr, size_t) {
    bind(handle, 0, 0);
}
void note_cuSurfRefSetArray(CUsurfref handle, CUarray array, unsigned) {
    if (auto* reference = surface_references().find(value_of(handle))) reference->array = value_of(array);
}

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuModuleGetTexRef(CUtexref* out, CUmodule module, const char* name) {
    return guarded("cuModuleGetTexRef", [&] {
        return get_reference<tnr::wire::GetTextureReference<>>(texture_references(), out, module, name);
    });
}
CUresult CUDAAPI cuModuleGetSurfRef(CUsurfref* out, CUmodule module, const char* name) {
    return guarded("cuModuleGetSurfRef", [&] {
        return get_reference<tnr::wire::GetSurfaceReference<>>(surface_references(), out, module, name);
    });
}
CUresult CUDAAPI cuTexRefCreate(CUtexref* out) {
    return guarded("cuTexRefCreate", [&] { return create_reference(out); });
}
CUresult CUDAAPI cuTexRefDestroy(CUtexref handle) {
    return guarded("cuTexRefDestroy", [&] { return destroy_reference(handle); });
}
CUresult CUDAAPI cuTexRefSetAddress_v2(size_t* offset, CUtexref handle, CUdeviceptr address, size_t bytes) {
    return guarded("cuTexRefSetAddress", [&] { return set_address(offset, handle, address, bytes); });
}
// The form of CUDA 3.2 and 4.0.
CUresult CUDAAPI cuTexRefSetAddress2D_v2(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR* described, CUdeviceptr address,
                                         size_t pitch) {
    return cuTexRefSetAddress2D_v3(handle, described, address, pitch);
}
CUresult CUDAAPI cuTexRefSetBorderColor(CUtexref handle, float* color) {
    return guarded("cuTexRefSetBorderColor", [&] { return set_border(handle, color); });
}
CUresult CUDAAPI cuTexRefGetBorderColor(float* color, CUtexref handle) {
    return guarded("cuTexRefGetBorderColor", [&] { return get_border(color, handle); });
}
CUresult CUDAAPI cuTexRefGetArray(CUarray* out, CUtexref handle) {
    return guarded("cuTexRefGetArray", [&] {
        auto* reference = texture_references().find(value_of(handle));
        return reference ? tell_bound(out, reference->array) : CUDA_ERROR_INVALID_HANDLE;
    });
}
CUresult CUDAAPI cuTexRefGetMipmappedArray(CUmipmappedArray* out, CUtexref handle) {
    return guarded("cuTexRefGetMipmappedArray", [&] {
        auto* reference = texture_references().find(value_of(handle));
        return reference ? tell_bound(out, reference->mipmapped) : CUDA_ERROR_INVALID_HANDLE;
    });
}
CUresult CUDAAPI cuSurfRefGetArray(CUarray* out, CUsurfref handle) {
    return guarded("cuSurfRefGetArray", [&] {
        auto* reference = surface_references().find(value_of(handle));
        return reference ? tell_bound(out, reference->array) : CUDA_ERROR_INVALID_HANDLE;
    });
}

}  // extern "C"
