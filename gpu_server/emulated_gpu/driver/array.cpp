// See array.hpp.
#include "gpu_server/emulated_gpu/driver/array.hpp"

#include <algorithm>
#include <bit>

#include "gpu_client/protocol/array_charge.hpp"
#include "gpu_client/protocol/array_limits.hpp"
#include "gpu_server/emulated_gpu/driver/memory.hpp"
#include "gpu_server/emulated_gpu/driver/pool.hpp"

namespace tnr::emulated {
namespace {

// Rows begin at multiples of this, so that any texel is aligned.
constexpr uint64_t row_alignment = 64;

constexpr unsigned flags_known = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
                                 CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_DEPTH_TEXTURE |
                                 CUDA_ARRAY3D_COLOR_ATTACHMENT | CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING |
                                 CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
// These belong to graphics.
constexpr unsigned flags_refused = CUDA_ARRAY3D_DEPTH_TEXTURE;

// A picture, of as many whole texels as each of its colors.
bool is_picture(const CUDA_ARRAY3D_DESCRIPTOR& given) {
    const bool flat = given.Height != 0 && given.Depth == 0 && !wire::is_stacked(given);
    auto* video = wire::find_video_format(given.Format);
    if (!video) return flat;
    return flat && given.NumChannels == video->channels && given.Width % video->across == 0 &&
           given.Height % video->down == 0;
}

bool is_sound(const CUDA_ARRAY3D_DESCRIPTOR& given) {
    bool layered = given.Flags & CUDA_ARRAY3D_LAYERED, cube = given.Flags & CUDA_ARRAY3D_CUBEMAP;
    if (given.Width == 0 || (given.Flags & ~flags_known)) return false;
    if (layered && given.Depth == 0) return false;
    if (!layered && given.Depth != 0 && given.Height == 0) return false;
    if (cube && (given.Width != given.Height || given.Depth % 6 != 0 || given.Depth == 0)) return false;
    if (cube && !layered && given.Depth != 6) return false;
    // Nothing writes single texels of blocks, and no line has any.
    const bool blocks = wire::block_bytes_of(given.Format) != 0;
    if (blocks && (given.Height == 0 || (given.Flags & CUDA_ARRAY3D_SURFACE_LDST))) return false;
    const bool sparse = given.Flags & CUDA_ARRAY3D_SPARSE;
    if (sparse && (given.Height == 0 || cube || (given.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING))) return false;
    // cuda.h: gathers are of 2D arrays only.
    const bool square = given.Height != 0 && given.Depth == 0;
    if ((given.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) && !square) return false;
    const bool video = (given.Flags & CUDA_ARRAY3D_VIDEO_ENCODE_DECODE) || wire::find_video_format(given.Format);
    if (video && !is_picture(given)) return false;
    return wire::fits_limits(given, [](CUdevice_attribute attribute) { return image_limit(attribute); });
}

struct BlockMeaning {
    CUarray_format format;
    ptx::BlockFormat blocks;
    unsigned channels;
    bool srgb = false;
};
constexpr BlockMeaning block_meanings[] = {{CU_AD_FORMAT_BC1_UNORM, ptx::BlockFormat::bc1, 4},
                                           {CU_AD_FORMAT_BC1_UNORM_SRGB, ptx::BlockFormat::bc1, 4, true},
                                           {CU_AD_FORMAT_BC2_UNORM, ptx::BlockFormat::bc2, 4},
                                           {CU_AD_FORMAT_BC2_UNORM_SRGB, ptx::BlockFormat::bc2, 4, true},
                                           {CU_AD_FORMAT_BC3_UNORM, ptx::BlockFormat::bc3, 4},
                                           {CU_AD_FORMAT_BC3_UNORM_SRGB, ptx::BlockFormat::bc3, 4, true},
                                           {CU_AD_FORMAT_BC4_UNORM, ptx::BlockFormat::bc4_unsigned, 1},
                                           {CU_AD_FORMAT_BC4_SNORM, ptx::BlockFormat::bc4_signed, 1},
                                           {CU_AD_FORMAT_BC5_UNORM, ptx::BlockFormat::bc5_unsigned, 2},
                                           {CU_AD_FORMAT_BC5_SNORM, ptx::BlockFormat::bc5_signed, 2},
                                           {CU_AD_FORMAT_BC6H_UF16, ptx::BlockFormat::bc6h, 3},
                                           {CU_AD_FORMAT_BC6H_SF16, ptx::BlockFormat::bc6h, 3},
                                           {CU_AD_FORMAT_BC7_UNORM, ptx::BlockFormat::bc7, 4},
                                           {CU_AD_FORMAT_BC7_UNORM_SRGB, ptx::BlockFormat::bc7, 4, true}};

// False if the format is not one of blocks, or has another number of channels.
bool blocks_of(CUarray_format format, unsigned channels, ptx::Image& image) {
    for (auto& meaning : block_meanings) {
        if (meaning.format != format || meaning.channels != channels) continue;
        image.blocks = meaning.blocks;
        image.srgb = meaning.srgb;
        image.type = ptx::TexelType::u8;  // what a kernel that asks is told
        image.fractions = true;
        return true;
    }
    return false;
}

}  // namespace

size_t image_limit(CUdevice_attribute attribute) {
    int value = 0;
    cuDeviceGetAttribute(&value, attribute, 0);
    return static_cast<size_t>(value);
}

bool texels_of(CUarray_format format, unsigned channels, ptx::TexelType& type, bool& fractions) {
    using ptx::TexelType;
    fractions = false;
    auto plain = [&](TexelType found) {
        type = found;
        return channels == 1 || channels == 2 || channels == 4;
    };
    auto packed = [&](TexelType found, unsigned count) {
        type = found;
        fractions = true;
        return channels == count;
    };
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
            return plain(TexelType::u8);
        case CU_AD_FORMAT_UNSIGNED_INT16:
            return plain(TexelType::u16);
        case CU_AD_FORMAT_UNSIGNED_INT32:
            return plain(TexelType::u32);
        case CU_AD_FORMAT_SIGNED_INT8:
            return plain(TexelType::s8);
        case CU_AD_FORMAT_SIGNED_INT16:
            return plain(TexelType::s16);
        case CU_AD_FORMAT_SIGNED_INT32:
            return plain(TexelType::s32);
        case CU_AD_FORMAT_HALF:
            return plain(TexelType::f16);
        case CU_AD_FORMAT_FLOAT:
            return plain(TexelType::f32);
        case CU_AD_FORMAT_UNORM_INT8X1:
            return packed(TexelType::u8, 1);
        case CU_AD_FORMAT_UNORM_INT8X2:
            return packed(TexelType::u8, 2);
        case CU_AD_FORMAT_UNORM_INT8X4:
            return packed(TexelType::u8, 4);
        case CU_AD_FORMAT_UNORM_INT16X1:
            return packed(TexelType::u16, 1);
        case CU_AD_FORMAT_UNORM_INT16X2:
            return packed(TexelType::u16, 2);
        case CU_AD_FORMAT_UNORM_INT16X4:
            return packed(TexelType::u16, 4);
        case CU_AD_FORMAT_SNORM_INT8X1:
            return packed(TexelType::s8, 1);
        case CU_AD_FORMAT_SNORM_INT8X2:
            return packed(TexelType::s8, 2);
        case CU_AD_FORMAT_SNORM_INT8X4:
            return packed(TexelType::s8, 4);
        case CU_AD_FORMAT_SNORM_INT16X1:
            return packed(TexelType::s16, 1);
        case CU_AD_FORMAT_SNORM_INT16X2:
            return packed(TexelType::s16, 2);
        case CU_AD_FORMAT_SNORM_INT16X4:
            return packed(TexelType::s16, 4);
        default:
            return false;
    }
}

