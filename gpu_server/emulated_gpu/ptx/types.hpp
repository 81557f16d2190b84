// The scalar types of PTX and the state spaces, as the front end and the decoder name them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tnr::ptx {

enum class Type : uint8_t {
    none,
    pred,
    b8,
    b16,
    b32,
    b64,
    b128,
    u8,
    u16,
    u32,
    u64,
    s8,
    s16,
    s32,
    s64,
    f16,
    f16x2,
    bf16,
    bf16x2,
    tf32,
    f32,
    f32x2,
    f64,
    u16x2,
    s16x2,
    e4m3x2,
    e5m2x2,
    e2m1x2,
    e2m3x2,
    e3m2x2,
    ue8m0x2,
};

// The value of a .b128 register.
__extension__ using Wide = unsigned __int128;

enum class Space : uint8_t { reg, global, constant, shared, local, param, generic };

// Bytes in memory; a predicate has none.
constexpr uint32_t size_of(Type type) {
    switch (type) {
        case Type::b8:
        case Type::u8:
        case Type::s8:
        case Type::e2m1x2:
            return 1;
        case Type::b16:
        case Type::u16:
        case Type::s16:
        case Type::f16:
        case Type::bf16:
        case Type::e4m3x2:
        case Type::e5m2x2:
        case Type::e2m3x2:
        case Type::e3m2x2:
        case Type::ue8m0x2:
            return 2;
        case Type::b32:
        case Type::u32:
        case Type::s32:
        case Type::f32:
        case Type::tf32:
        case Type::f16x2:
        case Type::bf16x2:
        case Type::u16x2:
        case Type::s16x2:
            return 4;
        case Type::b64:
        case Type::u64:
        case Type::s64:
        case Type::f32x2:
        case Type::f64:
            return 8;
        case Type::b128:
            return 16;
        case Type::none:
        case Type::pred:
            return 0;
    }
    return 0;
}

// The type of `bytes` bits without a meaning.
constexpr Type bits_of_width(uint32_t bytes) {
    switch (bytes) {
        case 1:
            return Type::b8;
        case 2:
            return Type::b16;
        case 4:
            return Type::b32;
        case 8:
            return Type::b64;
        default:
            return Type::b128;
    }
}

constexpr bool is_signed(Type type) {
    return type == Type::s8 || type == Type::s16 || type == Type::s32 || type == Type::s64;
}
constexpr bool is_float(Type type) {
    return type == Type::f16 || type == Type::bf16 || type == Type::tf32 || type == Type::f32 || type == Type::f64;
}

// "u32" -> Type::u32; nothing for any other word.
std::optional<Type> type_named(std::string_view word);

}  // namespace tnr::ptx
