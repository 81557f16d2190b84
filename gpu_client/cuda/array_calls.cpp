// cuArray* and cuMipmappedArray*. Arrays are charged to the grant of memory that the session holds, by an estimate of what a
// driver takes for them.
#include <algorithm>
#include <bit>

#include "gpu_client/cuda/arrays.hpp"
#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/device_memory.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/memory_pools.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/protocol/array_charge.hpp"
#include "gpu_client/protocol/array_limits.hpp"
#include "gpu_client/protocol/array_records.hpp"

namespace tnr::cuda {

namespace {

// Never used again: a call whose number the client has given up may have succeeded all the same.
uint64_t next_array_number() {
    static std::atomic<uint64_t> last{0};
    return ++last;
}

// What the rules of the shape are, the driver knows; here is only what must not go wrong before it is asked.
CUresult check(const CUDA_ARRAY3D_DESCRIPTOR& described) {
    if (!wire::is_array_shape(described)) return CUDA_ERROR_INVALID_VALUE;
    if (wire::is_known_array(described)) return CUDA_SUCCESS;
    if (!wire::is_format(described.Format)) return CUDA_ERROR_INVALID_VALUE;
    return static_cast<CUresult>(unsupported("such a format of arrays"));
}

// What no memory would be enough for is wrong, whatever memory there is.
CUresult refused_room(const Device& device, const CUDA_ARRAY3D_DESCRIPTOR& described) {
    auto limit = [&](CUdevice_attribute attribute) { return static_cast<size_t>(device.attribute(attribute)); };
    return wire::fits_limits(described, limit) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
}

// Takes memory of the grant, sends the record that `ask` makes, and gives it back if that fails.
template <class Ask>
CUresult create_charged(const CUDA_ARRAY3D_DESCRIPTOR& described, uint64_t bytes, Ask&& ask) {
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    if (auto result = refuse_unsafe(); result != CUDA_SUCCESS) return result;
    auto& device = *find_device(context->device);
    if (bytes > device.description.memory_bytes) return refused_room(device, described);
    if (auto result = device.memory->take_grant(bytes); result != CUDA_SUCCESS)
        return result == CUDA_ERROR_OUT_OF_MEMORY ? refused_room(device, described) : result;
    pools_make_room(device.ordinal);
    auto result = ask(*context, device);
    if (result != CUDA_SUCCESS) device.memory->return_grant(bytes);
    return result;
}

uint64_t enter_array(const Context& context, uint64_t number, bool part, uint64_t bytes,
                     const CUDA_ARRAY3D_DESCRIPTOR& described, const std::shared_ptr<Tiled>& tiled = {},
                     const std::vector<uint64_t>& planes = {}) {
    return arrays().create([&](Array& array, uint64_t, uint64_t handle) {
        auto unit = wire::unit_of(described.Format, described.NumChannels);
        array = {number, handle, context.handle, part, bytes, described, unit, tiled, planes};
    });
}

// What planes a new array has, so that each is the same one whenever the program asks. The driver may know of fewer.
CUresult enter_planes(std::vector<uint64_t>& planes, const Context& context, uint64_t of,
                      const CUDA_ARRAY3D_DESCRIPTOR& described) {
    for (unsigned index = 0; index < wire::planes_of(described.Format); ++index) {
        const uint64_t number = next_array_number();
        RemoteCall call(wire::GetArrayPlane<>{number, of, index});
        auto result = call.send();
        if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED) return CUDA_SUCCESS;
        if (result != CUDA_SUCCESS) return result;
        wire::ArrayShape shape;
        if (result = call.take(shape); result != CUDA_SUCCESS) return result;
        const auto plane = shape.described();
        if (!wire::is_array_shape(plane) || !wire::is_known_array(plane)) return CUDA_ERROR_NOT_SUPPORTED;
        planes.push_back(enter_array(context, number, true, 0, plane));
    }
    return CUDA_SUCCESS;
}

CUresult ask_tiles(wire::TiledShape& shape, const wire::HasFields auto& record) {
    RemoteCall call(record);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::SparseProperties found;
    if (auto result = call.take(found); result != CUDA_SUCCESS) return result;
    shape.properties.tileExtent = {found.tile[0], found.tile[1], found.tile[2]};
    shape.properties.miptailFirstLevel = found.first_tail_level;
    shape.properties.miptailSize = found.tail_bytes;
    shape.properties.flags = found.flags;
    return shape.is_sound() ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult ask_requirements(wire::ArrayRequirements& found, const wire::HasFields auto& record) {
    RemoteCall call(record);
    auto result = call.send();
    return result == CUDA_SUCCESS ? call.take(found) : result;
}

// How a new array is made of tiles, if it is. Nothing of such an array is charged: its memory is that of cuMemCreate.
template <class Sparse, class Requirements>
CUresult learn_tiles(std::shared_ptr<Tiled>& tiled, const CUDA_ARRAY3D_DESCRIPTOR& described, unsigned levels,
                     const Sparse& sparse, const Requirements& requirements) {
    if (!wire::is_tiled(described)) return CUDA_SUCCESS;
    tiled = std::make_shared<Tiled>();
    tiled->shape.described = described;
    tiled->shape.levels = levels;
    if (described.Flags & CUDA_ARRAY3D_SPARSE) return ask_tiles(tiled->shape, sparse);
    wire::ArrayRequirements found;
    auto result = ask_requirements(found, requirements);
    tiled->shape.deferred_bytes = found.size;
    return result;
}

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& described) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (auto result = check(described); result != CUDA_SUCCESS) return result;
    uint64_t bytes = wire::array_charge(described, 1);
    return create_charged(described, bytes, [&](const Context& context, const Device& device) {
        uint64_t number = next_array_number();
        RemoteCall call(wire::CreateArray<>{number, device.number, wire::shape_of(described, bytes)});
        if (auto result = call.send(); result != CUDA_SUCCESS) return result;
        std::shared_ptr<Tiled> tiled;
        auto result = learn_tiles(tiled, described, 1, wire::GetSparseArray<>{number},
                                  wire::GetArrayRequirements<>{number, device.number});
        std::vector<uint64_t> planes;
        if (result == CUDA_SUCCESS) result = enter_planes(planes, context, number, described);
        if (result == CUDA_SUCCESS) {
            *out = handle_of<CUarray>(enter_array(context, number, false, bytes, described, tiled, planes));
            return result;
        }
        (void)RemoteCall(wire::DestroyArray<>{number}).send();
        forget_parts(planes);
        return result;
    });
}

