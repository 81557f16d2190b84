// tex, tld4 and txq. An instruction's registers lie in one table, in the order of `Slot`.
#include "gpu_server/emulated_gpu/ptx/half.hpp"
#include "gpu_server/emulated_gpu/ptx/image_operand.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"
#include "gpu_server/emulated_gpu/ptx/sampler.hpp"

namespace tnr::ptx {
namespace {

enum Slot : uint32_t { slot_results = 0, slot_layer = 4, slot_axes = 5, slot_dx = 8, slot_dy = 11, slots = 14 };
enum class Detail : uint8_t { plain, level, steps };
enum class Results : uint8_t { words, halves, pairs_of_halves };

// Instr::imm
struct Shape {
    Geometry geometry = Geometry::line;
    Detail detail = Detail::plain;
    Results results = Results::words;
    bool exact = false;  // integer coordinates
    bool gather = false;
    uint8_t channel = 0;  // of gather
    uint8_t unused[2] = {};
};
static_assert(sizeof(Shape) == sizeof(int64_t));

std::array<float, 3> axes_at(Warp& w, const RegRef* slots, uint32_t count, uint32_t lane) {
    std::array<float, 3> result{};
    for (uint32_t axis = 0; axis < count; ++axis) result[axis] = w.reg<float>(slots[axis])[lane];
    return result;
}

TexturePoint point_at(Warp& w, const Shape& shape, const RegRef* slots, uint32_t lane) {
    TexturePoint point;
    auto axes = axes_of(shape.geometry);
    point.exact = shape.exact;
    if (shape.exact)
        for (uint32_t axis = 0; axis < axes; ++axis) point.texel[axis] = w.reg<int32_t>(slots[slot_axes + axis])[lane];
    else
        point.at = axes_at(w, slots + slot_axes, axes, lane);
    if (is_layered(shape.geometry)) point.layer = w.reg<uint32_t>(slots[slot_layer])[lane];
    return point;
}

// `resident`: the lane is taken out of it where a texel of a sparse texture is nowhere.
bool sample(Warp& w, const Shape& shape, const RegRef* slots, const Texture& texture, uint32_t lane, Sample& result,
            uint32_t& resident) {
    // Texels of a line have two coordinates, too.
    bool line = shape.exact && shape.geometry == Geometry::square && fits(Geometry::line, texture.image);
    if ((!line && !fits(shape.geometry, texture.image)) || (shape.gather && !texture.image.gatherable)) {
        fault(w, Outcome::illegal_instruction, lane, "the texture is not of the instruction's shape");
        return false;
    }
    auto point = point_at(w, shape, slots, lane);
    Sampler sampler(*w.worker, texture);
    auto axes = axes_of(shape.geometry);
    if (shape.detail == Detail::level)
        point.level =
            shape.exact ? static_cast<float>(w.reg<int32_t>(slots[slot_dx])[lane]) : w.reg<float>(slots[slot_dx])[lane];
    if (shape.detail == Detail::steps)
        point.level =
            sampler.level_of(axes_at(w, slots + slot_dx, axes, lane), axes_at(w, slots + slot_dy, axes, lane));
    const bool found = shape.gather ? sampler.gather(point, shape.channel, result) : sampler.sample(point, result);
    if (!sampler.resident()) resident &= ~(1u << lane);
    if (found) return true;
    memory_fault(w, sampler.fault_address(), lane, texture.image.texel_bytes(), "texture read", false);
    return false;
}

void store(Warp& w, const Shape& shape, const RegRef* slots, const Texture& texture, uint32_t lane,
           const Sample& sample) {
    if (shape.results == Results::words) {
        for (uint32_t e = 0; e < 4; ++e) w.reg<uint32_t>(slots[slot_results + e])[lane] = sample[e];
        return;
    }
    uint16_t halves[4];
    for (uint32_t e = 0; e < 4; ++e)
        halves[e] =
            texture.gives_reals() ? to_half(double{std::bit_cast<float>(sample[e])}) : static_cast<uint16_t>(sample[e]);
    if (shape.results == Results::halves)
        for (uint32_t e = 0; e < 4; ++e) w.reg<uint16_t>(slots[slot_results + e])[lane] = halves[e];
    else
        for (uint32_t e = 0; e < 2; ++e)
            w.reg<uint32_t>(slots[slot_results + e])[lane] = halves[2 * e] | static_cast<uint32_t>(halves[2 * e + 1])
                                                                                 << 16;
}

void fetch(Warp& w, const Instr& i) {
    refresh_ranges(*w.worker);
    auto shape = std::bit_cast<Shape>(i.imm);
    auto* slots = &w.program->registers[i.table];
    auto* handles = w.reg<uint64_t>(i.a);
    FoundTexture textures(w);
    uint32_t resident = all_lanes;
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto* texture = textures.find(handles[lane], lane, "texture");
        Sample result{};
        if (!texture || !sample(w, shape, slots, *texture, lane, result, resident)) return;
        store(w, shape, slots, *texture, lane, result);
    }
    if (i.flags) w.set_mask(i.dst, w.active, resident);
}

enum class Query : uint8_t { width, height, depth, channel_type, channel_order, normalized, layers, levels };

uint32_t answer(const Texture& texture, Query query, uint32_t level) {
    auto& image = texture.image;
    bool stacked = image.layered || image.cube;
    if (level >= image.levels.size()) return 0;
    auto& asked = image.levels[level];
    switch (query) {
        case Query::width:
            return asked.width;
        case Query::height:
            return image.dimensions > 1 ? asked.height : 0;
        case Query::depth:
            return stacked || image.dimensions < 3 ? 0 : asked.depth;
        case Query::channel_type:
            return channel_type_of(image);
        case Query::channel_order:
            return channel_order_of(image);
        case Query::normalized:
            return texture.normalized;
        case Query::layers:
            return !image.layered ? 0 : image.cube ? asked.depth / 6 : asked.depth;
        case Query::levels:
            return static_cast<uint32_t>(image.levels.size());
    }
    return 0;
}

void query(Warp& w, const Instr& i) {
    auto* handles = w.reg<uint64_t>(i.a);
    auto* levels = w.reg<uint32_t>(i.b);
    auto* results = w.reg<uint32_t>(i.dst);
    FoundTexture textures(w);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto* texture = textures.find(handles[lane], lane, "texture");
        if (!texture) return;
        results[lane] = answer(*texture, static_cast<Query>(i.imm), levels[lane]);
    }
}

