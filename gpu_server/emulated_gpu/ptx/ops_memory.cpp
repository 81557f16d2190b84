// ld, ldu, st, prefetch and their kin. An element type and a register type per handler: registers may be
// wider than what is loaded or stored.
#include <algorithm>
#include <iterator>
#include <type_traits>

#include "gpu_server/emulated_gpu/ptx/lanes.hpp"
#include "gpu_server/emulated_gpu/ptx/memory_operand.hpp"
#include "gpu_server/emulated_gpu/ptx/plain_access.hpp"
#include "gpu_server/emulated_gpu/ptx/transaction.hpp"
#include "gpu_server/emulated_gpu/ptx/wide.hpp"

namespace tnr::ptx {
namespace {

enum Flag : uint8_t { flag_strong = 1 };

// A strong read is an acquire: fences on other machines order relaxed reads too, and here it costs nothing.
template <class T>
T read(const std::byte* p, bool strong) {
    if constexpr (sizeof(T) == sizeof(Wide)) return read_wide(p);
    if (strong) return __atomic_load_n(reinterpret_cast<const T*>(p), __ATOMIC_ACQUIRE);
    return plain_read<T>(p);
}

template <class T>
void write(std::byte* p, T value, bool strong) {
    if constexpr (sizeof(T) == sizeof(Wide)) return write_wide(p, value);
    if (strong) return __atomic_store_n(reinterpret_cast<T*>(p), value, __ATOMIC_RELEASE);
    plain_write(p, value);
}

// How much of a vector is read or written at one moment. ThreadSanitizer follows no accesses of 16 bytes.
#ifdef TNR_THREAD_SANITIZER
constexpr uint32_t bytes_at_once = sizeof(uint64_t);
#else
constexpr uint32_t bytes_at_once = sizeof(Wide);
#endif

constexpr uint32_t vector_max = 8;
template <class T>
constexpr uint32_t elements_max = std::max<uint32_t>(vector_max, sizeof(Wide) / sizeof(T));

// So many elements of a vector of `count`, which is a power of two.
template <class T>
constexpr uint32_t elements_at_once(uint32_t count) {
    return std::min<uint32_t>(count, std::max<uint32_t>(1, bytes_at_once / sizeof(T)));
}

// `use` with a word of so many bytes.
template <class Use>
void with_word(uint32_t bytes, const Use& use) {
    switch (bytes) {
        case 1:
            return use(uint8_t{});
        case 2:
            return use(uint16_t{});
        case 4:
            return use(uint32_t{});
        case 8:
            return use(uint64_t{});
        default:
            return use(Wide{});
    }
}

inline void read_part(const std::byte* p, void* to, uint32_t bytes, bool strong) {
    with_word(bytes, [=](auto value) {
        value = read<decltype(value)>(p, strong);
        std::memcpy(to, &value, sizeof value);
    });
}
inline void write_part(std::byte* p, const void* from, uint32_t bytes, bool strong) {
    with_word(bytes, [=](auto value) {
        std::memcpy(&value, from, sizeof value);
        write(p, value, strong);
    });
}

// The checked pointer of one lane, or nullptr after reporting the fault.
template <Where W>
std::byte* checked(Warp& w, uint32_t lane, uint64_t address, uint32_t bytes, bool writing) {
    if (address & (bytes - 1)) {
        memory_fault(w, address, lane, bytes, writing ? "write" : "read", true);
        return nullptr;
    }
    auto* p = pointer<W>(w, lane, address, bytes, writing);
    if (!p) memory_fault(w, address, lane, bytes, writing ? "write" : "read", false);
    return p;
}

// Where the memory of the active lanes lies, when one look at all their addresses will do: they are aligned and in
// one region. Else `each`: every lane has to be looked at by itself, to find its memory or its fault.
template <Where W>
struct Reach {
    using Address = AddressType<W>;
    Warp& w;
    const Address* base;
    Address offset;
    bool each = true;
    bool row = false;             // all 32, each beside the one before
    Address begin = 0;            // the region's first address,
    std::byte* memory = nullptr;  // where that is,
    uint64_t lane_stride = 0;     // and how much further it is for each further lane

