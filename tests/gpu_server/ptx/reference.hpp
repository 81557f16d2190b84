// Single instructions on many operands beside references in plain C++.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <string>

namespace tnr::ptx::test {

struct OperandRow {
    uint64_t x = 0, y = 0, z = 0, result = 0;
    uint32_t a() const { return static_cast<uint32_t>(x); }
    uint32_t b() const { return static_cast<uint32_t>(y); }
    uint32_t c() const { return static_cast<uint32_t>(z); }
    int64_t sx() const { return static_cast<int64_t>(x); }
    int64_t sy() const { return static_cast<int64_t>(y); }
    int32_t sa() const { return static_cast<int32_t>(x); }
    int32_t sb() const { return static_cast<int32_t>(y); }
    int32_t sc() const { return static_cast<int32_t>(z); }
    float f() const { return std::bit_cast<float>(a()); }
    float g() const { return std::bit_cast<float>(b()); }
    float h() const { return std::bit_cast<float>(c()); }
    double u() const { return std::bit_cast<double>(x); }
};
using Expectation = std::function<uint64_t(const OperandRow&)>;

// Runs `body` once for each of many operands: %x, %y, %z are the words, %a to %c and %h to %j their low parts, %f, %g, %l the
// same as floats, %u to %w as doubles; what it leaves in %o must be what the reference says.
void agrees(const std::string& body, const Expectation& reference);

}  // namespace tnr::ptx::test
