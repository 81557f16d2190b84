// What texture and surface instructions read and write: images of texels, and how a texture looks at one. The driver
// builds these; texels lie in row-major order, rows and slices at given distances.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu_server/emulated_gpu/ptx/block_formats.hpp"
#include "gpu_server/emulated_gpu/ptx/tiles.hpp"

namespace tnr::ptx {

enum class TexelType : uint8_t { u8, u16, u32, s8, s16, s32, f16, f32 };

constexpr uint32_t bytes_of(TexelType type) {
    switch (type) {
        case TexelType::u8:
        case TexelType::s8:
            return 1;
        case TexelType::u16:
        case TexelType::s16:
        case TexelType::f16:
            return 2;
        case TexelType::u32:
        case TexelType::s32:
        case TexelType::f32:
            return 4;
    }
    return 4;
}

struct ImageLevel {
    uint64_t texels = 0;                        // address of the first one
    uint32_t width = 1, height = 1, depth = 1;  // in texels; depth counts slices, layers or faces
    uint64_t row_bytes = 0, slice_bytes = 0;    // from one to the next
    // Of a sparse image, or null: then `texels` counts from the beginning of its first tile, as if all tiles lay behind each
    // other. A level that has tiles of its own has in each `tile_rows` rows of `tile_row` bytes, of `tile_slices` slices.
    const Tiles* tiles = nullptr;
    uint64_t first_tile = 0, tile_row = 0, tile_rows = 0, tile_slices = 1, tiles_across = 0, tiles_down = 0;

    // Where a place is, in bytes, rows and slices, and how much of its row lies there. Null: nowhere.
    std::byte* at(uint64_t x, uint64_t y, uint64_t z, uint64_t& bytes) const {
        uint64_t tile = 0, within = texels + z * slice_bytes + y * row_bytes + x;
        if (!tiles) return bytes = row_bytes - x, reinterpret_cast<std::byte*>(within);
        if (tile_rows != 0) {
            tile = ((z / tile_slices) * tiles_down + y / tile_rows) * tiles_across + x / tile_row;
            within = ((z % tile_slices) * tile_rows + y % tile_rows) * tile_row + x % tile_row;
            bytes = tile_row - x % tile_row;
        } else {
            tile = within / tile_bytes;
            within %= tile_bytes;
            bytes = tile_bytes - within;
        }
        auto* place = tiles->at(first_tile + tile);
        return place ? place + within : nullptr;
    }
    std::byte* at(uint64_t x, uint64_t y, uint64_t z) const {
        uint64_t bytes = 0;
        return at(x, y, z, bytes);
    }
    // Without the first slices; of a sparse image, layers.
    void skip(uint64_t slices) {
        if (tile_rows != 0)
            first_tile += slices * tiles_down * tiles_across;
        else
            texels += slices * slice_bytes;
        depth -= static_cast<uint32_t>(slices);
    }
};

struct Image {
    TexelType type = TexelType::f32;
    uint32_t channels = 1;  // 1, 2 or 4
    // Instead of that, unless none: rows are rows of blocks, while width and height of levels count texels.
    BlockFormat blocks = BlockFormat::none;
    bool srgb = false;        // colors are always read as sRGB, whatever the texture says
    bool fractions = false;   // integers that mean fractions, however they are read (CU_AD_FORMAT_UNORM_...)
    uint32_t dimensions = 1;  // of one layer; a face of a cube has two
    bool layered = false, cube = false;
    bool in_memory = false;  // of the program: it may be freed meanwhile, so each access is checked
    bool gatherable = true;
    std::vector<ImageLevel> levels;
    std::shared_ptr<const void> keeps;  // owns the texels, unless they are in_memory

    uint32_t texel_bytes() const { return bytes_of(type) * channels; }
    // What rows are made of, and how many texels it is wide and high.
    uint32_t unit_bytes() const { return blocks == BlockFormat::none ? texel_bytes() : block_bytes_of(blocks); }
    uint32_t unit_side() const { return blocks == BlockFormat::none ? 1 : block_side; }
    uint32_t units(uint32_t texels) const { return texels / unit_side() + (texels % unit_side() != 0); }
    bool is_signed() const { return type == TexelType::s8 || type == TexelType::s16 || type == TexelType::s32; }
    bool is_real() const { return type == TexelType::f16 || type == TexelType::f32; }
};

enum class Addressing : uint8_t { wrap, clamp, mirror, border };

struct Texture {
    Image image;
    std::array<Addressing, 3> addressing{Addressing::clamp, Addressing::clamp, Addressing::clamp};
    bool linear = false;         // filter between texels
    bool linear_levels = false;  // and between levels
    bool normalized = false;     // coordinates: 1 is the image's whole extent
    bool as_integer = false;     // small integers are not made fractions
    bool srgb = false;
    bool seamless = false;  // filter across the edges of a cube
    float level_bias = 0, level_min = 0, level_max = 0;
    std::array<float, 4> border{};

    // Does it give real numbers, or integers?
    bool gives_reals() const {
        if (image.is_real() || image.fractions || image.blocks != BlockFormat::none) return true;
        return bytes_of(image.type) < 4 && !as_integer;
    }
};

}  // namespace tnr::ptx