    Reach(Warp& warp, const Instr& i, uint32_t bytes, bool writing)
        : w(warp), base(warp.reg<Address>(i.a)), offset(static_cast<Address>(i.imm)) {
        if constexpr (W == Where::global || W == Where::generic) refresh_ranges(*w.worker);
        auto first = static_cast<uint32_t>(std::countr_zero(w.active));
        auto region = region_of<W>(w, static_cast<Address>(base[first] + offset), bytes, writing);
        if (region.bytes < bytes) return;
        constexpr Address outside = 64, uneven = 128;  // beside the bits of misalignment, which are below 32
        begin = static_cast<Address>(region.begin);
        auto last = static_cast<Address>(region.bytes - bytes), misaligned = static_cast<Address>(bytes - 1);
        auto row_at = static_cast<Address>(base[0] + offset);
        auto faults = bits_of_lanes<Address>([=, a = base, o = offset, begin = begin, lanes = w.active](uint32_t l) {
            auto address = static_cast<Address>(a[l] + o), in_row = static_cast<Address>(row_at + l * bytes);
            Address bad = (address & misaligned) | (static_cast<Address>(address - begin) > last ? outside : 0);
            return (lanes >> l & 1 ? bad : 0) | (address != in_row ? uneven : 0);
        });
        each = (faults & ~uneven) != 0;
        row = faults == 0 && w.active == all_lanes && region.lane_stride == 0;
        memory = region.memory;
        lane_stride = region.lane_stride;
    }