// With its levels, so that each is the same array whenever the program asks.
uint64_t enter_mipmapped(const Context& context, uint64_t number, uint64_t bytes,
                         const CUDA_ARRAY3D_DESCRIPTOR& described, unsigned levels,
                         const std::shared_ptr<Tiled>& tiled) {
    return mipmapped_arrays().create([&](MipmappedArray& array, uint64_t, uint64_t handle) {
        array = {number, handle, context.handle, bytes, described, {}, tiled};
        for (unsigned index = 0; index < levels; ++index) {
            uint64_t level_number = next_array_number();
            context.session.load()->append(context.number, wire::GetArrayLevel<>{level_number, number, index});
            array.levels.push_back(enter_array(context, level_number, true, 0, wire::level_of(described, index)));
        }
    });
}

CUresult create_mipmapped(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR& described, unsigned levels) {
    if (!out || levels == 0) return CUDA_ERROR_INVALID_VALUE;
    if (auto result = check(described); result != CUDA_SUCCESS) return result;
    if (wire::planes_of(described.Format) != 0) return static_cast<CUresult>(unsupported("levels of arrays in planes"));
    auto longest = std::max({described.Width, described.Height, wire::is_stacked(described) ? 1 : described.Depth});
    levels = std::min(levels, static_cast<unsigned>(std::bit_width(longest)));
    uint64_t bytes = wire::array_charge(described, levels);
    return create_charged(described, bytes, [&](const Context& context, const Device& device) {
        uint64_t number = next_array_number();
        RemoteCall call(wire::CreateMipmappedArray<>{number, device.number, wire::shape_of(described, bytes), levels});
        if (auto result = call.send(); result != CUDA_SUCCESS) return result;
        std::shared_ptr<Tiled> tiled;
        auto result = learn_tiles(tiled, described, levels, wire::GetSparseMipmap<>{number},
                                  wire::GetMipmapRequirements<>{number, device.number});
        if (result == CUDA_SUCCESS)
            *out = handle_of<CUmipmappedArray>(enter_mipmapped(context, number, bytes, described, levels, tiled));
        else
            (void)RemoteCall(wire::DestroyMipmappedArray<>{number}).send();
        return result;
    });
}

CUresult get_level(CUarray* out, CUmipmappedArray handle, unsigned index) {
    auto* mipmapped = find_mipmapped_array(handle);
    if (!mipmapped) return CUDA_ERROR_INVALID_HANDLE;
    if (!out || index >= mipmapped->levels.size()) return CUDA_ERROR_INVALID_VALUE;
    *out = handle_of<CUarray>(mipmapped->levels[index]);
    return CUDA_SUCCESS;
}

// Sends `record`, after which the memory is free.
template <class Object, class Record>
CUresult destroy(const Object& object, const Record& record) {
    auto* context = contexts().find(object.context);
    if (auto result = usable(context); result != CUDA_SUCCESS) return result;
    if (auto result = refuse_unsafe(); result != CUDA_SUCCESS) return result;
    uint64_t bytes = object.charged_bytes;
    auto tiled = object.tiled;
    RemoteCall call(record);
    call.in_context(context);
    auto result = call.send();
    return_array_grant(*context, bytes);
    forget_tiles(tiled);
    return result;
}

