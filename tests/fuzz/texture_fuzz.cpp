// A texture described by the input, sampled where the input says. Images have the sizes that their descriptions allow and
// lie in memory of just that size, so that a sanitizer sees a texel that is read beside them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gpu_server/emulated_gpu/ptx/machine.hpp"
#include "gpu_server/emulated_gpu/ptx/sampler.hpp"

using namespace tnr::ptx;

namespace {

class Input {
public:
    Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}
    template <class T>
    T get() {
        T value{};
        auto size = std::min(sizeof value, left_);
        std::memcpy(&value, data_, size);
        data_ += size;
        left_ -= size;
        return value;
    }
    bool flag() { return get<uint8_t>() & 1; }
    uint32_t upto(uint32_t most) { return get<uint8_t>() % most + 1; }
    bool empty() const { return left_ == 0; }

private:
    const uint8_t* data_;
    size_t left_;
};

Texture described(Input& in, std::vector<std::vector<std::byte>>& texels) {
    Texture texture;
    auto& image = texture.image;
    image.type = static_cast<TexelType>(in.get<uint8_t>() % 8);
    image.channels = 1u << in.get<uint8_t>() % 3;
    image.fractions = in.flag() && !image.is_real();
    image.cube = in.flag();
    image.layered = in.flag();
    image.dimensions = image.cube ? 2 : image.layered ? in.upto(2) : in.upto(3);
    uint32_t width = in.upto(19), height = image.dimensions > 1 ? in.upto(7) : 1, depth = in.upto(4);
    if (image.cube) height = width, depth = image.layered ? 6 * depth : 6;
    if (!image.cube && !image.layered && image.dimensions < 3) depth = 1;
    for (uint32_t index = 0, levels = in.upto(5); index < levels; ++index) {
        ImageLevel level;
        level.width = std::max(width >> index, 1u);
        level.height = std::max(height >> index, 1u);
        level.depth = image.cube || image.layered ? depth : std::max(depth >> index, 1u);
        level.row_bytes = uint64_t{level.width} * image.texel_bytes();
        level.slice_bytes = level.row_bytes * level.height;
        texels.emplace_back(level.slice_bytes * level.depth);
        level.texels = reinterpret_cast<uint64_t>(texels.back().data());
        image.levels.push_back(level);
    }
    for (auto& mode : texture.addressing) mode = static_cast<Addressing>(in.get<uint8_t>() % 4);
    texture.linear = in.flag();
    texture.linear_levels = in.flag();
    texture.normalized = in.flag();
    texture.as_integer = in.flag();
    texture.srgb = in.flag() && image.type == TexelType::u8;
    texture.seamless = in.flag() && image.cube;
    texture.level_bias = in.get<float>();
    texture.level_min = in.get<float>();
    texture.level_max = in.get<float>();
    for (auto& channel : texture.border) channel = in.get<float>();
    return texture;
}

std::array<float, 3> axes(Input& in) {
    return {in.get<float>(), in.get<float>(), in.get<float>()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Input in(data, size);
    std::vector<std::vector<std::byte>> texels;
    auto texture = described(in, texels);
    Worker worker;
    while (!in.empty()) {
        Sampler sampler(worker, texture);
        TexturePoint point;
        point.exact = in.flag() && !texture.image.cube;
        point.at = axes(in);
        for (auto& texel : point.texel) texel = in.get<int32_t>();
        point.layer = in.get<uint32_t>();
        point.level = in.flag() ? in.get<float>() : sampler.level_of(axes(in), axes(in));
        Sample result{};
        sampler.sample(point, result);
        if (texture.image.dimensions == 2) sampler.gather(point, in.get<uint8_t>() % 4, result);
    }
    return 0;
}
