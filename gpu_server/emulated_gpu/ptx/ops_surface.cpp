// suld, sust, sured and suq. Coordinates count texels, but x counts bytes in the forms with .b.
#include <algorithm>

#include "gpu_server/emulated_gpu/ptx/half.hpp"
#include "gpu_server/emulated_gpu/ptx/image_operand.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"

namespace tnr::ptx {
namespace {

enum class Outside : uint8_t { trap, clamp, zero };
enum class Reduction : uint8_t { add, min_signed, max_signed, min_unsigned, max_unsigned, bit_and, bit_or };

// Instr::imm; Instr::count is the number of elements.
struct Shape {
    Geometry geometry = Geometry::line;
    Outside outside = Outside::trap;
    uint8_t element_bytes = 4;
    uint8_t register_bytes = 4;
    bool in_texels = false;  // x, too
    Reduction reduction = Reduction::add;
    uint8_t unused[2] = {};
};
static_assert(sizeof(Shape) == sizeof(int64_t));

enum Slot : uint32_t { slot_layer = 0, slot_axes = 1, slot_values = 4 };

// The bytes that one lane means. Null and no fault: outside, with .zero, or nowhere in a sparse surface.
std::byte* place(Warp& w, const Shape& shape, const RegRef* slots, const Image& image, uint32_t lane, uint32_t bytes) {
    // A surface without layers is its only one.
    const bool only_layer =
        is_layered(shape.geometry) && !image.layered && !image.cube && image.dimensions == axes_of(shape.geometry);
    if (!only_layer && !fits(shape.geometry, image)) {
        fault(w, Outcome::illegal_instruction, lane, "the surface is not of the instruction's shape");
        return nullptr;
    }
    auto& level = image.levels[0];
    auto axes = axes_of(shape.geometry);
    int64_t at[3] = {};
    for (uint32_t axis = 0; axis < axes; ++axis) at[axis] = w.reg<int32_t>(slots[slot_axes + axis])[lane];
    if (is_layered(shape.geometry)) at[2] = w.reg<int32_t>(slots[slot_layer])[lane];
    if (shape.in_texels) at[0] *= image.texel_bytes();
    const int64_t last[3] = {static_cast<int64_t>(uint64_t{level.width} * image.texel_bytes()) - bytes,
                             int64_t{level.height} - 1, int64_t{level.depth} - 1};
    bool outside = false;
    for (int axis = 0; axis < 3; ++axis) outside |= at[axis] < 0 || at[axis] > last[axis];
    if (outside && (shape.outside == Outside::trap || last[0] < 0)) {
        fault(w, Outcome::trap, lane, "a surface access is outside the surface");
        return nullptr;
    }
    if (outside && shape.outside == Outside::zero) return nullptr;
    for (int axis = 0; axis < 3; ++axis) at[axis] = std::clamp<int64_t>(at[axis], 0, last[axis]);
    if (at[0] % bytes != 0) {
        fault(w, Outcome::misaligned_address, lane, "a surface access is misaligned");
        return nullptr;
    }
    return level.at(static_cast<uint64_t>(at[0]), static_cast<uint64_t>(at[1]), static_cast<uint64_t>(at[2]));
}

template <class T>
void put(Warp& w, RegRef ref, uint32_t lane, uint64_t value) {
    w.reg<T>(ref)[lane] = static_cast<T>(value);
}
void put_register(Warp& w, RegRef ref, uint32_t bytes, uint32_t lane, uint64_t value) {
    if (bytes == 2) return put<uint16_t>(w, ref, lane, value);
    if (bytes == 4) return put<uint32_t>(w, ref, lane, value);
    put<uint64_t>(w, ref, lane, value);
}
uint64_t get_register(Warp& w, RegRef ref, uint32_t bytes, uint32_t lane) {
    if (bytes == 2) return w.reg<uint16_t>(ref)[lane];
    if (bytes == 4) return w.reg<uint32_t>(ref)[lane];
    return w.reg<uint64_t>(ref)[lane];
}

// Calls `use(lane, surface, bytes of the lane or null)` for each active lane until one faults.
template <class Bytes, class Use>
void each_place(Warp& w, const Instr& i, Bytes&& bytes_of_access, Use&& use) {
    auto shape = std::bit_cast<Shape>(i.imm);
    auto* slots = &w.program->registers[i.table];
    auto* handles = w.reg<uint64_t>(i.a);
    FoundSurface surfaces(w);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto* surface = surfaces.find(handles[lane], lane, "surface");
        if (!surface) return;
        auto* at = place(w, shape, slots, *surface, lane, bytes_of_access(shape, *surface));
        if (w.event & event_fault) return;
        use(shape, slots, lane, *surface, at);
    }
}

void load(Warp& w, const Instr& i) {
    std::vector<std::array<uint64_t, 4>> values(warp_lanes);  // an element may overwrite a coordinate
    each_place(
        w, i, [&](const Shape& shape, const Image&) { return uint32_t{shape.element_bytes} * i.count; },
        [&](const Shape& shape, const RegRef*, uint32_t lane, const Image&, const std::byte* at) {
            for (uint32_t e = 0; at && e < i.count; ++e)
                std::memcpy(&values[lane][e], at + e * shape.element_bytes, shape.element_bytes);
        });
    if (w.event & event_fault) return;
    auto shape = std::bit_cast<Shape>(i.imm);
    for (uint32_t e = 0; e < i.count; ++e)
        for_lanes(w.active, [&](uint32_t lane) {
            put_register(w, w.program->registers[i.table + slot_values + e], shape.register_bytes, lane,
                         values[lane][e]);
        });
}

void store(Warp& w, const Instr& i) {
    each_place(
        w, i, [&](const Shape& shape, const Image&) { return uint32_t{shape.element_bytes} * i.count; },
        [&](const Shape& shape, const RegRef* slots, uint32_t lane, const Image&, std::byte* at) {
            for (uint32_t e = 0; at && e < i.count; ++e) {
                auto value = get_register(w, slots[slot_values + e], shape.register_bytes, lane);
                std::memcpy(at + e * shape.element_bytes, &value, shape.element_bytes);
            }
        });
}

// The value of a 32-bit register as the surface keeps it.
uint32_t converted(const Image& image, uint32_t value) {
    auto bits = 8 * bytes_of(image.type);
    if (image.type == TexelType::f16) return to_half(double{std::bit_cast<float>(value)});
    if (bits == 32) return value;
    if (!image.is_signed()) return std::min(value, (1u << bits) - 1);
    auto most = (1 << (bits - 1)) - 1;
    return static_cast<uint32_t>(std::clamp(static_cast<int32_t>(value), -most - 1, most));
}

// sust.p: a whole texel, converted.
void store_formatted(Warp& w, const Instr& i) {
    each_place(
        w, i, [](const Shape&, const Image& image) { return image.texel_bytes(); },
        [&](const Shape&, const RegRef* slots, uint32_t lane, const Image& image, std::byte* at) {
            for (uint32_t e = 0; at && e < image.channels; ++e) {
                auto value = e < i.count ? converted(image, w.reg<uint32_t>(slots[slot_values + e])[lane]) : 0;
                std::memcpy(at + e * bytes_of(image.type), &value, bytes_of(image.type));
            }
        });
}

template <class T>
T reduced(T old, T value, Reduction reduction) {
    using Signed = std::make_signed_t<T>;
    switch (reduction) {
        case Reduction::add:
            return old + value;
        case Reduction::min_signed:
            return static_cast<T>(std::min(static_cast<Signed>(old), static_cast<Signed>(value)));
        case Reduction::max_signed:
            return static_cast<T>(std::max(static_cast<Signed>(old), static_cast<Signed>(value)));
        case Reduction::min_unsigned:
            return std::min(old, value);
        case Reduction::max_unsigned:
            return std::max(old, value);
        case Reduction::bit_and:
            return old & value;
        case Reduction::bit_or:
            return old | value;
    }
    return old;
}

template <class T>
void reduce_at(std::byte* at, T value, Reduction reduction) {
    auto* word = reinterpret_cast<T*>(at);
    T old = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &old, reduced(old, value, reduction), true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
    }
}

