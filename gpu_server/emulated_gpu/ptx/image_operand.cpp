// See image_operand.hpp.
#include "gpu_server/emulated_gpu/ptx/image_operand.hpp"

namespace tnr::ptx {

bool fits(Geometry geometry, const Image& image) {
    bool cube = geometry == Geometry::cube || geometry == Geometry::cubes;
    if (cube) return image.cube && image.layered == is_layered(geometry);
    if (image.cube) return geometry == Geometry::squares;  // its faces, one by one
    return image.layered == is_layered(geometry) && image.dimensions == axes_of(geometry);
}

bool take_geometry(Decoder& d, Geometry& geometry) {
    static constexpr std::pair<std::string_view, Geometry> names[] = {
        {"1d", Geometry::line},     {"2d", Geometry::square}, {"3d", Geometry::box},     {"a1d", Geometry::lines},
        {"a2d", Geometry::squares}, {"cube", Geometry::cube}, {"acube", Geometry::cubes}};
    for (auto [name, meaning] : names)
        if (d.take(name)) {
            geometry = meaning;
            return true;
        }
    return false;
}

namespace {

bool is_image_operand(Decoder& d, const ast::Operand& memory, size_t parts) {
    if (memory.kind == ast::Operand::Kind::memory && memory.parts.size() == parts && memory.value == 0) return true;
    d.fail(parts == 1 ? "expected a texture or surface in [ ]"
                      : "expected a texture or surface and its coordinates in [ ]");
    return false;
}

}  // namespace

RegRef decode_image_handle(Decoder& d, const ast::Operand& memory) {
    return is_image_operand(d, memory, 1) ? d.source(memory.parts[0], Type::u64) : 0;
}

ImageOperand decode_image(Decoder& d, const ast::Operand& memory, Geometry geometry, Type type) {
    ImageOperand result;
    if (!is_image_operand(d, memory, 2)) return result;
    result.handle = d.source(memory.parts[0], Type::u64);
    auto& given = memory.parts[1];
    bool vector = given.kind == ast::Operand::Kind::vector;
    auto count = vector ? given.parts.size() : 1;
    size_t wanted = axes_of(geometry) + (is_layered(geometry) ? 1 : 0);
    if (count < wanted) {
        d.fail("a coordinate is missing");
        return result;
    }
    auto part = [&](size_t index) -> const ast::Operand& { return vector ? given.parts[index] : given; };
    size_t next = 0;
    if (is_layered(geometry)) result.layer = d.source(part(next++), Type::u32);
    for (uint32_t axis = 0; axis < axes_of(geometry); ++axis) result.axes[axis] = d.source(part(next++), type);
    return result;
}

uint32_t channel_type_of(const Image& image) {
    switch (image.type) {
        case TexelType::s8:
            return image.fractions ? 0x10D0 : 0x10D7;
        case TexelType::s16:
            return image.fractions ? 0x10D1 : 0x10D8;
        case TexelType::s32:
            return 0x10D9;
        case TexelType::u8:
            return image.fractions ? 0x10D2 : 0x10DA;
        case TexelType::u16:
            return image.fractions ? 0x10D3 : 0x10DB;
        case TexelType::u32:
            return 0x10DC;
        case TexelType::f16:
            return 0x10DD;
        case TexelType::f32:
            return 0x10DE;
    }
    return 0;
}

uint32_t channel_order_of(const Image& image) {
    return image.channels == 1 ? 0x10B0 : image.channels == 2 ? 0x10B2 : 0x10B5;
}

}  // namespace tnr::ptx
