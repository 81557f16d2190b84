// See texture.hpp.
#include "gpu_server/emulated_gpu/driver/texture.hpp"

#include <algorithm>
#include <map>

#include "gpu_client/protocol/video_formats.hpp"
#include "gpu_server/emulated_gpu/driver/memory.hpp"

namespace tnr::emulated {
namespace {

bool is_aligned(uint64_t value, CUdevice_attribute unit) {
    return value % image_limit(unit) == 0;
}

CUresult linear_image(Context& context, const CUDA_RESOURCE_DESC& resource, ptx::Image& image) {
    auto& linear = resource.res.linear;
    if (!texels_of(linear.format, linear.numChannels, image.type, image.fractions)) return CUDA_ERROR_INVALID_VALUE;
    image.channels = linear.numChannels;
    image.in_memory = true;
    size_t texels = linear.sizeInBytes / image.texel_bytes();
    if (texels > image_limit(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH)) return CUDA_ERROR_INVALID_VALUE;
    bool sound = is_aligned(linear.devPtr, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) &&
                 usable(context, linear.devPtr, std::max(linear.sizeInBytes, size_t{1}));
    image.levels = {{linear.devPtr, static_cast<uint32_t>(texels), 1, 1, linear.sizeInBytes, linear.sizeInBytes}};
    return sound ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult pitched_image(Context& context, const CUDA_RESOURCE_DESC& resource, ptx::Image& image) {
    auto& pitched = resource.res.pitch2D;
    if (!texels_of(pitched.format, pitched.numChannels, image.type, image.fractions)) return CUDA_ERROR_INVALID_VALUE;
    image.channels = pitched.numChannels;
    image.in_memory = true;
    image.dimensions = 2;
    bool sound = pitched.width <= image_limit(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH) &&
                 pitched.height <= image_limit(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT) &&
                 pitched.pitchInBytes <= image_limit(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH) &&
                 is_aligned(pitched.devPtr, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) &&
                 is_aligned(pitched.pitchInBytes, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT) &&
                 pitched.pitchInBytes >= pitched.width * image.texel_bytes();
    if (!sound) return CUDA_ERROR_INVALID_VALUE;
    uint64_t last_row = pitched.height == 0 ? 0 : pitched.height - 1;
    uint64_t bytes = pitched.pitchInBytes * last_row + pitched.width * image.texel_bytes();
    image.levels = {{pitched.devPtr, static_cast<uint32_t>(pitched.width), static_cast<uint32_t>(pitched.height), 1,
                     pitched.pitchInBytes, pitched.pitchInBytes * pitched.height}};
    return usable(context, pitched.devPtr, std::max(bytes, uint64_t{1})) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// What is in planes is sampled plane by plane; what a GPU makes of packed formats nobody has written down.
CUresult refuse_video(CUarray_format format) {
    auto* video = wire::find_video_format(format);
    if (!video) return CUDA_SUCCESS;
    if (video->planar()) return CUDA_ERROR_INVALID_VALUE;
    say_once("textures and surfaces in packed video formats are not emulated");
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult image_of(Context& context, const CUDA_RESOURCE_DESC& resource, ptx::Image& image) {
    switch (resource.resType) {
        case CU_RESOURCE_TYPE_ARRAY: {
            auto array = find<Array>(resource.res.array.hArray);
            if (!array) return CUDA_ERROR_INVALID_HANDLE;
            image = array->image;
            return refuse_video(array->descriptor.Format);
        }
        case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
            auto array = find<MipmappedArray>(resource.res.mipmap.hMipmappedArray);
            if (!array) return CUDA_ERROR_INVALID_HANDLE;
            image = array->image;
            return refuse_video(array->descriptor.Format);
        }
        case CU_RESOURCE_TYPE_LINEAR:
            return linear_image(context, resource, image);
        case CU_RESOURCE_TYPE_PITCH2D:
            return pitched_image(context, resource, image);
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

struct ViewFormat {
    CUarray_format format;
    unsigned channels;
};

// Views in 1, 2 and 4 channels follow each other, type by type.
bool format_of(CUresourceViewFormat view, ViewFormat& result) {
    static constexpr CUarray_format types[] = {
        CU_AD_FORMAT_UNSIGNED_INT8,  CU_AD_FORMAT_SIGNED_INT8,  CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_SIGNED_INT16,
        CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32, CU_AD_FORMAT_HALF,           CU_AD_FORMAT_FLOAT};
    if (view < CU_RES_VIEW_FORMAT_UINT_1X8 || view > CU_RES_VIEW_FORMAT_FLOAT_4X32) return false;
    unsigned index = view - CU_RES_VIEW_FORMAT_UINT_1X8;
    result = {types[index / 3], 1u << index % 3};
    return true;
}

// BlockFormat::none for views that are not of blocks.
ptx::BlockFormat blocks_of(CUresourceViewFormat view) {
    using ptx::BlockFormat;
    switch (view) {
        case CU_RES_VIEW_FORMAT_UNSIGNED_BC1:
            return BlockFormat::bc1;
        case CU_RES_VIEW_FORMAT_UNSIGNED_BC2:
            return BlockFormat::bc2;
        case CU_RES_VIEW_FORMAT_UNSIGNED_BC3:
            return BlockFormat::bc3;
        case CU_RES_VIEW_FORMAT_UNSIGNED_BC4:
            return BlockFormat::bc4_unsigned;
        case CU_RES_VIEW_FORMAT_SIGNED_BC4:
            return BlockFormat::bc4_signed;
        case CU_RES_VIEW_FORMAT_UNSIGNED_BC5:
            return BlockFormat::bc5_unsigned;
        case CU_RES_VIEW_FORMAT_SIGNED_BC5:
            return BlockFormat::bc5_signed;
        case CU_RES_VIEW_FORMAT_UNSIGNED_BC6H:
        case CU_RES_VIEW_FORMAT_SIGNED_BC6H:
            return BlockFormat::bc6h;
        case CU_RES_VIEW_FORMAT_UNSIGNED_BC7:
            return BlockFormat::bc7;
        default:
            return BlockFormat::none;
    }
}

// A texel of the array is a block of the texture.
CUresult look_at_blocks(const CUDA_RESOURCE_VIEW_DESC& view, ptx::Image& image) {
    const bool is_of_blocks = image.blocks != ptx::BlockFormat::none;
    image.blocks = blocks_of(view.format);
    if (image.blocks == ptx::BlockFormat::none) return CUDA_ERROR_INVALID_VALUE;
    auto& whole = image.levels[0];
    const bool fits = !is_of_blocks && image.type == ptx::TexelType::u32 &&
                      image.texel_bytes() == ptx::block_bytes_of(image.blocks) && image.dimensions == 2 &&
                      view.width == size_t{whole.width} * ptx::block_side &&
                      view.height == size_t{whole.height} * ptx::block_side;
    if (!fits) return CUDA_ERROR_INVALID_VALUE;
    for (size_t index = 0; index < image.levels.size(); ++index) {
        image.levels[index].width = std::max(static_cast<uint32_t>(view.width) >> index, 1u);
        image.levels[index].height = std::max(static_cast<uint32_t>(view.height) >> index, 1u);
    }
    return CUDA_SUCCESS;
}

CUresult look_as(const CUDA_RESOURCE_VIEW_DESC& view, ptx::Image& image) {
    ViewFormat format{};
    auto bytes = image.texel_bytes();
    if (!format_of(view.format, format)) return look_at_blocks(view, image);
    if (image.blocks != ptx::BlockFormat::none) return CUDA_ERROR_INVALID_VALUE;
    texels_of(format.format, format.channels, image.type, image.fractions);
    image.channels = format.channels;
    return image.texel_bytes() == bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Another format of the same size, and a part of the levels and layers.
CUresult look_through(const CUDA_RESOURCE_VIEW_DESC& view, ptx::Image& image) {
    if (view.format != CU_RES_VIEW_FORMAT_NONE)
        if (CUresult error = look_as(view, image)) return error;
    auto& whole = image.levels[0];
    if (view.width > whole.width || view.height > whole.height || view.depth > whole.depth)
        return CUDA_ERROR_INVALID_VALUE;
    if (view.firstMipmapLevel > view.lastMipmapLevel || view.lastMipmapLevel >= image.levels.size())
        return CUDA_ERROR_INVALID_VALUE;
    image.levels.erase(image.levels.begin() + view.lastMipmapLevel + 1, image.levels.end());
    image.levels.erase(image.levels.begin(), image.levels.begin() + view.firstMipmapLevel);
    if (view.firstLayer > view.lastLayer) return CUDA_ERROR_INVALID_VALUE;
    if (!image.layered) return view.lastLayer == 0 || image.cube ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (auto& level : image.levels) {
        if (view.lastLayer >= level.depth) return CUDA_ERROR_INVALID_VALUE;
        level.skip(view.firstLayer);
        level.depth = view.lastLayer - view.firstLayer + 1;
    }
    return image.cube && image.levels[0].depth % 6 != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

constexpr unsigned texture_flags = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB |
                                   CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION | CU_TRSF_SEAMLESS_CUBEMAP;

CUresult describe(const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& given, ptx::Texture& texture) {
    if ((given.flags & ~texture_flags) || !is_filter(given.filterMode) || !is_filter(given.mipmapFilterMode))
        return CUDA_ERROR_INVALID_VALUE;
    texture.normalized = given.flags & CU_TRSF_NORMALIZED_COORDINATES;
    if (resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY && !texture.normalized) return CUDA_ERROR_INVALID_VALUE;
    texture.seamless = given.flags & CU_TRSF_SEAMLESS_CUBEMAP;
    if (texture.seamless && !texture.image.cube) return CUDA_ERROR_INVALID_VALUE;
    for (int axis = 0; axis < 3; ++axis) {
        auto mode = given.addressMode[axis];
        if (mode < CU_TR_ADDRESS_MODE_WRAP || mode > CU_TR_ADDRESS_MODE_BORDER) return CUDA_ERROR_INVALID_VALUE;
        texture.addressing[axis] = static_cast<ptx::Addressing>(mode);  // the same values
    }
    texture.linear = given.filterMode == CU_TR_FILTER_MODE_LINEAR && resource.resType != CU_RESOURCE_TYPE_LINEAR;
    texture.linear_levels = given.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
    texture.as_integer = given.flags & CU_TRSF_READ_AS_INTEGER;
    bool has_colors = texture.image.blocks != ptx::BlockFormat::none ? ptx::has_colors(texture.image.blocks)
                                                                     : texture.image.type == ptx::TexelType::u8;
    texture.srgb = ((given.flags & CU_TRSF_SRGB) || texture.image.srgb) && has_colors;
    texture.level_bias = given.mipmapLevelBias;
    texture.level_min = given.minMipmapLevelClamp;
    texture.level_max = given.maxMipmapLevelClamp;
    std::copy(given.borderColor, given.borderColor + 4, texture.border.begin());
    return CUDA_SUCCESS;
}

struct Destroyed {
    Mutex mutex;
    std::map<Context*, std::vector<uint64_t>> handles TNR_GUARDED_BY(mutex);
};
Destroyed& destroyed_objects() {
    static auto* all = new Destroyed;
    return *all;
}

}  // namespace

bool destroy_later(KernelObject& object) {
    if (object.destroyed.exchange(true)) return false;
    {
        LockGuard lock(destroyed_objects().mutex);
        destroyed_objects().handles[&object.context].push_back(object.handle());
    }
    sweep_destroyed(object.context);
    return true;
}

void sweep_destroyed(Context& context) {
    std::vector<uint64_t> handles;
    {
        LockGuard lock(destroyed_objects().mutex);
        handles.swap(destroyed_objects().handles[&context]);
    }
    if (!context.idle()) {  // asked afterwards: what is launched later does not name them
        LockGuard lock(destroyed_objects().mutex);
        auto& kept = destroyed_objects().handles[&context];
        kept.insert(kept.end(), handles.begin(), handles.end());
        return;
    }
    for (auto handle : handles) {
        driver().registry.remove(handle);
        context.disown(handle);
    }
}

CUresult make_texture(Context& context, const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& description,
                      const CUDA_RESOURCE_VIEW_DESC* view, std::shared_ptr<const ptx::Texture>& texture) {
    if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
    auto fresh = std::make_shared<ptx::Texture>();
    if (CUresult error = image_of(context, resource, fresh->image)) return error;
    bool of_array = resource.resType == CU_RESOURCE_TYPE_ARRAY || resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    if (view && !of_array) return CUDA_ERROR_INVALID_VALUE;
    if (view)
        if (CUresult error = look_through(*view, fresh->image)) return error;
    if (!ptx::is_decoded(fresh->image.blocks)) {
        say_once("textures in the formats BC6H and BC7 are not emulated");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (CUresult error = describe(resource, description, *fresh)) return error;
    texture = std::move(fresh);
    return CUDA_SUCCESS;
}

CUresult make_surface(const CUDA_RESOURCE_DESC& resource, std::shared_ptr<const ptx::Image>& image) {
    if (resource.resType != CU_RESOURCE_TYPE_ARRAY || resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
    auto array = find<Array>(resource.res.array.hArray);
    if (!array) return CUDA_ERROR_INVALID_HANDLE;
    if (array->image.blocks != ptx::BlockFormat::none) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = refuse_video(array->descriptor.Format)) return error;
    // Whether it was made for it (CUDA_ARRAY3D_SURFACE_LDST) or not: NVIDIA's driver does not ask, either.
    image = std::make_shared<ptx::Image>(array->image);
    return CUDA_SUCCESS;
}

}  // namespace tnr::emulated
