// tensormap.replace: one field of a tensor map in memory; and tensormap.cp_fenceproxy, which copies one.
#include <array>
#include <cstring>

#include "gpu_server/emulated_gpu/ptx/access.hpp"
#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"
#include "gpu_server/emulated_gpu/ptx/tensor_map.hpp"
#include "gpu_server/emulated_gpu/ptx/transaction.hpp"

namespace tnr::ptx {
namespace {

enum class Field : uint16_t {
    global_address,
    rank,
    box_dim,
    global_dim,
    global_stride,
    element_stride,
    elemtype,
    interleave_layout,
    swizzle_mode,
    swizzle_atomicity,
    fill_mode
};
constexpr std::array<std::string_view, 11> fields = {
    "global_address", "rank",     "box_dim",           "global_dim",   "global_stride",
    "element_stride", "elemtype", "interleave_layout", "swizzle_mode", "swizzle_atomicity",
    "fill_mode"};

// The element types in the order of the ISA's table; after them come the packings, in theirs.
constexpr std::array<Type, 13> element_types = {Type::u8,   Type::u16,  Type::u32, Type::s32, Type::u64,
                                                Type::s64,  Type::f16,  Type::f32, Type::f32, Type::f64,
                                                Type::bf16, Type::tf32, Type::tf32};

bool set_element_type(TensorMap& map, uint64_t type) {
    bool packed = type >= element_types.size();
    uint64_t packing = packed ? type - element_types.size() + 1 : 0;
    if (packing > static_cast<uint64_t>(Packing::b6x16_p32)) return false;
    map.packing = static_cast<Packing>(packing);
    map.element = packed ? Type::b8 : element_types[type];
    map.strides[0] = packet_of(map).bytes;
    if (map.nan_bytes) map.nan_bytes = static_cast<uint8_t>(map.strides[0]);
    return true;
}

// False for what a map cannot hold. `axis`: of the fields that have one.
bool replace(TensorMap& map, Field field, uint32_t axis, uint64_t value) {
    static constexpr uint8_t chunks[] = {0, 2, 4, 8};
    switch (field) {
        case Field::global_address:
            map.address = value;
            return value % 16 == 0;
        case Field::rank:
            map.rank = static_cast<uint8_t>(value + 1);
            return value < TensorMap::rank_max;
        case Field::box_dim:
            map.box[axis] = static_cast<uint16_t>(value);
            return value >= 1 && value <= 256;
        case Field::global_dim:
            map.last[axis] = static_cast<uint32_t>(value - 1);
            return value >= 1 && value <= uint64_t{1} << 32;
        case Field::global_stride:
            map.strides[axis + 1] = value;
            return value % 16 == 0;
        case Field::element_stride:
            map.steps[axis] = static_cast<uint8_t>(axis ? value : 1);  // the first axis has none, whatever is written
            return value >= 1 && value <= 8;
        case Field::elemtype:
            return set_element_type(map, value);
        case Field::interleave_layout:
            return value == 0;
        case Field::swizzle_mode:
            if (value >= std::size(chunks)) return false;
            map.swizzle_chunks = chunks[value];
            return true;
        case Field::swizzle_atomicity:
            map.atom = static_cast<SwizzleAtom>(value);
            return value <= static_cast<uint64_t>(SwizzleAtom::bytes_64);
        case Field::fill_mode:
            map.nan_bytes = value ? static_cast<uint8_t>(map.strides[0]) : 0;
            return value <= 1;
    }
    return false;
}

std::byte* map_pointer(Warp& w, uint32_t lane, uint64_t address, bool writing) {
    bool misaligned = address % 64;
    auto* p = misaligned ? nullptr : generic_pointer(w, lane, address, sizeof(TensorMap), writing);
    if (!p) memory_fault(w, address, lane, sizeof(TensorMap), "access to a tensor map", misaligned);
    return p;
}

// Programs make maps without the driver, too: they begin with zeros and replace every field that matters.
TensorMap read_map_or_blank(const std::byte* p) {
    static constexpr std::array<std::byte, sizeof(TensorMap)> zeros{};
    TensorMap map;
    if (std::memcmp(p, zeros.data(), sizeof map) == 0)
        map.mark = TensorMap::of_zeros;
    else
        std::memcpy(&map, p, sizeof map);
    return map;
}

// a: the map's address, generic; b: the value; count: the Field; flags: the axis.
void replace_field(Warp& w, const Instr& i) {
    refresh_ranges(*w.worker);
    auto *addresses = w.reg<uint64_t>(i.a), *values = w.reg<uint64_t>(i.b);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto* p = map_pointer(w, lane, addresses[lane], true);
        if (!p) return;
        TensorMap map = read_map_or_blank(p);
        bool held = replace(map, static_cast<Field>(i.count), i.flags, values[lane]);
        // Hardware does not look whether it is a map that it changes; a copy by it does.
        if (!held && map.mark == TensorMap::ours)
            return fault(w, Outcome::illegal_instruction, lane, "a tensor map cannot hold this value");
        if (!held) map.mark = 0;
        std::memcpy(p, &map, sizeof map);
    }
}

// a: to, b: from, both generic.
void copy_map(Warp& w, const Instr& i) {
    refresh_ranges(*w.worker);
    auto *to = w.reg<uint64_t>(i.a), *from = w.reg<uint64_t>(i.b);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto* p = map_pointer(w, lane, to[lane], true);
        auto* q = p ? map_pointer(w, lane, from[lane], false) : nullptr;
        if (!q) return;
        std::memcpy(p, q, sizeof(TensorMap));
    }
}

