// How a texture is sampled, after the CUDA programming guide's chapter on texture fetching: coordinates to texels,
// address modes, filtering with weights of 8 fractional bits, levels of mipmaps, faces of cubes.
#pragma once

#include "gpu_server/emulated_gpu/ptx/image.hpp"

namespace tnr::ptx {

struct Worker;

// Four channels: bits of floats, or integers, as Texture::gives_reals() says.
using Sample = std::array<uint32_t, 4>;

struct TexturePoint {
    std::array<float, 3> at{};
    std::array<int32_t, 3> texel{};  // instead, if `exact`
    bool exact = false;
    uint32_t layer = 0;
    float level = 0;  // before bias and clamps, of which there are none if `exact`
};

class Sampler {
public:
    Sampler(Worker& worker, const Texture& texture) : worker_(worker), texture_(texture) {}

    // False if a texel may not be read: fault_address() says which.
    bool sample(const TexturePoint& point, Sample& result);
    // One channel of the four texels that a filter would blend.
    bool gather(const TexturePoint& point, uint32_t channel, Sample& result);
    // The level whose texels are as far apart as the steps say.
    float level_of(const std::array<float, 3>& dx, const std::array<float, 3>& dy) const;
    uint64_t fault_address() const { return fault_; }
    // Of a sparse texture: was every texel somewhere?
    bool resident() const { return resident_; }

private:
    using Reals = std::array<float, 4>;
    struct Place {
        int64_t x = 0, y = 0, z = 0;
    };
    // Where a point falls in one level: the first texel, and how much of the next.
    struct Footprint {
        std::array<int64_t, 3> first{};
        std::array<float, 3> next{};
    };

    TexturePoint on_face(const TexturePoint& point) const;
    Footprint footprint(const ImageLevel& level, const TexturePoint& point, bool filtered) const;
    bool resolve(const ImageLevel& level, std::array<int64_t, 3> texel, uint32_t layer, Place& place) const;
    bool cross_edge(const ImageLevel& level, std::array<int64_t, 3>& texel, uint32_t& layer) const;
    Reals texel_in_block(const ImageLevel& level, const Place& place);
    const std::byte* texel_at(const ImageLevel& level, const Place& place);
    Sample raw(const std::byte* texel) const;
    Reals real(const std::byte* texel) const;
    Reals texel_or_border(const ImageLevel& level, const std::array<int64_t, 3>& texel, uint32_t layer);
    Reals blended(const ImageLevel& level, const TexturePoint& point);
    Sample nearest(const ImageLevel& level, const TexturePoint& point);
    uint32_t layer_of(const ImageLevel& level, const TexturePoint& point) const;

    Worker& worker_;
    const Texture& texture_;
    uint64_t fault_ = 0;
    bool failed_ = false;
    bool resident_ = true;
};

}  // namespace tnr::ptx