// The registers of `{...}`, `count` of them.
void decode_vector(Decoder& d, const ast::Operand& operand, uint32_t count, RegRef* to) {
    bool vector = operand.kind == ast::Operand::Kind::vector;
    if ((vector ? operand.parts.size() : 1) < count) return d.fail("a vector is too short");
    for (uint32_t e = 0; e < count; ++e) to[e] = d.source(vector ? operand.parts[e] : operand, Type::f32);
}

void decode_results(Decoder& d, const ast::Operand& operand, Shape& shape, RegRef* to) {
    bool four = d.take("v4");
    if (!four && !d.take("v2")) return d.unsupported();
    auto type = d.take_type();
    auto register_type = Type::b32;
    if (type == Type::f16 && four) {
        shape.results = Results::halves;
        register_type = Type::b16;
    } else if (type == Type::f16x2 && !four) {
        shape.results = Results::pairs_of_halves;
    } else if (!four || (type != Type::f32 && type != Type::u32 && type != Type::s32)) {
        return d.unsupported();
    }
    uint32_t count = four ? 4 : 2;
    if (operand.kind != ast::Operand::Kind::vector || operand.parts.size() != count)
        return d.fail("the result is a vector of " + std::to_string(count));
    for (uint32_t e = 0; e < count; ++e) to[e] = d.dest(operand.parts[e], register_type);
}