CUresult image_of(const CUDA_ARRAY3D_DESCRIPTOR& given, ptx::Image& image) {
    if (!is_sound(given)) return CUDA_ERROR_INVALID_VALUE;
    if (given.Flags & flags_refused) return CUDA_ERROR_NOT_SUPPORTED;
    auto* video = wire::find_video_format(given.Format);
    if (video && wire::is_tiled(given)) return CUDA_ERROR_NOT_SUPPORTED;
    if (video)
        image.type = video->bytes == 1 ? ptx::TexelType::u8 : ptx::TexelType::u16;
    else if (!texels_of(given.Format, given.NumChannels, image.type, image.fractions) &&
             !blocks_of(given.Format, given.NumChannels, image))
        return CUDA_ERROR_INVALID_VALUE;
    image.channels = given.NumChannels;
    image.layered = given.Flags & CUDA_ARRAY3D_LAYERED;
    image.cube = given.Flags & CUDA_ARRAY3D_CUBEMAP;
    image.gatherable = given.Flags & CUDA_ARRAY3D_TEXTURE_GATHER;
    bool stacked = image.layered || image.cube;
    image.dimensions = given.Height == 0 ? 1 : given.Depth == 0 || stacked ? 2 : 3;
    auto at_least_one = [](size_t size) { return static_cast<uint32_t>(std::max<size_t>(size, 1)); };
    image.levels = {{0, at_least_one(given.Width), at_least_one(given.Height), at_least_one(given.Depth), 0, 0}};
    return CUDA_SUCCESS;
}

