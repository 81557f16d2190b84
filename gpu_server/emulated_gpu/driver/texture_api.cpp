// cuTexObject* and cuSurfObject*.
#include "gpu_server/emulated_gpu/driver/texture.hpp"

using namespace tnr::emulated;

namespace {

// An object of the current context.
template <class T, class Use>
CUresult with(unsigned long long handle, const void* out, Use&& use) {
    return in_context([&](Context& context) -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        auto object = find<T>(handle);
        if (!object || object->destroyed || &object->context != &context) return CUDA_ERROR_INVALID_VALUE;
        return use(*object);
    });
}

// NVIDIA's driver does not mind what is not there: null, or something that is destroyed already.
template <class T>
CUresult destroy(unsigned long long handle) {
    return in_context([&](Context& context) {
        auto object = find<T>(handle);
        if (object && &object->context == &context) destroy_later(*object);
        return CUDA_SUCCESS;
    });
}

}  // namespace

CUresult cuTexObjectCreate(CUtexObject* out, const CUDA_RESOURCE_DESC* resource, const CUDA_TEXTURE_DESC* description,
                           const CUDA_RESOURCE_VIEW_DESC* view) {
    return in_context([&](Context& context) -> CUresult {
        if (!out || !resource || !description) return CUDA_ERROR_INVALID_VALUE;
        std::shared_ptr<const tnr::ptx::Texture> texture;
        if (CUresult error = make_texture(context, *resource, *description, view, texture)) return error;
        auto object = driver().registry.add(
            std::make_shared<TextureObject>(context, *resource, *description, view, std::move(texture)));
        context.own(object->handle());
        *out = object->handle();
        return CUDA_SUCCESS;
    });
}
CUresult cuTexObjectDestroy(CUtexObject handle) {
    return destroy<TextureObject>(handle);
}
CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUtexObject handle) {
    return with<TextureObject>(handle, out, [&](TextureObject& object) {
        *out = object.resource;
        return CUDA_SUCCESS;
    });
}
CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* out, CUtexObject handle) {
    return with<TextureObject>(handle, out, [&](TextureObject& object) {
        *out = object.description;
        return CUDA_SUCCESS;
    });
}
CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* out, CUtexObject handle) {
    return with<TextureObject>(handle, out, [&](TextureObject& object) -> CUresult {
        if (!object.has_view) return CUDA_ERROR_INVALID_VALUE;
        *out = object.view;
        return CUDA_SUCCESS;
    });
}

CUresult cuSurfObjectCreate(CUsurfObject* out, const CUDA_RESOURCE_DESC* resource) {
    return in_context([&](Context& context) -> CUresult {
        if (!out || !resource) return CUDA_ERROR_INVALID_VALUE;
        std::shared_ptr<const tnr::ptx::Image> image;
        if (CUresult error = make_surface(*resource, image)) return error;
        auto object = driver().registry.add(std::make_shared<SurfaceObject>(context, *resource, std::move(image)));
        context.own(object->handle());
        *out = object->handle();
        return CUDA_SUCCESS;
    });
}
CUresult cuSurfObjectDestroy(CUsurfObject handle) {
    return destroy<SurfaceObject>(handle);
}
CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUsurfObject handle) {
    return with<SurfaceObject>(handle, out, [&](SurfaceObject& object) {
        *out = object.resource;
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* out, CUarray_format format, unsigned channels, CUdevice device) {
    return initialized([&]() -> CUresult {
        tnr::ptx::TexelType type{};
        bool fractions = false;
        if (!out || !texels_of(format, channels, type, fractions)) return CUDA_ERROR_INVALID_VALUE;
        int width = 0;
        CUresult result = cuDeviceGetAttribute(&width, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, device);
        if (result == CUDA_SUCCESS) *out = static_cast<size_t>(width);
        return result;
    });
}