void decode_fetch(Decoder& d, Shape shape) {
    if (d.take("level"))
        shape.detail = Detail::level;
    else if (d.take("grad"))
        shape.detail = Detail::steps;
    else
        d.take("base");  // level 0, which is what an instruction without a level means here
    for (auto [name, channel] : {std::pair("r", 0), std::pair("g", 1), std::pair("b", 2), std::pair("a", 3)})
        if (shape.gather && d.take(name)) shape.channel = static_cast<uint8_t>(channel);
    if (!take_geometry(d, shape.geometry)) return d.unsupported();
    if (shape.gather && axes_of(shape.geometry) == 1) return d.unsupported();
    std::vector<RegRef> registers(slots);
    auto& to = d.operand(0);
    bool pair = to.kind == ast::Operand::Kind::pair;
    decode_results(d, pair ? to.parts[0] : to, shape, registers.data() + slot_results);
    auto type = d.take_type();
    if (d.failed()) return;
    if (type != Type::f32 && type != Type::s32) return d.unsupported();
    shape.exact = type == Type::s32;
    if (shape.exact && shape.gather) return d.unsupported();
    auto image = decode_image(d, d.operand(1), shape.geometry, type);
    registers[slot_layer] = image.layer;
    for (uint32_t axis = 0; axis < 3; ++axis) registers[slot_axes + axis] = image.axes[axis];
    size_t expected = shape.detail == Detail::plain ? 2 : shape.detail == Detail::level ? 3 : 4;
    if (d.operand_count() != expected) return d.unsupported();  // offsets, depth to compare with
    auto axes = axes_of(shape.geometry);
    if (shape.detail == Detail::level) registers[slot_dx] = d.source(2, shape.exact ? Type::s32 : Type::f32);
    if (shape.detail == Detail::steps && shape.exact) return d.unsupported();
    if (shape.detail == Detail::steps) decode_vector(d, d.operand(2), axes, registers.data() + slot_dx);
    if (shape.detail == Detail::steps) decode_vector(d, d.operand(3), axes, registers.data() + slot_dy);
    auto present = pair ? d.predicate_dest(to.parts[1]) : 0;
    if (d.failed()) return;
    auto table = d.add_table(registers);
    auto& instr = d.emit(fetch);
    instr.a = image.handle;
    instr.dst = present;
    instr.flags = pair;
    instr.imm = std::bit_cast<int64_t>(shape);
    instr.table = table;
}

void decode_query(Decoder& d) {
    static constexpr std::pair<std::string_view, Query> names[] = {{"width", Query::width},
                                                                   {"height", Query::height},
                                                                   {"depth", Query::depth},
                                                                   {"channel_data_type", Query::channel_type},
                                                                   {"channel_order", Query::channel_order},
                                                                   {"normalized_coords", Query::normalized},
                                                                   {"array_size", Query::layers},
                                                                   {"num_mipmap_levels", Query::levels}};
    bool leveled = d.take("level");
    const Query* asked = nullptr;
    for (auto& [name, meaning] : names)
        if (!asked && d.take(name)) asked = &meaning;
    if (!asked || d.take_type() != Type::b32) return d.unsupported();
    auto dst = d.dest(0, Type::b32);
    auto handle = decode_image_handle(d, d.operand(1));
    auto level = leveled ? d.source(2, Type::b32) : d.constant(0, 4);
    if (d.failed()) return;
    auto& instr = d.emit(query);
    instr.dst = dst;
    instr.a = handle;
    instr.b = level;
    instr.imm = static_cast<int64_t>(*asked);
}

}  // namespace

bool decode_texture(Decoder& d) {
    auto name = d.inst().name;
    Shape shape;
    shape.gather = name == "tld4";
    if (name == "tex" || name == "tld4")
        decode_fetch(d, shape);
    else if (name == "txq")
        decode_query(d);
    else
        return false;
    return true;
}

}  // namespace tnr::ptx
