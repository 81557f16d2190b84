// multimem: an address that stands for memory on each device of a team. ld_reduce makes one value of all, st writes and red
// changes each. A vector is its elements one after another, as NVIDIA promises no more of it.
//
// Ordering words change nothing: each copy is reached by the host's own atomics, in the order of the program.
#include <algorithm>
#include <functional>

#include "gpu_server/emulated_gpu/ptx/atomic_values.hpp"
#include "gpu_server/emulated_gpu/ptx/memory_operand.hpp"

namespace tnr::ptx {
namespace {

// Calls act(lane, copies, offset): the lane's value is `offset` behind each of the copies.
template <class U, class Act>
void each_lane(Warp& w, const Instr& i, const char* what, Act act) {
    auto* memory = w.worker->grid->launch->memory;
    auto* addresses = w.reg<uint64_t>(i.a);
    Memory::Team team;
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto address = addresses[lane] + static_cast<uint64_t>(i.imm);
        bool misaligned = address % i.count != 0;
        if (memory && !within(team.range, address, sizeof(U))) team = memory->team_of(address);
        if (misaligned || team.copies.empty() || !within(team.range, address, sizeof(U)))
            return memory_fault(w, address, lane, sizeof(U), what, misaligned);
        act(lane, team.copies, address - team.range.begin);
    }
}

template <class U>
U load(const std::shared_ptr<std::byte>& copy, uint64_t offset) {
    return __atomic_load_n(reinterpret_cast<U*>(copy.get() + offset), __ATOMIC_SEQ_CST);
}

template <class U, auto F>
void load_reduce(Warp& w, const Instr& i) {
    auto* d = w.reg<U>(i.dst);
    w.polled = true;  // what another device writes may be waited for
    each_lane<U>(w, i, "multimem.ld_reduce", [&](uint32_t lane, auto& copies, uint64_t offset) {
        U value = load<U>(copies[0], offset);
        for (size_t c = 1; c < copies.size(); ++c) value = F(value, load<U>(copies[c], offset));
        d[lane] = value;
    });
}

// .acc::f32: rounded once, at the end.
template <float (*Load)(uint16_t), uint16_t (*Round)(double)>
void load_sum(Warp& w, const Instr& i) {
    auto* d = w.reg<uint16_t>(i.dst);
    each_lane<uint16_t>(w, i, "multimem.ld_reduce", [&](uint32_t lane, auto& copies, uint64_t offset) {
        float sum = Load(load<uint16_t>(copies[0], offset));
        for (size_t c = 1; c < copies.size(); ++c) sum += Load(load<uint16_t>(copies[c], offset));
        d[lane] = Round(sum);
    });
}
template <float (*Load)(uint16_t), uint16_t (*Round)(double)>
void load_sums(Warp& w, const Instr& i) {
    auto* d = w.reg<uint32_t>(i.dst);
    each_lane<uint32_t>(w, i, "multimem.ld_reduce", [&](uint32_t lane, auto& copies, uint64_t offset) {
        float low = 0, high = 0;
        for (size_t c = 0; c < copies.size(); ++c) {
            auto pair = load<uint32_t>(copies[c], offset);
            auto x = Load(static_cast<uint16_t>(pair)), y = Load(static_cast<uint16_t>(pair >> 16));
            low = c ? low + x : x;  // a sum that began with +0 would lose the sign of -0
            high = c ? high + y : y;
        }
        d[lane] = Round(low) | static_cast<uint32_t>(Round(high)) << 16;
    });
}

template <class U, auto F>
void reduce(Warp& w, const Instr& i) {
    auto* b = w.reg<U>(i.b);
    each_lane<U>(w, i, "multimem.red", [&](uint32_t lane, auto& copies, uint64_t offset) {
        for (auto& copy : copies) update<U, F>(copy.get() + offset, b[lane]);
    });
}

template <class U>
void store(Warp& w, const Instr& i) {
    auto* b = w.reg<U>(i.b);
    each_lane<U>(w, i, "multimem.st", [&](uint32_t lane, auto& copies, uint64_t offset) {
        for (auto& copy : copies)
            __atomic_store_n(reinterpret_cast<U*>(copy.get() + offset), b[lane], __ATOMIC_SEQ_CST);
    });
}

enum class What { load_reduce, store, reduce };

template <class U, auto F>
Handler by(What what) {
    return what == What::reduce ? reduce<U, F> : load_reduce<U, F>;
}

template <class U>
Handler bitwise(What what, std::string_view op) {
    if (op == "and") return by<U, std::bit_and<U>{}>(what);
    if (op == "or") return by<U, std::bit_or<U>{}>(what);
    return op == "xor" ? by<U, std::bit_xor<U>{}>(what) : nullptr;
}

template <class U, class S>
Handler arithmetic(What what, std::string_view op) {
    if (op == "add" && !(sizeof(U) == 8 && std::is_signed_v<S>))
        return by<U, std::plus<U>{}>(what);  // the ISA has no add.s64
    if (op == "min") return by<U, smaller<U, S>>(what);
    return op == "max" ? by<U, larger<U, S>>(what) : nullptr;
}

template <float (*Load)(uint16_t), uint16_t (*Round)(double), uint16_t (*Add)(uint16_t, uint16_t)>
Handler of_halves(What what, std::string_view op, bool pair, bool widely) {
    constexpr auto low = extreme<false, Load>, high = extreme<true, Load>;
    if (widely) {
        if (op != "add" || what != What::load_reduce) return nullptr;
        return pair ? load_sums<Load, Round> : load_sum<Load, Round>;
    }
    if (op == "add") return pair ? by<uint32_t, on_halves<Add>>(what) : by<uint16_t, Add>(what);
    if (op == "min") return pair ? by<uint32_t, on_halves<low>>(what) : by<uint16_t, low>(what);
    if (op == "max") return pair ? by<uint32_t, on_halves<high>>(what) : by<uint16_t, high>(what);
    return nullptr;
}

// `widely`: .acc::f32.
Handler reduction(What what, std::string_view op, Type type, bool widely) {
    if (type == Type::f16 || type == Type::f16x2)
        return of_halves<half_to_float, to_half, add_f16>(what, op, type == Type::f16x2, widely);
    if (type == Type::bf16 || type == Type::bf16x2)
        return of_halves<bfloat_to_float, to_bfloat, add_bf16>(what, op, type == Type::bf16x2, widely);
    if (widely) return nullptr;
    switch (type) {
        case Type::b32:
            return bitwise<uint32_t>(what, op);
        case Type::b64:
            return bitwise<uint64_t>(what, op);
        case Type::u32:
            return arithmetic<uint32_t, uint32_t>(what, op);
        case Type::s32:
            return arithmetic<uint32_t, int32_t>(what, op);
        case Type::u64:
            return arithmetic<uint64_t, uint64_t>(what, op);
        case Type::s64:
            return arithmetic<uint64_t, int64_t>(what, op);
        case Type::f32:
            return op == "add" ? by<uint32_t, add_f32>(what) : nullptr;
        case Type::f64:
            return op == "add" ? by<uint64_t, add_f64>(what) : nullptr;
        default:
            return nullptr;
    }
}

Handler store_of(uint32_t bytes) {
    return bytes == 8 ? store<uint64_t> : bytes == 4 ? store<uint32_t> : store<uint16_t>;
}

// Floats fill 4, 8 or 16 bytes, whole numbers and f64 come alone.
bool is_vector(Type type, uint32_t width) {
    auto bytes = size_of(type) * width;
    bool may_be_many =
        type == Type::f32 || type == Type::f16 || type == Type::f16x2 || type == Type::bf16 || type == Type::bf16x2;
    return may_be_many ? bytes == 4 || bytes == 8 || bytes == 16 : width == 1;
}

bool is_known(Type type) {
    return type == Type::b32 || type == Type::b64 || reduction(What::reduce, "min", type, false) ||
           reduction(What::reduce, "add", type, false);
}

void decode(Decoder& d, What what) {
    take_ordering(d);
    auto space = take_space(d);
    std::string_view op;
    if (what != What::store) op = d.take_any_of({"add", "min", "max", "and", "or", "xor"});
    bool widely = d.take("acc::f32");
    uint32_t width = d.take("v2") ? 2 : d.take("v4") ? 4 : d.take("v8") ? 8 : 1;
    auto type = d.take_type();
    bool loads = what == What::load_reduce;
    auto address = decode_address(d, d.operand(loads ? 1 : 0), space);
    if (d.failed()) return;
    bool reachable = address.where == Where::global || address.where == Where::generic;
    auto handler = what == What::store ? store_of(size_of(type)) : reduction(what, op, type, widely);
    if (!reachable || !is_known(type) || !is_vector(type, width) || !handler || (widely && !loads))
        return d.unsupported();
    auto& values = d.operand(loads ? 0 : 1);
    if (width > 1 && values.parts.size() != width) return d.fail("the operand does not fit the vector's width");
    for (uint32_t e = 0; e < width; ++e) {
        auto& value = width > 1 ? values.parts[e] : values;
        auto reg = loads ? d.dest(value, type) : d.source(value, type);
        if (d.failed()) return;
        auto& instr = d.emit(handler);
        instr.a = address.base;
        instr.imm = address.offset + int64_t{e} * size_of(type);
        instr.count = static_cast<uint16_t>(size_of(type) * (e == 0 ? width : 1));  // what the address is a multiple of
        (loads ? instr.dst : instr.b) = reg;
    }
}

}  // namespace

// What else there is of multimem (bulk copies, floats of 8 bits) stays with what is absent.
bool decode_multimem(Decoder& d) {
    if (d.inst().name != "multimem") return false;
    auto& words = d.inst().modifiers;
    auto has = [&](std::string_view beginning) {
        return std::any_of(words.begin(), words.end(), [&](auto word) { return word.starts_with(beginning); });
    };
    if (has("cp") || has("e4m3") || has("e5m2")) return false;
    if (d.take("ld_reduce")) return decode(d, What::load_reduce), true;
    if (d.take("st")) return decode(d, What::store), true;
    if (d.take("red")) return decode(d, What::reduce), true;
    return false;
}

}  // namespace tnr::ptx
