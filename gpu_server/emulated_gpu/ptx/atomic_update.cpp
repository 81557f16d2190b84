// See atomic_update.hpp.
#include "gpu_server/emulated_gpu/ptx/atomic_update.hpp"

#include <cstring>
#include <functional>

#include "gpu_server/emulated_gpu/ptx/atomic_values.hpp"

namespace tnr::ptx {
namespace {

template <class U, auto F>
void change(std::byte* there, const std::byte* operand) {
    U value;
    std::memcpy(&value, operand, sizeof value);
    update<U, F>(there, value);
}

template <class U>
Update bits_update(std::string_view op) {
    if (op == "and") return change<U, std::bit_and<U>{}>;
    if (op == "or") return change<U, std::bit_or<U>{}>;
    return op == "xor" ? change<U, std::bit_xor<U>{}> : nullptr;
}

template <class U, class S>
Update whole_update(std::string_view op) {
    if (op == "add") return change<U, std::plus<U>{}>;
    if (op == "min") return change<U, smaller<U, S>>;
    if (op == "max") return change<U, larger<U, S>>;
    if constexpr (sizeof(U) == 4 && std::is_same_v<U, S>) {
        if (op == "inc") return change<U, increment>;
        if (op == "dec") return change<U, decrement>;
    }
    return bits_update<U>(op);
}

template <float (*Load)(uint16_t), uint16_t (*Add)(uint16_t, uint16_t)>
Update half_update(std::string_view op) {
    constexpr auto low = extreme<false, Load>, high = extreme<true, Load>;
    if (op == "add") return change<uint16_t, Add>;
    if (op == "min") return change<uint16_t, low>;
    return op == "max" ? change<uint16_t, high> : nullptr;
}

}  // namespace

Update update_of(std::string_view op, Type type) {
    switch (type) {
        case Type::b32:
            return bits_update<uint32_t>(op);
        case Type::b64:
            return bits_update<uint64_t>(op);
        case Type::u32:
            return whole_update<uint32_t, uint32_t>(op);
        case Type::s32:
            return whole_update<uint32_t, int32_t>(op);
        case Type::u64:
            return whole_update<uint64_t, uint64_t>(op);
        case Type::s64:
            return whole_update<uint64_t, int64_t>(op);
        case Type::f16:
            return half_update<half_to_float, add_f16>(op);
        case Type::bf16:
            return half_update<bfloat_to_float, add_bf16>(op);
        case Type::f32:
            return op == "add" ? change<uint32_t, add_f32> : nullptr;
        case Type::f64:
            return op == "add" ? change<uint64_t, add_f64> : nullptr;
        default:
            return nullptr;
    }
}

}  // namespace tnr::ptx
