// cuTexRef* and cuSurfRef*, which CUDA has deprecated.
#include <algorithm>

#include "gpu_server/emulated_gpu/driver/module.hpp"

using namespace tnr::emulated;

namespace {

template <class Change>
CUresult change(CUtexref handle, Change&& change) {
    return in_context([&](Context&) -> CUresult {
        auto reference = find<TextureReference>(handle);
        return reference ? reference->change(change) : CUDA_ERROR_INVALID_HANDLE;
    });
}

template <class Read>
CUresult read(CUtexref handle, const void* out, Read&& read) {
    return in_context([&](Context&) -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        auto reference = find<TextureReference>(handle);
        return reference ? read(reference->get()) : CUDA_ERROR_INVALID_HANDLE;
    });
}

// Sets one field of the description.
template <class Field, class Value>
CUresult set(CUtexref handle, Field CUDA_TEXTURE_DESC::*field, Value value) {
    return change(handle, [&](TextureBinding& binding) {
        binding.description.*field = value;
        return CUDA_SUCCESS;
    });
}

template <class Field, class Value>
CUresult get(Value* out, CUtexref handle, Field CUDA_TEXTURE_DESC::*field) {
    return read(handle, out, [&](const TextureBinding& binding) {
        *out = static_cast<Value>(binding.description.*field);
        return CUDA_SUCCESS;
    });
}

CUresult find_reference(CUmodule handle, const char* name, tnr::ptx::Reference kind, std::shared_ptr<Module>& module,
                        size_t& index) {
    if (!name) return CUDA_ERROR_INVALID_VALUE;
    module = find<Module>(handle);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    auto& globals = module->code->globals();
    index = global_index(*module->code, name);
    return index < globals.size() && globals[index].reference == kind ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// What is bound must be something that a texture can be made of.
CUresult bind(Context& context, TextureBinding& binding, const CUDA_RESOURCE_DESC& resource) {
    std::shared_ptr<const tnr::ptx::Texture> texture;
    binding.resource = resource;
    auto described = binding.description;
    if (resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) described.flags |= CU_TRSF_NORMALIZED_COORDINATES;
    CUresult result = make_texture(context, resource, described, nullptr, texture);
    binding.bound = result == CUDA_SUCCESS;
    return result;
}

template <class Fill>
CUresult bind(CUtexref handle, Fill&& fill) {
    return in_context([&](Context& context) {
        return change(handle, [&](TextureBinding& binding) {
            CUDA_RESOURCE_DESC resource{};
            fill(binding, resource);
            return bind(context, binding, resource);
        });
    });
}

}  // namespace

CUresult cuModuleGetTexRef(CUtexref* out, CUmodule handle, const char* name) {
    return in_context([&](Context&) -> CUresult {
        std::shared_ptr<Module> module;
        size_t index = 0;
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = find_reference(handle, name, tnr::ptx::Reference::texture, module, index)) return error;
        *out = module->references.texture(index)->as<CUtexref>();
        return CUDA_SUCCESS;
    });
}
CUresult cuModuleGetSurfRef(CUsurfref* out, CUmodule handle, const char* name) {
    return in_context([&](Context&) -> CUresult {
        std::shared_ptr<Module> module;
        size_t index = 0;
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = find_reference(handle, name, tnr::ptx::Reference::surface, module, index)) return error;
        *out = module->references.surface(index)->as<CUsurfref>();
        return CUDA_SUCCESS;
    });
}

// References of no module have settings, but no kernel reads them.
CUresult cuTexRefCreate(CUtexref* out) {
    return in_context([&](Context& context) -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        auto reference = driver().registry.add(std::make_shared<TextureReference>());
        context.own(reference->handle());
        *out = reference->as<CUtexref>();
        return CUDA_SUCCESS;
    });
}
CUresult cuTexRefDestroy(CUtexref handle) {
    return in_context([&](Context& context) -> CUresult {
        auto reference = find<TextureReference>(handle);
        if (!reference || !driver().registry.remove(reference->handle())) return CUDA_ERROR_INVALID_HANDLE;
        context.disown(reference->handle());
        return CUDA_SUCCESS;
    });
}