void lay_out_levels(ptx::Image& image, unsigned levels, uint64_t& bytes) {
    auto first = image.levels[0];
    bool stacked = image.layered || image.cube;
    image.levels.clear();
    bytes = 0;
    for (unsigned index = 0; index < levels; ++index) {
        auto level = first;
        level.width = std::max(first.width >> index, 1u);
        level.height = std::max(first.height >> index, 1u);
        if (!stacked) level.depth = std::max(first.depth >> index, 1u);
        const uint64_t row = uint64_t{image.units(level.width)} * image.unit_bytes();
        level.row_bytes = (row + row_alignment - 1) & ~(row_alignment - 1);
        level.slice_bytes = level.row_bytes * image.units(level.height);
        level.texels = bytes;
        bytes += level.slice_bytes * level.depth;  // at most 2^21 * 2^16 * 2^14: no overflow
        image.levels.push_back(level);
    }
}

CUresult allocate_levels(Device& device, ptx::Image& image, unsigned levels, uint64_t& bytes) {
    lay_out_levels(image, levels, bytes);
    bytes = granules(bytes);
    if (bytes > device.memory_total || !charge(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t address = device.arena.allocate(bytes);
    if (!address) {
        device.refund(bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (auto& level : image.levels) level.texels += address;
    image.keeps = std::make_shared<ArrayMemory>(device, address, bytes);
    return CUDA_SUCCESS;
}

ArrayMemory::~ArrayMemory() {
    device_.arena.release(address_, bytes_);
    device_.refund(bytes_);
}

CUresult make_planes(Array& array) {
    std::vector<std::shared_ptr<Array>> made;
    for (unsigned index = 0; index < wire::planes_of(array.descriptor.Format); ++index) {
        const auto described =
            wire::plane_of(array.descriptor, *wire::find_video_format(array.descriptor.Format), index);
        ptx::Image image;
        uint64_t bytes = 0;
        if (CUresult error = image_of(described, image)) return error;
        if (CUresult error = allocate_levels(array.context.device, image, 1, bytes)) return error;
        made.push_back(std::make_shared<Array>(array.context, described, std::move(image)));
        made.back()->is_part = true;
    }
    for (auto& plane : made) driver().registry.add(plane);
    array.planes = std::move(made);
    return CUDA_SUCCESS;
}

void Array::dismiss() {
    for (auto& plane : planes) driver().registry.remove(plane->handle());
}

std::shared_ptr<Array> MipmappedArray::level(unsigned index) {
    LockGuard lock(mutex_);
    levels_.resize(image.levels.size());
    auto& known = levels_[index];
    if (known) return known;
    auto part = image;
    part.levels = {image.levels[index]};
    auto described = descriptor;
    bool stacked = image.layered || image.cube;
    described.Width = part.levels[0].width;
    if (described.Height != 0) described.Height = part.levels[0].height;
    if (described.Depth != 0 && !stacked) described.Depth = part.levels[0].depth;
    known = std::make_shared<Array>(context, described, part);
    known->is_part = true;
    driver().registry.add(known);
    return known;
}

void MipmappedArray::dismiss() {
    std::vector<std::shared_ptr<Array>> levels;
    {
        LockGuard lock(mutex_);
        levels.swap(levels_);
    }
    for (auto& level : levels)
        if (level) driver().registry.remove(level->handle());
}

}  // namespace tnr::emulated