CUresult destroy(CUarray handle) {
    auto* array = find_array(handle);
    if (!array) return CUDA_ERROR_INVALID_HANDLE;
    if (array->part) return CUDA_SUCCESS;  // some programs do; the whole keeps it
    auto result = destroy(*array, wire::DestroyArray<>{array->number});
    if (result != CUDA_SUCCESS) return result;
    forget_parts(array->planes);
    arrays().destroy(value_of(handle));
    return result;
}

CUresult destroy(CUmipmappedArray handle) {
    auto* array = find_mipmapped_array(handle);
    if (!array) return CUDA_ERROR_INVALID_HANDLE;
    auto result = destroy(*array, wire::DestroyMipmappedArray<>{array->number});
    if (result != CUDA_SUCCESS) return result;
    forget_parts(array->levels);
    mipmapped_arrays().destroy(value_of(handle));
    return result;
}

template <class Record>
CUresult show_requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, Record& record, CUdevice ordinal) {
    auto* device = find_device(ordinal);
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    record.device = device->number;
    wire::ArrayRequirements found;
    if (auto result = ask_requirements(found, record); result != CUDA_SUCCESS) return result;
    *out = {};
    out->size = found.size;
    out->alignment = found.alignment;
    return CUDA_SUCCESS;
}

template <class Object>
CUresult show_sparse(CUDA_ARRAY_SPARSE_PROPERTIES* out, const Object* object) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!object) return CUDA_ERROR_INVALID_HANDLE;
    if (!object->tiled || object->tiled->shape.deferred_bytes != 0) return CUDA_ERROR_INVALID_VALUE;
    *out = object->tiled->shape.properties;
    return CUDA_SUCCESS;
}

}  // namespace

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* given) {
    return guarded("cuArrayCreate", [&] {
        if (!given) return CUDA_ERROR_INVALID_VALUE;
        return create(out, {given->Width, given->Height, 0, given->Format, given->NumChannels, 0});
    });
}
CUresult CUDAAPI cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* given) {
    return guarded("cuArray3DCreate", [&] { return given ? create(out, *given) : CUDA_ERROR_INVALID_VALUE; });
}
CUresult CUDAAPI cuArrayDestroy(CUarray handle) {
    return guarded("cuArrayDestroy", [&] { return destroy(handle); });
}
CUresult CUDAAPI cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
    return guarded("cuArrayGetDescriptor", [&]() -> CUresult {
        auto* array = find_array(handle);
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        if (!array) return CUDA_ERROR_INVALID_HANDLE;
        auto& described = array->described;
        *out = {described.Width, described.Height, described.Format, described.NumChannels};
        return CUDA_SUCCESS;
    });
}
CUresult CUDAAPI cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
    return guarded("cuArray3DGetDescriptor", [&]() -> CUresult {
        auto* array = find_array(handle);
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        if (!array) return CUDA_ERROR_INVALID_HANDLE;
        *out = array->described;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* given, unsigned levels) {
    return guarded("cuMipmappedArrayCreate",
                   [&] { return given ? create_mipmapped(out, *given, levels) : CUDA_ERROR_INVALID_VALUE; });
}
CUresult CUDAAPI cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray handle, unsigned level) {
    return guarded("cuMipmappedArrayGetLevel", [&] { return get_level(out, handle, level); });
}
CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray handle) {
    return guarded("cuMipmappedArrayDestroy", [&] { return destroy(handle); });
}

CUresult CUDAAPI cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* out, CUarray handle) {
    return guarded("cuArrayGetSparseProperties", [&] { return show_sparse(out, find_array(handle)); });
}
CUresult CUDAAPI cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* out, CUmipmappedArray handle) {
    return guarded("cuMipmappedArrayGetSparseProperties",
                   [&] { return show_sparse(out, find_mipmapped_array(handle)); });
}
CUresult CUDAAPI cuArrayGetPlane(CUarray* out, CUarray handle, unsigned plane) {
    return guarded("cuArrayGetPlane", [&] {
        auto* array = find_array(handle);
        if (!array) return CUDA_ERROR_INVALID_HANDLE;
        if (!out || plane >= array->planes.size()) return CUDA_ERROR_INVALID_VALUE;
        *out = handle_of<CUarray>(array->planes[plane]);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUarray handle, CUdevice device) {
    return guarded("cuArrayGetMemoryRequirements", [&]() -> CUresult {
        tnr::wire::GetArrayRequirements<> record;
        if (auto result = number_of(handle, record.array); result != CUDA_SUCCESS) return result;
        return show_requirements(out, record, device);
    });
}
CUresult CUDAAPI cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUmipmappedArray handle,
                                                       CUdevice device) {
    return guarded("cuMipmappedArrayGetMemoryRequirements", [&]() -> CUresult {
        tnr::wire::GetMipmapRequirements<> record;
        if (auto result = number_of(handle, record.array); result != CUDA_SUCCESS) return result;
        return show_requirements(out, record, device);
    });
}

}  // extern "C"