CUresult cuTexRefSetArray(CUtexref handle, CUarray array, unsigned flags) {
    if (flags != CU_TRSA_OVERRIDE_FORMAT) return CUDA_ERROR_INVALID_VALUE;
    return bind(handle, [&](TextureBinding& binding, CUDA_RESOURCE_DESC& resource) {
        resource.resType = CU_RESOURCE_TYPE_ARRAY;
        resource.res.array.hArray = array;
        if (auto found = find<Array>(array)) {
            binding.format = found->descriptor.Format;
            binding.channels = found->descriptor.NumChannels;
        }
    });
}
CUresult cuTexRefSetMipmappedArray(CUtexref handle, CUmipmappedArray array, unsigned flags) {
    if (flags != CU_TRSA_OVERRIDE_FORMAT) return CUDA_ERROR_INVALID_VALUE;
    return bind(handle, [&](TextureBinding&, CUDA_RESOURCE_DESC& resource) {
        resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
        resource.res.mipmap.hMipmappedArray = array;
    });
}
CUresult cuTexRefSetAddress_v2(size_t* offset, CUtexref handle, CUdeviceptr address, size_t bytes) {
    if (offset) *offset = 0;
    return bind(handle, [&](TextureBinding& binding, CUDA_RESOURCE_DESC& resource) {
        resource.resType = CU_RESOURCE_TYPE_LINEAR;
        resource.res.linear = {address, binding.format, binding.channels, bytes};
    });
}
CUresult cuTexRefSetAddress2D_v3(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR* described, CUdeviceptr address,
                                 size_t pitch) {
    if (!described) return CUDA_ERROR_INVALID_VALUE;
    return bind(handle, [&](TextureBinding& binding, CUDA_RESOURCE_DESC& resource) {
        binding.format = described->Format;
        binding.channels = described->NumChannels;
        resource.resType = CU_RESOURCE_TYPE_PITCH2D;
        resource.res.pitch2D = {address,          described->Format, described->NumChannels,
                                described->Width, described->Height, pitch};
    });
}
CUresult cuTexRefSetAddress2D_v2(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR* described, CUdeviceptr address,
                                 size_t pitch) {
    return cuTexRefSetAddress2D_v3(handle, described, address, pitch);
}

CUresult cuTexRefSetFormat(CUtexref handle, CUarray_format format, int channels) {
    tnr::ptx::TexelType type{};
    bool fractions = false;
    if (!texels_of(format, static_cast<unsigned>(channels), type, fractions)) return CUDA_ERROR_INVALID_VALUE;
    return change(handle, [&](TextureBinding& binding) {
        binding.format = format;
        binding.channels = static_cast<unsigned>(channels);
        return CUDA_SUCCESS;
    });
}
CUresult cuTexRefGetFormat(CUarray_format* format, int* channels, CUtexref handle) {
    return read(handle, handle, [&](const TextureBinding& binding) {
        if (format) *format = binding.format;
        if (channels) *channels = static_cast<int>(binding.channels);
        return CUDA_SUCCESS;
    });
}

CUresult cuTexRefSetAddressMode(CUtexref handle, int axis, CUaddress_mode mode) {
    const bool known = mode >= CU_TR_ADDRESS_MODE_WRAP && mode <= CU_TR_ADDRESS_MODE_BORDER;
    if (axis < 0 || axis > 2 || !known) return CUDA_ERROR_INVALID_VALUE;
    return change(handle, [&](TextureBinding& binding) {
        binding.description.addressMode[axis] = mode;
        return CUDA_SUCCESS;
    });
}
CUresult cuTexRefGetAddressMode(CUaddress_mode* out, CUtexref handle, int axis) {
    if (axis < 0 || axis > 2) return CUDA_ERROR_INVALID_VALUE;
    return read(handle, out, [&](const TextureBinding& binding) {
        *out = binding.description.addressMode[axis];
        return CUDA_SUCCESS;
    });
}

