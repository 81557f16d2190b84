// cuArray* and cuMipmappedArray*.
#include <algorithm>
#include <bit>

#include "gpu_server/emulated_gpu/driver/array.hpp"
#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/texture.hpp"
#include "gpu_server/emulated_gpu/driver/tiled_memory.hpp"

using namespace tnr::emulated;

namespace {

CUDA_ARRAY3D_DESCRIPTOR in_3d(const CUDA_ARRAY_DESCRIPTOR& given) {
    CUDA_ARRAY3D_DESCRIPTOR result{};
    result.Width = given.Width;
    result.Height = given.Height;
    result.Format = given.Format;
    result.NumChannels = given.NumChannels;
    return result;
}

// Its memory, now or as it is mapped; planes have their own. Fills `tiled` in the latter case.
CUresult allocate(Device& device, const CUDA_ARRAY3D_DESCRIPTOR& given, tnr::ptx::Image& image, unsigned levels,
                  bool mipmapped, std::shared_ptr<TiledMemory>& tiled) {
    uint64_t bytes = 0;
    if (tnr::wire::planes_of(given.Format) != 0) return mipmapped ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    if (!tnr::wire::is_tiled(given)) return allocate_levels(device, image, levels, bytes);
    tiled = TiledMemory::create(given, image, levels, mipmapped);
    return tiled ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& given) {
    return in_context([&](Context& context) -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = refuse_unsafe()) return error;
        tnr::ptx::Image image;
        if (CUresult error = image_of(given, image)) return error;
        std::shared_ptr<TiledMemory> tiled;
        if (CUresult error = allocate(context.device, given, image, 1, false, tiled)) return error;
        auto array = std::make_shared<Array>(context, given, std::move(image));
        array->tiled = std::move(tiled);
        if (CUresult error = make_planes(*array)) return error;
        driver().registry.add(array);
        context.own(array->handle());
        *out = array->as<CUarray>();
        return CUDA_SUCCESS;
    });
}

// Its memory goes back once nothing uses it; waits, as freeing memory does.
template <class T, class Handle>
CUresult destroy(Handle handle) {
    return initialized([&]() -> CUresult {
        auto object = find<T>(handle);
        if (!object) return CUDA_ERROR_INVALID_HANDLE;
        if (CUresult error = status_of(object->context)) return error;
        if (CUresult error = refuse_unsafe()) return error;
        if constexpr (std::is_same_v<T, Array>)
            if (object->is_part) return CUDA_SUCCESS;
        object->context.synchronize();
        if (!driver().registry.remove(object->handle())) return CUDA_ERROR_INVALID_HANDLE;
        object->context.disown(object->handle());
        object->dismiss();
        sweep_destroyed(object->context);
        return CUDA_SUCCESS;
    });
}

template <class T, class Handle, class Use>
CUresult with(Handle handle, const void* out, Use&& use) {
    return initialized([&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        auto object = find<T>(handle);
        if (!object) return CUDA_ERROR_INVALID_HANDLE;
        return use(*object);
    });
}

}  // namespace

CUresult cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* given) {
    return given ? create(out, in_3d(*given)) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* given) {
    return given ? create(out, *given) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuArrayDestroy(CUarray handle) {
    return destroy<Array>(handle);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
    return with<Array>(handle, out, [&](Array& array) {
        auto& described = array.descriptor;
        *out = {described.Width, described.Height, described.Format, described.NumChannels};
        return CUDA_SUCCESS;
    });
}
CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
    return with<Array>(handle, out, [&](Array& array) {
        *out = array.descriptor;
        return CUDA_SUCCESS;
    });
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* given, unsigned levels) {
    return in_context([&](Context& context) -> CUresult {
        if (!out || !given || levels == 0) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = refuse_unsafe()) return error;
        tnr::ptx::Image image;
        if (CUresult error = image_of(*given, image)) return error;
        auto& whole = image.levels[0];
        bool stacked = image.layered || image.cube;
        auto longest = std::max({whole.width, whole.height, stacked ? 1u : whole.depth});
        levels = std::min(levels, static_cast<unsigned>(std::bit_width(longest)));
        std::shared_ptr<TiledMemory> tiled;
        if (CUresult error = allocate(context.device, *given, image, levels, true, tiled)) return error;
        auto array = std::make_shared<MipmappedArray>(context, *given, std::move(image));
        array->tiled = std::move(tiled);
        driver().registry.add(array);
        context.own(array->handle());
        *out = array->as<CUmipmappedArray>();
        return CUDA_SUCCESS;
    });
}
CUresult cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray handle, unsigned level) {
    return with<MipmappedArray>(handle, out, [&](MipmappedArray& array) -> CUresult {
        if (level >= array.image.levels.size()) return CUDA_ERROR_INVALID_VALUE;
        *out = array.level(level)->as<CUarray>();
        return CUDA_SUCCESS;
    });
}
CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
    return destroy<MipmappedArray>(handle);
}

CUresult cuArrayGetPlane(CUarray* out, CUarray handle, unsigned plane) {
    return with<Array>(handle, out, [&](Array& array) -> CUresult {
        if (plane >= array.planes.size()) return CUDA_ERROR_INVALID_VALUE;
        *out = array.planes[plane]->as<CUarray>();
        return CUDA_SUCCESS;
    });
}