void reduce(Warp& w, const Instr& i) {
    each_place(
        w, i, [](const Shape& shape, const Image&) { return uint32_t{shape.element_bytes}; },
        [&](const Shape& shape, const RegRef* slots, uint32_t lane, const Image&, std::byte* at) {
            if (!at) return;
            if (shape.element_bytes == 4)
                reduce_at(at, w.reg<uint32_t>(slots[slot_values])[lane], shape.reduction);
            else
                reduce_at(at, w.reg<uint64_t>(slots[slot_values])[lane], shape.reduction);
        });
}

enum class Query : uint8_t { width, height, depth, channel_type, channel_order, layers };

uint32_t answer(const Image& image, Query query) {
    auto& level = image.levels[0];
    bool stacked = image.layered || image.cube;
    switch (query) {
        case Query::width:
            return level.width;
        case Query::height:
            return image.dimensions > 1 ? level.height : 0;
        case Query::depth:
            return stacked || image.dimensions < 3 ? 0 : level.depth;
        case Query::channel_type:
            return channel_type_of(image);
        case Query::channel_order:
            return channel_order_of(image);
        case Query::layers:
            return stacked ? level.depth : 0;
    }
    return 0;
}

void query(Warp& w, const Instr& i) {
    auto* handles = w.reg<uint64_t>(i.a);
    auto* results = w.reg<uint32_t>(i.dst);
    FoundSurface surfaces(w);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto* surface = surfaces.find(handles[lane], lane, "surface");
        if (!surface) return;
        results[lane] = answer(*surface, static_cast<Query>(i.imm));
    }
}

