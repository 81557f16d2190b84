// What texture and surface instructions have in common: shapes of images, [handle, {coordinates}], and finding what a
// handle stands for.
#pragma once

#include "gpu_server/emulated_gpu/ptx/access.hpp"
#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/image.hpp"

namespace tnr::ptx {

enum class Geometry : uint8_t { line, square, box, lines, squares, cube, cubes };

constexpr bool is_layered(Geometry geometry) {
    return geometry == Geometry::lines || geometry == Geometry::squares || geometry == Geometry::cubes;
}
// Coordinates beside the layer.
constexpr uint32_t axes_of(Geometry geometry) {
    switch (geometry) {
        case Geometry::line:
        case Geometry::lines:
            return 1;
        case Geometry::square:
        case Geometry::squares:
            return 2;
        default:
            return 3;
    }
}
// May an instruction of that shape look at the image?
bool fits(Geometry geometry, const Image& image);

// Takes .1d, .2d, ... False if the instruction names none that we know.
bool take_geometry(Decoder& d, Geometry& geometry);

struct ImageOperand {
    RegRef handle = 0;
    RegRef layer = 0;
    RegRef axes[3] = {};
};
// `type`: of the coordinates; a layer is always an integer.
ImageOperand decode_image(Decoder& d, const ast::Operand& memory, Geometry geometry, Type type);
// The handle alone: [handle].
RegRef decode_image_handle(Decoder& d, const ast::Operand& memory);

// Remembers what the lanes before had, which is nearly always the same. Null after a fault.
template <class Found, std::shared_ptr<const Found> (Memory::*lookup)(uint64_t) const>
class FoundImage {
public:
    explicit FoundImage(Warp& warp) : warp_(warp) {}
    const Found* find(uint64_t handle, uint32_t lane, const char* kind) {
        if (found_ && handle == handle_) return found_.get();
        auto* memory = warp_.worker->grid->launch->memory;
        found_ = memory ? (memory->*lookup)(handle) : nullptr;
        handle_ = handle;
        if (!found_) {
            fault(warp_, Outcome::illegal_address, lane, std::string("there is no ") + kind + " of that handle");
            return nullptr;
        }
        return found_.get();
    }

private:
    Warp& warp_;
    uint64_t handle_ = 0;
    std::shared_ptr<const Found> found_;
};
using FoundTexture = FoundImage<Texture, &Memory::texture>;
using FoundSurface = FoundImage<Image, &Memory::surface>;

// How PTX (after OpenCL) numbers formats.
uint32_t channel_type_of(const Image& image);
uint32_t channel_order_of(const Image& image);

}  // namespace tnr::ptx
