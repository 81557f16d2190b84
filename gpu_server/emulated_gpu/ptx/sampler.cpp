// See sampler.hpp.
#include "gpu_server/emulated_gpu/ptx/sampler.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "gpu_server/emulated_gpu/ptx/access.hpp"
#include "gpu_server/emulated_gpu/ptx/half.hpp"

namespace tnr::ptx {
namespace {

// Far beyond every image, and far enough from where integers end.
constexpr double index_limit = 1e15;

int64_t whole(double value) {
    if (std::isnan(value)) return 0;
    return static_cast<int64_t>(std::floor(std::clamp(value, -index_limit, index_limit)));
}

// The index that the address mode makes of another; -1: the border's color.
int64_t settle(int64_t index, int64_t size, Addressing mode) {
    if (size == 0) return -1;
    if (index >= 0 && index < size) return index;
    switch (mode) {
        case Addressing::wrap:
            return ((index % size) + size) % size;
        case Addressing::mirror: {
            int64_t at = ((index % (2 * size)) + 2 * size) % (2 * size);
            return at < size ? at : 2 * size - 1 - at;
        }
        case Addressing::clamp:
            return index < 0 ? 0 : size - 1;
        case Addressing::border:
            return -1;
    }
    return -1;
}

// A coordinate's place within what repeats, which has 1 for its side; exact however far away that is.
double within_period(double at, Addressing mode) {
    bool repeats = mode == Addressing::wrap || mode == Addressing::mirror;
    if (!repeats || !std::isfinite(at)) return at;
    return mode == Addressing::wrap ? at - std::floor(at) : at - 2 * std::floor(at / 2);
}

float linear_of(float srgb) {
    return srgb <= 0.04045f ? srgb / 12.92f : std::pow((srgb + 0.055f) / 1.055f, 2.4f);
}

template <class T>
T load(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

uint32_t bits_of(float value) {
    return std::bit_cast<uint32_t>(value);
}

// One face of a cube: which coordinates run along it, and in which direction.
struct Face {
    int main, s, t;
    float main_sign, s_sign, t_sign;
};
constexpr Face faces[6] = {{0, 2, 1, 1, -1, -1}, {0, 2, 1, -1, 1, -1}, {1, 0, 2, 1, 1, 1},
                           {1, 0, 2, -1, 1, -1}, {2, 0, 1, 1, 1, -1},  {2, 0, 1, -1, -1, -1}};

uint32_t face_of(const std::array<float, 3>& at) {
    float x = std::fabs(at[0]), y = std::fabs(at[1]), z = std::fabs(at[2]);
    if (x > y && x > z) return at[0] < 0 ? 1 : 0;
    if (y > z) return at[1] < 0 ? 3 : 2;
    return at[2] < 0 ? 5 : 4;
}

}  // namespace

// A direction becomes coordinates of the face that it meets.
TexturePoint Sampler::on_face(const TexturePoint& point) const {
    auto number = face_of(point.at);
    auto& face = faces[number];
    float main = std::fabs(point.at[face.main]);
    TexturePoint result = point;
    result.at[0] = main == 0 ? 0.5f : (point.at[face.s] * face.s_sign / main + 1) / 2;
    result.at[1] = main == 0 ? 0.5f : (point.at[face.t] * face.t_sign / main + 1) / 2;
    auto cubes = int64_t{texture_.image.levels[0].depth} / 6;
    auto cube = std::clamp<int64_t>(static_cast<int32_t>(point.layer), 0, cubes - 1);
    result.layer = static_cast<uint32_t>(cube) * 6 + number;
    return result;
}

uint32_t Sampler::layer_of(const ImageLevel& level, const TexturePoint& point) const {
    auto& image = texture_.image;
    if (!image.layered && !image.cube) return 0;
    auto layer = static_cast<int32_t>(point.layer);  // one before the first is the first
    return static_cast<uint32_t>(std::clamp<int64_t>(layer, 0, int64_t{level.depth} - 1));
}

Sampler::Footprint Sampler::footprint(const ImageLevel& level, const TexturePoint& point, bool filtered) const {
    Footprint result;
    const uint32_t sizes[3] = {level.width, level.height, level.depth};
    for (uint32_t axis = 0; axis < texture_.image.dimensions; ++axis) {
        if (point.exact) {
            result.first[axis] = point.texel[axis];
            continue;
        }
        double at = point.at[axis];
        if (texture_.image.cube)
            at *= sizes[axis];
        else if (texture_.normalized)
            at = within_period(at, texture_.addressing[axis]) * sizes[axis];
        if (!filtered) {
            result.first[axis] = whole(at);
            continue;
        }
        int64_t fixed = whole((at - 0.5) * 256 + 0.5);
        result.first[axis] = fixed >> 8;
        result.next[axis] = static_cast<float>(fixed & 255) / 256;
    }
    return result;
}

// A texel beside a face is one of the face that lies there.
bool Sampler::cross_edge(const ImageLevel& level, std::array<int64_t, 3>& texel, uint32_t& layer) const {
    auto size = static_cast<float>(level.width);
    bool outside = texel[0] < 0 || texel[1] < 0 || texel[0] >= level.width || texel[1] >= level.height;
    if (!outside) return false;
    auto& face = faces[layer % 6];
    TexturePoint direction;
    direction.at[face.main] = face.main_sign;
    direction.at[face.s] = face.s_sign * ((static_cast<float>(texel[0]) + 0.5f) / size * 2 - 1);
    direction.at[face.t] = face.t_sign * ((static_cast<float>(texel[1]) + 0.5f) / size * 2 - 1);
    direction.layer = layer / 6;
    auto there = on_face(direction);
    layer = there.layer;
    for (int axis = 0; axis < 2; ++axis)
        texel[axis] = std::clamp<int64_t>(whole(double{there.at[axis]} * level.width), 0, int64_t{level.width} - 1);
    return true;
}

bool Sampler::resolve(const ImageLevel& level, std::array<int64_t, 3> texel, uint32_t layer, Place& place) const {
    auto& image = texture_.image;
    if (image.cube && texture_.seamless) cross_edge(level, texel, layer);
    const uint32_t sizes[3] = {level.width, level.height, level.depth};
    for (uint32_t axis = 0; axis < image.dimensions; ++axis) {
        auto mode = texture_.addressing[axis];
        bool repeats = mode == Addressing::wrap || mode == Addressing::mirror;
        if (repeats && (!texture_.normalized || image.cube)) mode = Addressing::clamp;
        if (image.in_memory && image.dimensions == 1)
            mode = Addressing::border;  // linear memory has none: zero outside
        texel[axis] = settle(texel[axis], sizes[axis], mode);
        if (texel[axis] < 0) return false;
    }
    bool stacked = image.layered || image.cube;
    place = {texel[0], texel[1], stacked ? int64_t{layer} : texel[2]};
    return true;
}

const std::byte* Sampler::texel_at(const ImageLevel& level, const Place& place) {
    static constexpr std::byte nothing[16]{};
    auto bytes = texture_.image.texel_bytes();
    auto* texel = level.at(static_cast<uint64_t>(place.x) * bytes, static_cast<uint64_t>(place.y),
                           static_cast<uint64_t>(place.z));
    resident_ = resident_ && texel;
    if (!texture_.image.in_memory) return texel ? texel : nothing;
    const auto address = reinterpret_cast<uint64_t>(texel);
    auto* found = global_pointer(worker_, address, bytes);
    if (found) return found;
    if (!failed_) fault_ = address;
    failed_ = true;
    return nullptr;
}

// Only arrays have blocks.
Sampler::Reals Sampler::texel_in_block(const ImageLevel& level, const Place& place) {
    const auto format = texture_.image.blocks;
    const auto x = static_cast<uint64_t>(place.x), y = static_cast<uint64_t>(place.y);
    auto* block = level.at(x / block_side * block_bytes_of(format), y / block_side, static_cast<uint64_t>(place.z));
    resident_ = resident_ && block;
    if (!block) return {};
    auto result =
        texel_of_block(format, block, static_cast<uint32_t>(x % block_side), static_cast<uint32_t>(y % block_side));
    if (texture_.srgb)
        for (int channel = 0; channel < 3; ++channel) result[channel] = linear_of(result[channel]);
    return result;
}

Sample Sampler::raw(const std::byte* texel) const {
    Sample result{};
    auto type = texture_.image.type;
    for (uint32_t channel = 0; channel < texture_.image.channels; ++channel) {
        auto* at = texel + channel * bytes_of(type);
        switch (type) {
            case TexelType::u8:
                result[channel] = load<uint8_t>(at);
                break;
            case TexelType::s8:
                result[channel] = static_cast<uint32_t>(int32_t{load<int8_t>(at)});
                break;
            case TexelType::u16:
                result[channel] = load<uint16_t>(at);
                break;
            case TexelType::s16:
                result[channel] = static_cast<uint32_t>(int32_t{load<int16_t>(at)});
                break;
            case TexelType::f16:
                result[channel] = bits_of(half_to_float(load<uint16_t>(at)));
                break;
            case TexelType::u32:
            case TexelType::s32:
            case TexelType::f32:
                result[channel] = load<uint32_t>(at);
                break;
        }
    }
    return result;
}

// Channels that an image lacks read as 0.
Sampler::Reals Sampler::real(const std::byte* texel) const {
    auto& image = texture_.image;
    Reals result{};
    auto values = raw(texel);
    for (uint32_t channel = 0; channel < image.channels; ++channel) {
        if (image.is_real()) {
            result[channel] = std::bit_cast<float>(values[channel]);
            continue;
        }
        auto most = static_cast<float>((uint64_t{1} << (8 * bytes_of(image.type) - (image.is_signed() ? 1 : 0))) - 1);
        result[channel] = image.is_signed()
                              ? std::max(static_cast<float>(static_cast<int32_t>(values[channel])) / most, -1.0f)
                              : static_cast<float>(values[channel]) / most;
        if (texture_.srgb && channel < 3) result[channel] = linear_of(result[channel]);
    }
    return result;
}

Sampler::Reals Sampler::texel_or_border(const ImageLevel& level, const std::array<int64_t, 3>& texel, uint32_t layer) {
    Place place;
    if (!resolve(level, texel, layer, place))
        return texture_.image.in_memory && texture_.image.dimensions == 1 ? Reals{} : texture_.border;
    if (texture_.image.blocks != BlockFormat::none) return texel_in_block(level, place);
    auto* found = texel_at(level, place);
    return found ? real(found) : Reals{};
}

Sampler::Reals Sampler::blended(const ImageLevel& level, const TexturePoint& point) {
    auto print = footprint(level, point, true);
    auto layer = layer_of(level, point);
    Reals sum{};
    for (uint32_t corner = 0; corner < 1u << texture_.image.dimensions; ++corner) {
        auto texel = print.first;
        float weight = 1;
        for (uint32_t axis = 0; axis < texture_.image.dimensions; ++axis) {
            bool next = corner >> axis & 1;
            texel[axis] += next;
            weight *= next ? print.next[axis] : 1 - print.next[axis];
        }
        if (weight == 0) continue;
        auto values = texel_or_border(level, texel, layer);
        for (int channel = 0; channel < 4; ++channel) sum[channel] += weight * values[channel];
    }
    return sum;
}

Sample Sampler::nearest(const ImageLevel& level, const TexturePoint& point) {
    auto print = footprint(level, point, false);
    auto layer = layer_of(level, point);
    if (texture_.gives_reals()) {
        auto values = texel_or_border(level, print.first, layer);
        return {bits_of(values[0]), bits_of(values[1]), bits_of(values[2]), bits_of(values[3])};
    }
    Place place;
    if (!resolve(level, print.first, layer, place)) {
        Sample border{};
        if (texture_.image.in_memory) return border;
        for (int channel = 0; channel < 4; ++channel)
            border[channel] = static_cast<uint32_t>(whole(double{texture_.border[channel]}));
        return border;
    }
    auto* found = texel_at(level, place);
    return found ? raw(found) : Sample{};
}

bool Sampler::sample(const TexturePoint& given, Sample& result) {
    auto& levels = texture_.image.levels;
    auto point = texture_.image.cube ? on_face(given) : given;
    bool filtered = texture_.linear && !point.exact && texture_.gives_reals();
    auto of_level = [&](size_t index) -> Sample {
        if (!filtered) return nearest(levels[index], point);
        auto values = blended(levels[index], point);
        return {bits_of(values[0]), bits_of(values[1]), bits_of(values[2]), bits_of(values[3])};
    };
    auto last = static_cast<float>(levels.size() - 1);
    if (point.exact) {  // a texel of a level, whatever the texture says of levels
        float level = point.level > 0 ? std::min(point.level, last) : 0;
        result = nearest(levels[static_cast<size_t>(level)], point);
        return !failed_;
    }
    float wanted = point.level + texture_.level_bias;
    if (!(wanted >= texture_.level_min)) wanted = texture_.level_min;
    wanted = std::min(wanted, texture_.level_max);
    float level = wanted > 0 ? std::min(wanted, last) : 0;  // of NaN, too: clamps may be anything
    if (!texture_.linear_levels || !texture_.gives_reals()) {
        result = of_level(static_cast<size_t>(std::floor(level + 0.5f)));
        return !failed_;
    }
    float fixed = std::floor(level * 256 + 0.5f) / 256;
    auto below = static_cast<size_t>(fixed);
    float share = fixed - static_cast<float>(below);
    result = of_level(below);
    if (share == 0) return !failed_;
    auto above = of_level(below + 1);
    for (int channel = 0; channel < 4; ++channel)
        result[channel] =
            bits_of((1 - share) * std::bit_cast<float>(result[channel]) + share * std::bit_cast<float>(above[channel]));
    return !failed_;
}

// In the order of the four texels that shaders know: below left, below right, above right, above left.
bool Sampler::gather(const TexturePoint& given, uint32_t channel, Sample& result) {
    auto& level = texture_.image.levels[0];
    auto point = texture_.image.cube ? on_face(given) : given;
    auto print = footprint(level, point, true);
    auto layer = layer_of(level, point);
    constexpr int steps[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
    for (int corner = 0; corner < 4; ++corner) {
        auto texel = print.first;
        texel[0] += steps[corner][0];
        texel[1] += steps[corner][1];
        if (texture_.gives_reals()) {
            result[corner] = bits_of(texel_or_border(level, texel, layer)[channel]);
            continue;
        }
        Place place;
        auto* found = resolve(level, texel, layer, place) ? texel_at(level, place) : nullptr;
        result[corner] = found ? raw(found)[channel] : 0;
    }
    return !failed_;
}

float Sampler::level_of(const std::array<float, 3>& dx, const std::array<float, 3>& dy) const {
    auto& level = texture_.image.levels[0];
    const uint32_t sizes[3] = {level.width, level.height, level.depth};
    auto length = [&](const std::array<float, 3>& step) {
        double sum = 0;
        uint32_t axes = texture_.image.cube ? 3 : texture_.image.dimensions;
        for (uint32_t axis = 0; axis < axes; ++axis) {
            bool normalized = texture_.normalized || texture_.image.cube;
            double scale = texture_.image.cube ? level.width / 2.0 : normalized ? sizes[axis] : 1;
            sum += std::pow(step[axis] * scale, 2);
        }
        return std::sqrt(sum);
    };
    return static_cast<float>(std::log2(std::max(length(dx), length(dy))));
}

}  // namespace tnr::ptx