bool take_outside(Decoder& d, Outside& outside) {
    if (d.take("trap"))
        outside = Outside::trap;
    else if (d.take("clamp"))
        outside = Outside::clamp;
    else if (d.take("zero"))
        outside = Outside::zero;
    else
        return false;
    return true;
}

// What suld, sust and sured have in common: shape, elements, coordinates. False if there is something unknown.
bool decode_place(Decoder& d, Shape& shape, uint32_t& elements, const ast::Operand& memory,
                  std::vector<RegRef>& registers, RegRef& handle, Type& type) {
    shape.in_texels = d.take("p");
    if (!shape.in_texels && !d.take("b")) return false;
    elements = d.take("v2") ? 2 : d.take("v4") ? 4 : 1;
    bool known = take_geometry(d, shape.geometry) && take_outside(d, shape.outside);
    if (!known || shape.geometry == Geometry::cube || shape.geometry == Geometry::cubes) return false;
    d.take_any_of({"ca", "cg", "cs", "cv", "wb", "wt"});
    type = d.take_type();
    shape.element_bytes = static_cast<uint8_t>(size_of(type));
    if (shape.element_bytes == 0 || shape.element_bytes > 8 || shape.element_bytes * elements > 16) return false;
    auto image = decode_image(d, memory, shape.geometry, Type::s32);
    handle = image.handle;
    registers = {image.layer, image.axes[0], image.axes[1], image.axes[2]};
    return true;
}

// The elements: registers of one width, 16 bits at least.
void decode_elements(Decoder& d, const ast::Operand& operand, Type type, uint32_t elements, bool results, Shape& shape,
                     std::vector<RegRef>& registers) {
    bool vector = operand.kind == ast::Operand::Kind::vector;
    if ((vector ? operand.parts.size() : 1) != elements) return d.fail("the operand does not fit the vector's width");
    shape.register_bytes = static_cast<uint8_t>(std::max(2u, size_of(type)));
    for (uint32_t e = 0; e < elements; ++e) {
        auto& part = vector ? operand.parts[e] : operand;
        bool is_register = d.type_of(part) != Type::none;
        uint32_t bytes = shape.register_bytes;
        auto width = bytes == 2 ? Type::b16 : bytes == 4 ? Type::b32 : Type::b64;
        if (is_register)
            registers.push_back(results ? d.loose_dest(part, width, bytes) : d.loose_source(part, width, bytes));
        else
            registers.push_back(results ? d.dest(part, width) : d.source(part, width));
        if (bytes != shape.register_bytes && e > 0)
            return d.fail("the registers of the vector are not all of one width");
        shape.register_bytes = static_cast<uint8_t>(bytes);
    }
}

