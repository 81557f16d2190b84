// Texture and surface objects. A program passes their values to kernels, perhaps inside structs, so they are the
// driver's own: making one takes a round trip. What they were made from is kept here, where programs ask for it.

#include "gpu_client/cuda/textures.hpp"

#include <algorithm>
#include <map>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/arrays.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/protocol/array_charge.hpp"
#include "gpu_client/protocol/array_records.hpp"

namespace tnr::cuda {

namespace {

struct Texture {
    CUDA_RESOURCE_DESC resource{};
    CUDA_TEXTURE_DESC described{};
    bool has_view = false;
    CUDA_RESOURCE_VIEW_DESC view{};
};

// By context (handle) and value: two contexts may have objects of the same value.
template <class Object>
struct Book {
    Mutex mutex;
    std::map<std::pair<uint64_t, uint64_t>, Object> objects TNR_GUARDED_BY(mutex);
};
using Surface = CUDA_RESOURCE_DESC;
template <class Object>
Book<Object>& book() {
    static auto* all = new Book<Object>;
    return *all;
}

CUresult read_array(CUarray handle, uint64_t& number) {
    auto* array = find_array(handle);
    if (!array) return CUDA_ERROR_INVALID_HANDLE;
    number = array->number;
    return CUDA_SUCCESS;
}

CUresult read_resource(const CUDA_RESOURCE_DESC& given, wire::TextureResource<>& resource) {
    resource.type = given.resType;
    if (given.flags != 0) return CUDA_ERROR_INVALID_VALUE;
    switch (given.resType) {
        case CU_RESOURCE_TYPE_ARRAY:
            return read_array(given.res.array.hArray, resource.array);
        case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
            return number_of(given.res.mipmap.hMipmappedArray, resource.mipmapped);
        case CU_RESOURCE_TYPE_LINEAR: {
            auto& linear = given.res.linear;
            resource.address = linear.devPtr;
            resource.format = linear.format;
            resource.channels = linear.numChannels;
            resource.width = linear.sizeInBytes;
            // Of no bytes there may be one; not so nowhere.
            return is_allocated(linear.devPtr, std::max(linear.sizeInBytes, size_t{1})) ? CUDA_SUCCESS
                                                                                        : CUDA_ERROR_INVALID_VALUE;
        }
        case CU_RESOURCE_TYPE_PITCH2D: {
            auto& pitched = given.res.pitch2D;
            resource.address = pitched.devPtr;
            resource.format = pitched.format;
            resource.channels = pitched.numChannels;
            resource.width = pitched.width;
            resource.height = pitched.height;
            resource.pitch = pitched.pitchInBytes;
            uint64_t texel = wire::texel_bytes_of(pitched.format, pitched.numChannels), bytes = 0;
            const size_t last_row = pitched.height == 0 ? 0 : pitched.height - 1;
            bool sound = texel != 0 && pitched.width <= UINT32_MAX &&
                         !__builtin_mul_overflow(last_row, pitched.pitchInBytes, &bytes) &&
                         !__builtin_add_overflow(bytes, pitched.width * texel, &bytes);
            return sound && is_allocated(pitched.devPtr, std::max(bytes, uint64_t{1})) ? CUDA_SUCCESS
                                                                                       : CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

wire::TextureDescription read_description(const CUDA_TEXTURE_DESC& given) {
    wire::TextureDescription described;
    for (size_t axis = 0; axis < 3; ++axis) described.addressing[axis] = given.addressMode[axis];
    described.filter = given.filterMode;
    described.flags = given.flags;
    described.anisotropy = given.maxAnisotropy;
    described.level_filter = given.mipmapFilterMode;
    described.level_bias = given.mipmapLevelBias;
    described.level_min = given.minMipmapLevelClamp;
    described.level_max = given.maxMipmapLevelClamp;
    std::copy(given.borderColor, given.borderColor + 4, described.border.begin());
    return described;
}

wire::TextureView read_view(const CUDA_RESOURCE_VIEW_DESC* given) {
    if (!given) return {};
    return {1,
            static_cast<uint32_t>(given->format),
            given->width,
            given->height,
            given->depth,
            given->firstMipmapLevel,
            given->lastMipmapLevel,
            given->firstLayer,
            given->lastLayer};
}

// Sends `record` and remembers `object` under the value that the driver has chosen.
template <class Record, class Object>
CUresult create(const Record& record, const Object& object, unsigned long long* out) {
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    RemoteCall call(record);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::ImageObjectReply made;
    if (auto result = call.take(made); result != CUDA_SUCCESS) return result;
    LockGuard lock(book<Object>().mutex);
    book<Object>().objects[{context->handle, made.object}] = object;
    *out = made.object;
    return CUDA_SUCCESS;
}

template <class Object, class Use>
CUresult with(unsigned long long value, const void* out, Use&& use) {
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    LockGuard lock(book<Object>().mutex);
    auto& objects = book<Object>().objects;
    auto found = objects.find({context->handle, value});
    return out && found != objects.end() ? use(found->second) : CUDA_ERROR_INVALID_VALUE;
}

template <class Object, class Record>
CUresult destroy(unsigned long long value) {
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    {
        LockGuard lock(book<Object>().mutex);
        if (book<Object>().objects.erase({context->handle, value}) == 0) return CUDA_SUCCESS;  // as NVIDIA's driver
    }
    return RemoteCall(Record{value}).send();
}

template <class Object>
void forget_of(const Context& context) {
    LockGuard lock(book<Object>().mutex);
    std::erase_if(book<Object>().objects, [&](auto& entry) { return entry.first.first == context.handle; });
}

CUresult create_texture(CUtexObject* out, const CUDA_RESOURCE_DESC* resource, const CUDA_TEXTURE_DESC* described,
                        const CUDA_RESOURCE_VIEW_DESC* view) {
    if (!out || !resource || !described) return CUDA_ERROR_INVALID_VALUE;
    wire::CreateTexture<> record;
    if (auto result = read_resource(*resource, record.resource); result != CUDA_SUCCESS) return result;
    record.description = read_description(*described);
    record.view = read_view(view);
    return create(record, Texture{*resource, *described, view != nullptr, view ? *view : CUDA_RESOURCE_VIEW_DESC{}},
                  out);
}

CUresult create_surface(CUsurfObject* out, const CUDA_RESOURCE_DESC* resource) {
    if (!out || !resource || resource->resType != CU_RESOURCE_TYPE_ARRAY || resource->flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    auto* array = find_array(resource->res.array.hArray);
    if (!array) return CUDA_ERROR_INVALID_HANDLE;
    return create(wire::CreateSurface<>{array->number}, Surface(*resource), out);
}

}  // namespace

void forget_textures_of(const Context& context) {
    forget_of<Texture>(context);
    forget_of<Surface>(context);
}

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuTexObjectCreate(CUtexObject* out, const CUDA_RESOURCE_DESC* resource,
                                   const CUDA_TEXTURE_DESC* described, const CUDA_RESOURCE_VIEW_DESC* view) {
    return guarded("cuTexObjectCreate", [&] { return create_texture(out, resource, described, view); });
}
CUresult CUDAAPI cuTexObjectDestroy(CUtexObject value) {
    return guarded("cuTexObjectDestroy", [&] { return destroy<Texture, tnr::wire::DestroyTexture>(value); });
}
CUresult CUDAAPI cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUtexObject value) {
    return guarded("cuTexObjectGetResourceDesc", [&] {
        return with<Texture>(value, out, [&](const Texture& texture) {
            *out = texture.resource;
            return CUDA_SUCCESS;
        });
    });
}
CUresult CUDAAPI cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* out, CUtexObject value) {
    return guarded("cuTexObjectGetTextureDesc", [&] {
        return with<Texture>(value, out, [&](const Texture& texture) {
            *out = texture.described;
            return CUDA_SUCCESS;
        });
    });
}
CUresult CUDAAPI cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* out, CUtexObject value) {
    return guarded("cuTexObjectGetResourceViewDesc", [&] {
        return with<Texture>(value, out, [&](const Texture& texture) {
            if (!texture.has_view) return CUDA_ERROR_INVALID_VALUE;
            *out = texture.view;
            return CUDA_SUCCESS;
        });
    });
}

CUresult CUDAAPI cuSurfObjectCreate(CUsurfObject* out, const CUDA_RESOURCE_DESC* resource) {
    return guarded("cuSurfObjectCreate", [&] { return create_surface(out, resource); });
}
CUresult CUDAAPI cuSurfObjectDestroy(CUsurfObject value) {
    return guarded("cuSurfObjectDestroy", [&] { return destroy<Surface, tnr::wire::DestroySurface>(value); });
}
CUresult CUDAAPI cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUsurfObject value) {
    return guarded("cuSurfObjectGetResourceDesc", [&] {
        return with<Surface>(value, out, [&](const Surface& resource) {
            *out = resource;
            return CUDA_SUCCESS;
        });
    });
}

}  // extern "C"
