// One value in memory, changed as red does, by name: what asynchronous reductions are made of.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "gpu_server/emulated_gpu/ptx/types.hpp"

namespace tnr::ptx {

inline constexpr std::array<std::string_view, 8> reductions = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};
// Both are values of the type; the one that is changed is aligned.
using Update = void (*)(std::byte* there, const std::byte* operand);
// Null: there is no such reduction. Bits are reduced whatever the type calls them.
Update update_of(std::string_view op, Type type);

}  // namespace tnr::ptx