void emit(Decoder& d, Handler handler, const Shape& shape, uint32_t elements, RegRef surface,
          const std::vector<RegRef>& registers) {
    if (d.failed()) return;
    auto table = d.add_table(registers);
    auto& instr = d.emit(handler);
    instr.a = surface;
    instr.count = static_cast<uint16_t>(elements);
    instr.imm = std::bit_cast<int64_t>(shape);
    instr.table = table;
}

void decode_access(Decoder& d, bool is_store) {
    Shape shape;
    uint32_t elements = 1;
    std::vector<RegRef> registers;
    RegRef surface = 0;
    auto type = Type::none;
    auto &memory = d.operand(is_store ? 0 : 1), &values = d.operand(is_store ? 1 : 0);
    if (!decode_place(d, shape, elements, memory, registers, surface, type)) return d.unsupported();
    if (shape.in_texels && (!is_store || shape.element_bytes != 4)) return d.unsupported();
    decode_elements(d, values, type, elements, !is_store, shape, registers);
    emit(d, !is_store ? load : shape.in_texels ? store_formatted : store, shape, elements, surface, registers);
}

bool take_reduction(Decoder& d, Type type, Reduction& reduction) {
    if (d.take("add"))
        reduction = Reduction::add;
    else if (d.take("min"))
        reduction = is_signed(type) ? Reduction::min_signed : Reduction::min_unsigned;
    else if (d.take("max"))
        reduction = is_signed(type) ? Reduction::max_signed : Reduction::max_unsigned;
    else if (d.take("and"))
        reduction = Reduction::bit_and;
    else if (d.take("or"))
        reduction = Reduction::bit_or;
    else
        return false;
    return true;
}

void decode_reduction(Decoder& d) {
    Shape shape;
    uint32_t elements = 1;
    std::vector<RegRef> registers;
    RegRef surface = 0;
    auto type = Type::none;
    bool known = decode_place(d, shape, elements, d.operand(0), registers, surface, type) && elements == 1 &&
                 shape.element_bytes >= 4 && take_reduction(d, type, shape.reduction);
    if (!known) return d.unsupported();
    registers.push_back(d.source(1, type));
    emit(d, reduce, shape, 1, surface, registers);
}

void decode_query(Decoder& d) {
    static constexpr std::pair<std::string_view, Query> names[] = {{"width", Query::width},
                                                                   {"height", Query::height},
                                                                   {"depth", Query::depth},
                                                                   {"channel_data_type", Query::channel_type},
                                                                   {"channel_order", Query::channel_order},
                                                                   {"array_size", Query::layers}};
    const Query* asked = nullptr;
    for (auto& [name, meaning] : names)
        if (!asked && d.take(name)) asked = &meaning;
    if (!asked || d.take_type() != Type::b32) return d.unsupported();
    auto dst = d.dest(0, Type::b32);
    auto surface = decode_image_handle(d, d.operand(1));
    if (d.failed()) return;
    auto& instr = d.emit(query);
    instr.dst = dst;
    instr.a = surface;
    instr.imm = static_cast<int64_t>(*asked);
}

}  // namespace

bool decode_surface(Decoder& d) {
    auto name = d.inst().name;
    if (name == "suld")
        decode_access(d, false);
    else if (name == "sust")
        decode_access(d, true);
    else if (name == "sured")
        decode_reduction(d);
    else if (name == "suq")
        decode_query(d);
    else
        return false;
    return true;
}

}  // namespace tnr::ptx