    std::byte* at(uint32_t lane) const {
        return memory + static_cast<Address>(base[lane] + offset - begin) + lane * lane_stride;
    }
    // f(lane, memory) for each active lane, `backwards` from the last to the first; false after a fault.
    template <class F>
    bool visit(uint32_t bytes, bool writing, F&& f, bool backwards = false) {
        return visit(bytes, writing, f, backwards, nullptr);
    }
    // instead(lane, address) is asked where a lane has no memory: true if it has done what f would have.
    template <class F, class Instead>
    bool visit(uint32_t bytes, bool writing, F&& f, bool backwards, Instead&& instead) {
        for (uint32_t rest = w.active; rest;) {
            auto lane = static_cast<uint32_t>(backwards ? std::bit_width(rest) - 1 : std::countr_zero(rest));
            rest &= ~(1u << lane);
            auto address = static_cast<Address>(base[lane] + offset);
            if constexpr (!std::is_null_pointer_v<std::decay_t<Instead>>)
                if (each && !pointer<W>(w, lane, address, bytes, writing) && instead(lane, address)) continue;
            auto* p = each ? checked<W>(w, lane, address, bytes, writing) : at(lane);
            if (!p) return false;
            f(lane, p);
        }
        return true;
    }
};

template <Where W, class T, class R>
void load(Warp& w, const Instr& i) {
    Reach<W> reach(w, i, sizeof(T), false);
    auto* d = w.reg<R>(i.dst);
    if (reach.row) {
        auto* p = reach.at(0);
        return for_all_lanes([=](uint32_t l) { d[l] = static_cast<R>(read<T>(p + l * sizeof(T), false)); });
    }
    if (!reach.each)
        return for_lanes(w.active, [=](uint32_t l) { d[l] = static_cast<R>(read<T>(reach.at(l), false)); });
    reach.visit(sizeof(T), false, [=](uint32_t l, std::byte* p) { d[l] = static_cast<R>(read<T>(p, false)); });
}

// Vectors and strong reads. A GPU reads a vector, or neighbours' vectors, at one moment. Here 16 bytes are: CUB's scans keep
// a state and the sum that it is about in one vector. As to what is longer, strong writes go from the first lane and element
// to the last, strong reads from the last to the first. So who finds a flag finds the data before it, as NCCL's protocols
// demand.
template <Where W, class T, class R>
[[gnu::noinline]] void load_each(Warp& w, const Instr& i, Reach<W>& reach) {
    bool strong = i.flags & flag_strong;
    if (strong) w.polled = true;
    alignas(64) T values[vector_max][warp_lanes];  // an element may overwrite the address register
    auto bytes = static_cast<uint32_t>(sizeof(T) * i.count);
    uint32_t at_once = elements_at_once<T>(i.count);
    auto read_one = [&](uint32_t lane, std::byte* p) {
        T vector[elements_max<T>];
        for (uint32_t e = i.count; e > 0;) {
            e -= at_once;
            read_part(p + e * sizeof(T), vector + e, static_cast<uint32_t>(at_once * sizeof(T)), strong);
        }
        for (uint32_t e = 0; e < i.count; ++e) values[e][lane] = vector[e];
    };
    if (!reach.visit(bytes, false, read_one, strong)) return;
    for (uint32_t e = 0; e < i.count; ++e) {
        auto* v = values[e];
        assign_lanes(w.active, w.reg<R>(w.program->registers[i.table + e]),
                     [=](uint32_t l) { return static_cast<R>(v[l]); });
    }
}

template <Where W, class T, class R>
void load_many(Warp& w, const Instr& i) {
    Reach<W> reach(w, i, static_cast<uint32_t>(sizeof(T) * i.count), false);
    load_each<W, T, R>(w, i, reach);
}

// Plain vectors of whole registers are nearly all there are, and worth code of their own. Each is read and written as one
// word. use(Vector) with the one of so many elements; false if there is none.
template <class T, uint32_t Count>
struct alignas(sizeof(T) * Count) Vector {
    T elements[Count];
};
template <class T, class Use>
bool with_vector(uint32_t count, const Use& use) {
    if constexpr (sizeof(T) * 2 <= bytes_at_once)
        if (count == 2) return use(Vector<T, 2>{}), true;
    if constexpr (sizeof(T) * 4 <= bytes_at_once)
        if (count == 4) return use(Vector<T, 4>{}), true;
    return false;
}

template <Where W, class T>
void load_vector(Warp& w, const Instr& i) {
    Reach<W> reach(w, i, static_cast<uint32_t>(sizeof(T) * i.count), false);
    auto load_all = [&](auto vector) {
        alignas(64) decltype(vector) vectors[warp_lanes];  // an element may overwrite the address register
        auto* v = vectors;
        for_lanes(w.active, [=](uint32_t l) { read_part(reach.at(l), v + l, sizeof vector, false); });
        for (uint32_t e = 0; e < std::size(vector.elements); ++e) {
            auto* d = w.reg<T>(w.program->registers[i.table + e]);
            for_lanes(w.active, [=](uint32_t l) { d[l] = v[l].elements[e]; });
        }
    };
    if (reach.each || !with_vector<T>(i.count, load_all)) load_each<W, T, T>(w, i, reach);
}

// An ordinary store to a multicast address goes to every device. No manual promises that, but NCCL relies on it: its NVLS
// kernels say so how far they are. False if it is no such address. put(memory) writes one of the copies.
template <class Put>
bool store_to_team(const Warp& w, uint64_t address, uint32_t bytes, Put put) {
    auto* memory = w.worker->grid->launch->memory;
    if (!memory || (address & (bytes - 1)) != 0) return false;
    auto team = memory->team_of(address);
    if (!within(team.range, address, bytes)) return false;
    for (auto& copy : team.copies) put(copy.get() + (address - team.range.begin));
    return true;
}

template <Where W, class T, class R>
[[gnu::noinline]] void store_each(Warp& w, const Instr& i, Reach<W>& reach) {
    bool strong = i.flags & flag_strong;
    auto bytes = static_cast<uint32_t>(sizeof(T) * i.count);
    const R* sources[vector_max];
    for (uint32_t e = 0; e < i.count; ++e) sources[e] = w.reg<R>(w.program->registers[i.table + e]);
    uint32_t at_once = elements_at_once<T>(i.count);
    auto put = [&](uint32_t lane, std::byte* p) {
        T vector[elements_max<T>];
        for (uint32_t e = 0; e < i.count; ++e) vector[e] = static_cast<T>(sources[e][lane]);
        for (uint32_t e = 0; e < i.count; e += at_once)
            write_part(p + e * sizeof(T), vector + e, static_cast<uint32_t>(at_once * sizeof(T)), strong);
    };
    if constexpr (W == Where::global || W == Where::generic)
        reach.visit(bytes, true, put, false, [&](uint32_t lane, uint64_t address) {
            return store_to_team(w, address, bytes, [&](std::byte* p) { put(lane, p); });
        });
    else
        reach.visit(bytes, true, put);
}

template <Where W, class T, class R>
void store(Warp& w, const Instr& i) {
    Reach<W> reach(w, i, sizeof(T), true);
    auto* s = w.reg<R>(w.program->registers[i.table]);
    if (reach.row) {
        auto* p = reach.at(0);
        return for_all_lanes([=](uint32_t l) { write<T>(p + l * sizeof(T), static_cast<T>(s[l]), false); });
    }
    if (!reach.each)
        return for_lanes(w.active, [=](uint32_t l) { write<T>(reach.at(l), static_cast<T>(s[l]), false); });
    store_each<W, T, R>(w, i, reach);
}

// Vectors and strong writes.
template <Where W, class T, class R>
void store_many(Warp& w, const Instr& i) {
    Reach<W> reach(w, i, static_cast<uint32_t>(sizeof(T) * i.count), true);
    store_each<W, T, R>(w, i, reach);
}

template <Where W, class T>
void store_vector(Warp& w, const Instr& i) {
    Reach<W> reach(w, i, static_cast<uint32_t>(sizeof(T) * i.count), true);
    auto store_all = [&](auto vector) {
        alignas(64) decltype(vector) vectors[warp_lanes];
        auto* v = vectors;
        for (uint32_t e = 0; e < std::size(vector.elements); ++e) {
            auto* s = w.reg<T>(w.program->registers[i.table + e]);
            for_lanes(w.active, [=](uint32_t l) { v[l].elements[e] = s[l]; });
        }
        for_lanes(w.active, [=](uint32_t l) { write_part(reach.at(l), v + l, sizeof vector, false); });
    };
    if (reach.each || !with_vector<T>(i.count, store_all)) store_each<W, T, T>(w, i, reach);
}

// A kernel parameter is the same for all.
template <class T, class R>
void load_parameter(Warp& w, const Instr& i) {
    T value;
    std::memcpy(&value, w.block->grid->launch->parameters.data() + i.imm, sizeof value);
    auto* d = w.reg<R>(i.dst);
    auto wide = static_cast<R>(value);
    assign_lanes(w.active, d, [=](uint32_t) { return wide; });
}

enum class Shape { one, many, vector, parameter, store, store_many, store_vector };

template <Where W, class T, class R>
Handler shaped(Shape shape) {
    constexpr bool whole_registers = std::is_same_v<T, R> && (sizeof(T) == 4 || sizeof(T) == 8);
    switch (shape) {
        case Shape::one:
            return fitted<load<W, T, R>>();
        case Shape::vector:
            if constexpr (whole_registers) return fitted<load_vector<W, T>>();
            return load_many<W, T, R>;
        case Shape::many:
            return load_many<W, T, R>;
        case Shape::parameter:
            return load_parameter<T, R>;
        case Shape::store:
            return fitted<store<W, T, R>>();
        case Shape::store_vector:
            if constexpr (whole_registers) return fitted<store_vector<W, T>>();
            return store_many<W, T, R>;
        case Shape::store_many:
            return store_many<W, T, R>;
    }
    return nullptr;
}

template <Where W, class T>
Handler for_register(Shape shape, uint32_t bytes) {
    constexpr uint32_t least = std::is_signed_v<T> ? sizeof(T) + 1 : sizeof(T);  // signed: only what is extended
    if constexpr (least <= 1)
        if (bytes == 1) return shaped<W, T, uint8_t>(shape);
    if constexpr (least <= 2)
        if (bytes == 2) return shaped<W, T, uint16_t>(shape);
    if constexpr (least <= 4)
        if (bytes == 4) return shaped<W, T, uint32_t>(shape);
    if constexpr (sizeof(T) <= 8)
        return bytes == 8 ? shaped<W, T, uint64_t>(shape) : nullptr;
    else
        return bytes == sizeof(T) ? shaped<W, T, T>(shape) : nullptr;
}

template <Where W>
Handler for_type(Shape shape, Type type, uint32_t bytes) {
    bool extended = is_signed(type) && bytes > size_of(type);
    if (extended && size_of(type) == 1) return for_register<W, int8_t>(shape, bytes);
    if (extended && size_of(type) == 2) return for_register<W, int16_t>(shape, bytes);
    if (extended && size_of(type) == 4) return for_register<W, int32_t>(shape, bytes);
    switch (size_of(type)) {
        case 1:
            return for_register<W, uint8_t>(shape, bytes);
        case 2:
            return for_register<W, uint16_t>(shape, bytes);
        case 4:
            return for_register<W, uint32_t>(shape, bytes);
        case 8:
            return for_register<W, uint64_t>(shape, bytes);
        case 16:
            return for_register<W, Wide>(shape, bytes);
        default:
            return nullptr;
    }
}

Handler memory_handler(Where where, Shape shape, Type type, uint32_t bytes) {
    switch (where) {
        case Where::global:
            return for_type<Where::global>(shape, type, bytes);
        case Where::shared:
            return for_type<Where::shared>(shape, type, bytes);
        case Where::shared32:
            return for_type<Where::shared32>(shape, type, bytes);
        case Where::local:
            return for_type<Where::local>(shape, type, bytes);
        case Where::frame:
            return for_type<Where::frame>(shape, type, bytes);
        case Where::param:
            return for_type<Where::param>(shape, type, bytes);
        case Where::generic:
            return for_type<Where::generic>(shape, type, bytes);
    }
    return nullptr;
}

uint32_t take_width(Decoder& d) {
    if (d.take("v2")) return 2;
    if (d.take("v4")) return 4;
    return d.take("v8") ? 8 : 1;
}

// The registers of a scalar or vector operand; all of one width.
uint32_t decode_values(Decoder& d, const ast::Operand& operand, Type type, uint32_t width, bool results,
                       std::vector<RegRef>& refs) {
    uint32_t bytes = 0, widest = size_of(type);
    bool vector = operand.kind == ast::Operand::Kind::vector;
    if ((vector ? operand.parts.size() : 1) != width) d.fail("the operand does not fit the vector's width");
    if (d.failed()) return 0;
    for (uint32_t e = 0; e < width; ++e) {
        auto& part = vector ? operand.parts[e] : operand;
        auto known = d.type_of(part);
        if (known != Type::none && known != Type::pred) widest = size_of(known);
    }
    for (uint32_t e = 0; e < width; ++e) {
        auto& part = vector ? operand.parts[e] : operand;
        bool is_register = d.type_of(part) != Type::none;
        // Constants and `_` take the width of the registers beside them.
        auto unsized = bits_of_width(widest);
        bytes = widest;
        if (results)
            refs.push_back(is_register ? d.loose_dest(part, type, bytes) : d.dest(part, unsized));
        else if (is_register)
            refs.push_back(d.loose_source(part, type, bytes));
        else
            refs.push_back(d.source(part, part.kind == ast::Operand::Kind::integer ? unsized : type));
        if (bytes != widest) d.fail("the registers of the vector are not all of one width");
        if (d.failed()) return 0;
    }
    return widest;
}

void decode_access(Decoder& d, bool is_store) {
    bool strong = take_ordering(d);
    auto space = take_space(d);
    take_cache_hints(d);
    uint32_t width = take_width(d);
    auto type = d.take_type();
    bool too_many = size_of(type) * width > 32 || (type == Type::b128 && width > 1);
    if (type == Type::none || type == Type::pred || too_many) return d.unsupported();
    auto& memory = d.operand(is_store ? 0 : 1);
    auto& values = d.operand(is_store ? 1 : 0);
    if (d.operand_count() > 2 && !d.failed()) {  // a cache policy
        if (d.type_of(d.operand(2)) == Type::none) return d.unsupported();
    }
    auto address = decode_address(d, memory, space);
    std::vector<RegRef> refs;
    uint32_t bytes = decode_values(d, values, type, width, !is_store, refs);
    if (d.failed()) return;
    if (is_store && (address.where == Where::param || space == Space::constant))
        return d.fail("parameters and constants are read only");
    bool one = width == 1 && !strong;
    auto shape = one      ? (is_store ? Shape::store : Shape::one)
                 : strong ? (is_store ? Shape::store_many : Shape::many)
                          : (is_store ? Shape::store_vector : Shape::vector);
    if (shape == Shape::one && address.is_entry_parameter) {
        if (address.offset < 0 || address.offset + size_of(type) > d.function().parameter_bytes)
            return d.fail("the read is outside the parameters");
        shape = Shape::parameter;
    }
    auto handler = memory_handler(address.where, shape, type, bytes);
    if (!handler) return d.unsupported();
    auto table = d.add_table(refs);
    auto& instr = d.emit(handler);
    instr.dst = refs[0];
    instr.a = address.base;
    instr.imm = address.offset;
    instr.flags = strong ? flag_strong : 0;
    instr.count = static_cast<uint16_t>(width);
    instr.table = table;
}

void ignore_all_modifiers(Decoder& d) {
    for (auto modifier : d.inst().modifiers) d.take(modifier);
}

}  // namespace

bool decode_memory(Decoder& d) {
    auto name = d.inst().name;
    if (name == "ld" || name == "ldu")
        decode_access(d, false);
    else if (name == "st" && d.take("bulk"))
        decode_fill(d);
    else if (name == "st" && d.take("async") && is_remote(d))
        decode_remote(d, false);
    else if (name == "st")
        decode_access(d, true);
    else if (name == "prefetch" || name == "prefetchu" || name == "applypriority" || name == "discard") {
        ignore_all_modifiers(d);  // what is discarded has any value, so why not the old one
    } else if (name == "createpolicy") {
        ignore_all_modifiers(d);
        auto dst = d.dest(0, Type::b64);
        auto a = d.constant(0, 8);
        auto& instr = d.emit(move_handler(8));
        instr.dst = dst;
        instr.a = a;
    } else {
        return false;
    }
    return true;
}

}  // namespace tnr::ptx
