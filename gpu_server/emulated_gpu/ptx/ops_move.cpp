// mov (with packing and unpacking of vectors), cvta and isspacep: values and addresses that change place,
// not worth.
#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"

namespace tnr::ptx {
namespace {

using Kind = ast::Operand::Kind;

template <class T>
constexpr T same(T value) {
    return value;
}

void move_predicate(Warp& w, const Instr& i) {
    w.set_mask(i.dst, w.active, w.mask(i.a));
}
void not_predicate(Warp& w, const Instr& i) {
    w.set_mask(i.dst, w.active, ~w.mask(i.a));
}

template <class T>
void local_address(Warp& w, const Instr& i) {
    auto* d = w.reg<T>(i.dst);
    auto address = static_cast<T>(w.frame->local_base + static_cast<uint64_t>(i.imm));
    assign_lanes(w.active, d, [=](uint32_t) { return address; });
}

// One register of `count` elements of `flags` bytes each, and the elements in Program::registers.
void pack(Warp& w, const Instr& i) {
    uint32_t width = i.flags, whole = width * i.count;
    auto* d = w.reg<std::byte>(i.dst);
    for (uint32_t e = 0; e < i.count; ++e) {
        auto* s = w.reg<std::byte>(w.program->registers[i.table + e]);
        for_lanes(w.active, [=](uint32_t l) {
            for (uint32_t b = 0; b < width; ++b) d[l * whole + e * width + b] = s[l * width + b];
        });
    }
}

void unpack(Warp& w, const Instr& i) {
    uint32_t width = i.flags, whole = width * i.count;
    alignas(64) std::byte copy[warp_lanes * 16];  // an element may be the source itself
    std::memcpy(copy, w.reg<std::byte>(i.a), warp_lanes * whole);
    for (uint32_t e = 0; e < i.count; ++e) {
        auto* d = w.reg<std::byte>(w.program->registers[i.table + e]);
        for_lanes(w.active, [&, d](uint32_t l) {
            for (uint32_t b = 0; b < width; ++b) d[l * width + b] = copy[l * whole + e * width + b];
        });
    }
}

void decode_vector_move(Decoder& d, Type type, const ast::Operand& vector, bool packing) {
    auto count = static_cast<uint32_t>(vector.parts.size());
    if (count == 0 || size_of(type) < count || size_of(type) % count != 0 || size_of(type) / count > 8)
        return d.fail("the vector does not fit the type");
    uint32_t width = size_of(type) / count;
    std::vector<RegRef> elements;
    for (auto& part : vector.parts)
        elements.push_back(packing ? d.source(part, bits_of_width(width)) : d.dest(part, bits_of_width(width)));
    auto whole = packing ? d.dest(0, type) : d.source(1, type);
    auto table = d.add_table(elements);
    auto& instr = d.emit(packing ? pack : unpack);
    (packing ? instr.dst : instr.a) = whole;
    instr.flags = static_cast<uint8_t>(width);
    instr.count = static_cast<uint16_t>(count);
    instr.table = table;
}

// mov.v2.u32 of GCC: `count` elements of `flags` bytes each; in Program::registers first whence, then whereto.
void move_vector(Warp& w, const Instr& i) {
    uint32_t width = i.flags;
    alignas(64) std::byte copy[4][warp_lanes * 8];  // an element may be read after it is written
    for (uint32_t e = 0; e < i.count; ++e)
        std::memcpy(copy[e], w.reg<std::byte>(w.program->registers[i.table + e]), warp_lanes * width);
    for (uint32_t e = 0; e < i.count; ++e) {
        auto* d = w.reg<std::byte>(w.program->registers[i.table + i.count + e]);
        for_lanes(w.active, [&, d](uint32_t l) { std::memcpy(d + l * width, copy[e] + l * width, width); });
    }
}

void decode_move_vector(Decoder& d, Type type, uint32_t count) {
    auto& to = d.operand(0);
    auto& from = d.operand(1);
    if (to.kind != Kind::vector || from.kind != Kind::vector || to.parts.size() != count || from.parts.size() != count)
        return d.fail("the operands are no vectors of " + std::to_string(count));
    std::vector<RegRef> elements;
    for (auto& part : from.parts) elements.push_back(d.source(part, type));
    for (auto& part : to.parts) elements.push_back(d.dest(part, type));
    auto table = d.add_table(elements);
    auto& instr = d.emit(move_vector);
    instr.flags = static_cast<uint8_t>(size_of(type));
    instr.count = static_cast<uint16_t>(count);
    instr.table = table;
}

// mov.u16 %h, %tid.x: code for PTX ISA 1 had special registers of 16 bits.
void decode_narrow_special(Decoder& d, const ast::Operand& from) {
    auto whole = d.special(from, Type::u32, d.temporary(Type::u32));
    auto dst = d.dest(0, Type::u16);
    auto& instr = d.emit(unary<uint16_t, uint32_t, [](uint32_t value) { return static_cast<uint16_t>(value); }>());
    instr.dst = dst;
    instr.a = whole;
}

void decode_mov(Decoder& d) {
    uint32_t count = d.take("v2") ? 2 : d.take("v4") ? 4 : 1;
    auto type = d.take_type();
    if (type == Type::none || (count > 1 && (type == Type::pred || type == Type::b128))) return d.unsupported();
    if (count > 1) return decode_move_vector(d, type, count);
    auto& to = d.operand(0);
    auto& from = d.operand(1);
    if (to.kind == Kind::vector) return decode_vector_move(d, type, to, false);
    if (from.kind == Kind::vector) return decode_vector_move(d, type, from, true);
    if (from.kind == Kind::special && size_of(type) == 2) return decode_narrow_special(d, from);
    if (from.kind == Kind::special) return void(d.special(from, type, d.dest(0, type)));
    auto a = d.source(1, type);
    auto dst = d.dest(0, type);
    auto& instr = d.emit(type == Type::pred ? move_predicate : move_handler(size_of(type)));
    instr.dst = dst;
    instr.a = a;
}

// `flags`: 0 add, 1 take away; imm: the window.
void convert_address(Warp& w, const Instr& i) {
    auto* d = w.reg<uint64_t>(i.dst);
    auto* a = w.reg<uint64_t>(i.a);
    auto window = static_cast<uint64_t>(i.flags ? -i.imm : i.imm);
    assign_lanes(w.active, d, [=](uint32_t l) { return a[l] + window; });
}

void is_in_window(Warp& w, const Instr& i) {
    auto* a = w.reg<uint64_t>(i.a);
    auto window = static_cast<uint64_t>(i.imm);
    w.set_mask(i.dst, w.active, lanes_where(w.active, [=](uint32_t l) { return (a[l] & window_mask) == window; }));
}

bool take_window(Decoder& d, uint64_t& window) {
    if (d.take("global") || d.take("const"))
        window = 0;
    else if (d.take("shared") || d.take("shared::cta") || d.take("shared::cluster"))
        window = shared_window;
    else if (d.take("local"))
        window = local_window;
    else if (d.take("param") || d.take("param::entry"))
        window = param_window;
    else
        return false;
    return true;
}

void decode_cvta(Decoder& d) {
    bool back = d.take("to");
    uint64_t window = 0;
    if (!take_window(d, window) || !d.take("u64")) return d.unsupported();
    auto a = d.source(1, Type::u64);
    auto dst = d.dest(0, Type::u64);
    auto& instr = d.emit(convert_address);
    instr.dst = dst;
    instr.a = a;
    instr.flags = back;
    instr.imm = static_cast<int64_t>(window);
}

void decode_isspacep(Decoder& d) {
    uint64_t window = 0;
    if (!take_window(d, window)) return d.unsupported();
    auto a = d.source(1, Type::u64);
    auto dst = d.predicate_dest(d.operand(0));
    auto& instr = d.emit(is_in_window);
    instr.dst = dst;
    instr.a = a;
    instr.imm = static_cast<int64_t>(window);
}

}  // namespace

Handler move_handler(uint32_t bytes) {
    switch (bytes) {
        case 1:
            return unary<uint8_t, uint8_t, same<uint8_t>>();
        case 2:
            return unary<uint16_t, uint16_t, same<uint16_t>>();
        case 4:
            return unary<uint32_t, uint32_t, same<uint32_t>>();
        case 8:
            return unary<uint64_t, uint64_t, same<uint64_t>>();
        default:
            return unary<Wide, Wide, same<Wide>>();
    }
}

Handler local_address_handler(uint32_t bytes) {
    return bytes == 8 ? local_address<uint64_t> : local_address<uint32_t>;
}
Handler not_predicate_handler() {
    return not_predicate;
}

bool decode_move(Decoder& d) {
    auto name = d.inst().name;
    if (name == "mov")
        decode_mov(d);
    else if (name == "cvta")
        decode_cvta(d);
    else if (name == "isspacep")
        decode_isspacep(d);
    else
        return false;
    return true;
}

}  // namespace tnr::ptx