CUresult cuTexRefSetFilterMode(CUtexref handle, CUfilter_mode mode) {
    return is_filter(mode) ? set(handle, &CUDA_TEXTURE_DESC::filterMode, mode) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuTexRefGetFilterMode(CUfilter_mode* out, CUtexref handle) {
    return get(out, handle, &CUDA_TEXTURE_DESC::filterMode);
}
CUresult cuTexRefSetMipmapFilterMode(CUtexref handle, CUfilter_mode mode) {
    return is_filter(mode) ? set(handle, &CUDA_TEXTURE_DESC::mipmapFilterMode, mode) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuTexRefGetMipmapFilterMode(CUfilter_mode* out, CUtexref handle) {
    return get(out, handle, &CUDA_TEXTURE_DESC::mipmapFilterMode);
}
CUresult cuTexRefSetMipmapLevelBias(CUtexref handle, float bias) {
    return set(handle, &CUDA_TEXTURE_DESC::mipmapLevelBias, bias);
}
CUresult cuTexRefGetMipmapLevelBias(float* out, CUtexref handle) {
    return get(out, handle, &CUDA_TEXTURE_DESC::mipmapLevelBias);
}
CUresult cuTexRefSetMipmapLevelClamp(CUtexref handle, float least, float most) {
    return change(handle, [&](TextureBinding& binding) {
        binding.description.minMipmapLevelClamp = least;
        binding.description.maxMipmapLevelClamp = most;
        return CUDA_SUCCESS;
    });
}
CUresult cuTexRefGetMipmapLevelClamp(float* least, float* most, CUtexref handle) {
    CUresult result = get(least, handle, &CUDA_TEXTURE_DESC::minMipmapLevelClamp);
    return result == CUDA_SUCCESS ? get(most, handle, &CUDA_TEXTURE_DESC::maxMipmapLevelClamp) : result;
}
CUresult cuTexRefSetMaxAnisotropy(CUtexref handle, unsigned most) {
    return set(handle, &CUDA_TEXTURE_DESC::maxAnisotropy, most);
}
CUresult cuTexRefGetMaxAnisotropy(int* out, CUtexref handle) {
    return get(out, handle, &CUDA_TEXTURE_DESC::maxAnisotropy);
}
CUresult cuTexRefSetBorderColor(CUtexref handle, float* color) {
    if (!color) return CUDA_ERROR_INVALID_VALUE;
    return change(handle, [&](TextureBinding& binding) {
        std::copy(color, color + 4, binding.description.borderColor);
        return CUDA_SUCCESS;
    });
}
CUresult cuTexRefGetBorderColor(float* out, CUtexref handle) {
    return read(handle, out, [&](const TextureBinding& binding) {
        std::copy(binding.description.borderColor, binding.description.borderColor + 4, out);
        return CUDA_SUCCESS;
    });
}
CUresult cuTexRefSetFlags(CUtexref handle, unsigned flags) {
    constexpr unsigned known = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB |
                               CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION;
    return flags & ~known ? CUDA_ERROR_INVALID_VALUE : set(handle, &CUDA_TEXTURE_DESC::flags, flags);
}
CUresult cuTexRefGetFlags(unsigned* out, CUtexref handle) {
    return get(out, handle, &CUDA_TEXTURE_DESC::flags);
}

CUresult cuTexRefGetArray(CUarray* out, CUtexref handle) {
    return read(handle, out, [&](const TextureBinding& binding) -> CUresult {
        if (!binding.bound || binding.resource.resType != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
        *out = binding.resource.res.array.hArray;
        return CUDA_SUCCESS;
    });
}
CUresult cuTexRefGetMipmappedArray(CUmipmappedArray* out, CUtexref handle) {
    return read(handle, out, [&](const TextureBinding& binding) -> CUresult {
        if (!binding.bound || binding.resource.resType != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
            return CUDA_ERROR_INVALID_VALUE;
        *out = binding.resource.res.mipmap.hMipmappedArray;
        return CUDA_SUCCESS;
    });
}
CUresult cuTexRefGetAddress_v2(CUdeviceptr* out, CUtexref handle) {
    return read(handle, out, [&](const TextureBinding& binding) -> CUresult {
        if (!binding.bound) return CUDA_ERROR_INVALID_VALUE;
        if (binding.resource.resType == CU_RESOURCE_TYPE_LINEAR)
            *out = binding.resource.res.linear.devPtr;
        else if (binding.resource.resType == CU_RESOURCE_TYPE_PITCH2D)
            *out = binding.resource.res.pitch2D.devPtr;
        else
            return CUDA_ERROR_INVALID_VALUE;
        return CUDA_SUCCESS;
    });
}

// A module's references are at its kernels' service anyway.
CUresult cuParamSetTexRef(CUfunction function, int unit, CUtexref handle) {
    return in_context([&](Context& context) -> CUresult {
        std::shared_ptr<Function> found;
        if (CUresult error = function_of(context, function, found)) return error;
        if (unit != CU_PARAM_TR_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
        return find<TextureReference>(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    });
}

CUresult cuSurfRefSetArray(CUsurfref handle, CUarray array, unsigned flags) {
    return in_context([&](Context&) -> CUresult {
        auto reference = find<SurfaceReference>(handle);
        if (!reference) return CUDA_ERROR_INVALID_HANDLE;
        if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
        return reference->change([&](SurfaceBinding& binding) {
            std::shared_ptr<const tnr::ptx::Image> image;
            binding.resource.resType = CU_RESOURCE_TYPE_ARRAY;
            binding.resource.res.array.hArray = array;
            CUresult result = make_surface(binding.resource, image);
            binding.bound = result == CUDA_SUCCESS;
            return result;
        });
    });
}
CUresult cuSurfRefGetArray(CUarray* out, CUsurfref handle) {
    return in_context([&](Context&) -> CUresult {
        auto reference = find<SurfaceReference>(handle);
        if (!reference) return CUDA_ERROR_INVALID_HANDLE;
        auto binding = reference->get();
        if (!out || !binding.bound) return CUDA_ERROR_INVALID_VALUE;
        *out = binding.resource.res.array.hArray;
        return CUDA_SUCCESS;
    });
}