// The address as a generic one.
RegRef generic_address(Decoder& d, const ast::Operand& memory, Space space) {
    auto address = whole_address(d, memory, space);
    if (space != Space::shared || d.failed()) return address;
    auto generic = d.temporary(Type::u64);
    auto& instr = d.emit(binary<uint64_t, uint64_t, uint64_t, [](uint64_t a, uint64_t b) { return a | b; }>());
    instr.dst = generic;
    instr.a = address;
    instr.b = d.constant(shared_window, 8);
    return generic;
}

Space take_map_space(Decoder& d) {
    return d.take("shared::cta") ? Space::shared : d.take("global") ? Space::global : Space::generic;
}

// A register of 64 bits whatever the width of the value's.
RegRef wide_value(Decoder& d, const ast::Operand& value, bool wide) {
    if (wide) return d.source(value, Type::b64);
    auto narrow = d.source(value, Type::b32);
    auto result = d.temporary(Type::u64);
    auto& instr = d.emit(unary<uint64_t, uint32_t, [](uint32_t v) { return uint64_t{v}; }>());
    instr.dst = result;
    instr.a = narrow;
    return result;
}

// tensormap.replace.tile.FIELD{.global,.shared::cta}.b1024.b32 [map]{, axis}, value
void decode_replace(Decoder& d) {
    bool understood = d.take("tile");
    size_t field = 0;
    while (field < fields.size() && !d.take(fields[field])) ++field;
    auto space = take_map_space(d);
    understood = understood && field < fields.size() && d.take("b1024");
    bool wide = d.take("b64");
    if (!understood || (!wide && !d.take("b32"))) return d.unsupported();
    bool has_axis = d.operand_count() == 3;
    auto axis = has_axis ? d.operand(1).value : 0;
    if (axis < 0 || axis >= int64_t{TensorMap::rank_max} - (static_cast<Field>(field) == Field::global_stride))
        return d.fail("a tensor map has no such axis");
    auto address = generic_address(d, d.operand(0), space);
    auto value = wide_value(d, d.operand(has_axis ? 2 : 1), wide);
    auto& instr = d.emit(replace_field);
    instr.a = address;
    instr.b = value;
    instr.count = static_cast<uint16_t>(field);
    instr.flags = static_cast<uint8_t>(axis);
}

// tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [to], [from], 128
void decode_copy(Decoder& d) {
    bool known = d.take("global") && d.take("shared::cta") && d.take("tensormap::generic") && d.take("release") &&
                 !d.take_any_of({"cta", "cluster", "gpu", "sys"}).empty() && d.take("sync") && d.take("aligned");
    if (!known) return d.unsupported();
    auto to = generic_address(d, d.operand(0), Space::global);
    auto from = generic_address(d, d.operand(1), Space::shared);
    auto& instr = d.emit(copy_map);
    instr.a = to;
    instr.b = from;
}

}  // namespace

bool decode_tensor_map(Decoder& d) {
    if (d.inst().name != "tensormap") return false;
    if (d.take("replace"))
        decode_replace(d);
    else if (d.take("cp_fenceproxy"))
        decode_copy(d);
    else
        d.unsupported();
    return true;
}

}  // namespace tnr::ptx
