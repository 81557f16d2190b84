// atom and red. Blocks run on several host threads, so these are the host's own atomics; what the host lacks (float sums,
// min and max, inc and dec) is a compare-and-swap loop.
#include "gpu_server/emulated_gpu/ptx/atomic_values.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"
#include "gpu_server/emulated_gpu/ptx/memory_operand.hpp"
#include "gpu_server/emulated_gpu/ptx/transaction.hpp"
#include "gpu_server/emulated_gpu/ptx/wide.hpp"

namespace tnr::ptx {
namespace {

template <class T>
T exchange_if(std::byte* p, T expected, T wanted) {
    if constexpr (sizeof(T) == sizeof(Wide)) return exchange_wide_if(p, expected, wanted);
    __atomic_compare_exchange_n(reinterpret_cast<T*>(p), &expected, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

template <class U>
U fetch_add(std::byte* p, U v) {
    return __atomic_fetch_add(reinterpret_cast<U*>(p), v, __ATOMIC_SEQ_CST);
}
template <class U>
U fetch_and(std::byte* p, U v) {
    return __atomic_fetch_and(reinterpret_cast<U*>(p), v, __ATOMIC_SEQ_CST);
}
template <class U>
U fetch_or(std::byte* p, U v) {
    return __atomic_fetch_or(reinterpret_cast<U*>(p), v, __ATOMIC_SEQ_CST);
}
template <class U>
U fetch_xor(std::byte* p, U v) {
    return __atomic_fetch_xor(reinterpret_cast<U*>(p), v, __ATOMIC_SEQ_CST);
}
template <class U>
U swap(std::byte* p, U v) {
    if constexpr (sizeof(U) == sizeof(Wide)) return swap_wide(p, v);
    return __atomic_exchange_n(reinterpret_cast<U*>(p), v, __ATOMIC_SEQ_CST);
}

// A lane's pointer, or nullptr after the fault.
template <Where W>
std::byte* target(Warp& w, const Instr& i, uint32_t lane, uint32_t bytes) {
    auto address = static_cast<AddressType<W>>(w.reg<AddressType<W>>(i.a)[lane] + static_cast<uint64_t>(i.imm));
    bool misaligned = address & (bytes - 1);
    auto* p = misaligned ? nullptr : pointer<W>(w, lane, address, bytes, true);
    if (!p) memory_fault(w, address, lane, bytes, "atomic access", misaligned);
    return p;
}

template <Where W, class U, auto F>
void atomic(Warp& w, const Instr& i) {
    refresh_ranges(*w.worker);
    auto *d = w.reg<U>(i.dst), *b = w.reg<U>(i.b);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto* p = target<W>(w, i, lane, sizeof(U));
        if (!p) return;
        d[lane] = F(p, b[lane]);
    }
}

// The destination of a cas may be its operand: values are taken before.
template <Where W, class U>
void compare_and_swap(Warp& w, const Instr& i) {
    refresh_ranges(*w.worker);
    w.polled = true;  // locks are taken so
    auto *d = w.reg<U>(i.dst), *b = w.reg<U>(i.b), *c = w.reg<U>(i.c);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto* p = target<W>(w, i, lane, sizeof(U));
        if (!p) return;
        d[lane] = exchange_if<U>(p, b[lane], c[lane]);
    }
}

// An exchange takes locks too.
template <Where W, class U>
void exchange(Warp& w, const Instr& i) {
    w.polled = true;
    atomic<W, U, swap<U>>(w, i);
}

template <Where W, class U>
Handler replacing(std::string_view op) {
    if (op == "exch") return exchange<W, U>;
    return op == "cas" ? compare_and_swap<W, U> : nullptr;
}

template <Where W, class U>
Handler bitwise(std::string_view op) {
    if (op == "and") return atomic<W, U, fetch_and<U>>;
    if (op == "or") return atomic<W, U, fetch_or<U>>;
    if (op == "xor") return atomic<W, U, fetch_xor<U>>;
    return replacing<W, U>(op);
}

template <Where W, class U, class S>
Handler arithmetic(std::string_view op) {
    if (op == "add") return atomic<W, U, fetch_add<U>>;
    if (op == "min") return atomic<W, U, update<U, smaller<U, S>>>;
    if (op == "max") return atomic<W, U, update<U, larger<U, S>>>;
    if constexpr (sizeof(U) == 4) {
        if (op == "inc") return atomic<W, U, update<U, increment>>;
        if (op == "dec") return atomic<W, U, update<U, decrement>>;
    }
    return nullptr;
}

// add, min and max of one half or bfloat, or of two in a register.
template <Where W, float (*Load)(uint16_t), uint16_t (*Add)(uint16_t, uint16_t)>
Handler of_halves(std::string_view op, bool pair) {
    if (op == "add")
        return pair ? atomic<W, uint32_t, update<uint32_t, on_halves<Add>>>
                    : atomic<W, uint16_t, update<uint16_t, Add>>;
    constexpr auto low = extreme<false, Load>, high = extreme<true, Load>;
    if (op == "min")
        return pair ? atomic<W, uint32_t, update<uint32_t, on_halves<low>>>
                    : atomic<W, uint16_t, update<uint16_t, low>>;
    if (op == "max")
        return pair ? atomic<W, uint32_t, update<uint32_t, on_halves<high>>>
                    : atomic<W, uint16_t, update<uint16_t, high>>;
    return nullptr;
}

template <Where W>
Handler handler_for(std::string_view op, Type type) {
    switch (type) {
        case Type::b16:
            return replacing<W, uint16_t>(op);
        case Type::b128:
            return replacing<W, Wide>(op);
        case Type::b32:
            return bitwise<W, uint32_t>(op);
        case Type::b64:
            return bitwise<W, uint64_t>(op);
        case Type::u32:
            return arithmetic<W, uint32_t, uint32_t>(op);
        case Type::s32:
            return arithmetic<W, uint32_t, int32_t>(op);
        case Type::u64:
            return arithmetic<W, uint64_t, uint64_t>(op);
        case Type::s64:
            return arithmetic<W, uint64_t, int64_t>(op);
        case Type::f32:
            return op == "add" ? atomic<W, uint32_t, update<uint32_t, add_f32>> : nullptr;
        case Type::f64:
            return op == "add" ? atomic<W, uint64_t, update<uint64_t, add_f64>> : nullptr;
        case Type::f16:
        case Type::f16x2:
            return of_halves<W, half_to_float, add_f16>(op, type == Type::f16x2);
        case Type::bf16:
        case Type::bf16x2:
            return of_halves<W, bfloat_to_float, add_bf16>(op, type == Type::bf16x2);
        default:
            return nullptr;
    }
}

Handler atomic_handler(Where where, std::string_view op, Type type) {
    switch (where) {
        case Where::global:
            return handler_for<Where::global>(op, type);
        case Where::shared:
            return handler_for<Where::shared>(op, type);
        case Where::shared32:
            return handler_for<Where::shared32>(op, type);
        case Where::generic:
            return handler_for<Where::generic>(op, type);
        default:
            return nullptr;
    }
}

void emit_atomic(Decoder& d, Handler handler, const Address& address, int64_t offset, RegRef dst, RegRef b, RegRef c) {
    auto& instr = d.emit(handler);
    instr.dst = dst;
    instr.a = address.base;
    instr.imm = address.offset + offset;
    instr.b = b;
    instr.c = c;
}

// atom.global.v4.f32.add {...}, [a], {...}: each element is an atomic operation by itself.
void decode_elements(Decoder& d, bool returns, uint32_t width, Handler handler, const Address& address, Type type) {
    auto& values = d.operand(returns ? 2 : 1);
    bool fits = values.parts.size() == width && (!returns || d.operand(0).parts.size() == width);
    if (!fits) return d.fail("the operand does not fit the vector's width");
    for (uint32_t e = 0; e < width; ++e) {
        auto b = d.source(values.parts[e], type);
        auto dst = returns ? d.dest(d.operand(0).parts[e], type) : d.temporary(type);
        if (d.failed()) return;
        emit_atomic(d, handler, address, int64_t{e} * size_of(type), dst, b, 0);
    }
}

void decode(Decoder& d, bool returns) {
    take_ordering(d);
    auto space = take_space(d);
    auto op = d.take_any_of({"add", "min", "max", "inc", "dec", "cas", "exch", "and", "or", "xor"});
    d.take("noftz");
    take_cache_hints(d);
    uint32_t width = d.take("v2") ? 2 : d.take("v4") ? 4 : d.take("v8") ? 8 : 1;
    auto type = d.take_type();
    size_t at = returns ? 1 : 0;
    auto address = decode_address(d, d.operand(at), space);
    auto handler = op.empty() || d.failed() ? nullptr : atomic_handler(address.where, op, type);
    if (!handler) return d.unsupported();
    if (width > 1) {
        bool known = is_float(type) || type == Type::f16x2 || type == Type::bf16x2;
        return known ? decode_elements(d, returns, width, handler, address, type) : d.unsupported();
    }
    auto b = d.source(at + 1, type);
    auto c = op == "cas" ? d.source(at + 2, type) : 0;
    auto dst = returns ? d.dest(0, type) : d.temporary(type);
    emit_atomic(d, handler, address, 0, dst, b, c);
}

}  // namespace

bool decode_atomic(Decoder& d) {
    auto name = d.inst().name;
    if (name != "atom" && name != "red") return false;
    if (name == "red" && d.take("async") && is_remote(d)) return decode_remote(d, true), true;
    decode(d, name == "atom");
    return true;
}

}  // namespace tnr::ptx
