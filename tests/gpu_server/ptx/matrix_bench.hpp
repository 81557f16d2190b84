// What tests of mma have in common: a product of small whole numbers, calculated here, against an instruction's. Where each lane's
// elements lie is written down by each test as the PTX manual has it, and not as matrix.cpp has it.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpu_server/emulated_gpu/ptx/half.hpp"
#include "tests/gpu_server/ptx/bench.hpp"

namespace tnr::ptx::test {

struct Place {
    uint32_t row, column;
};
using Layout = std::function<Place(uint32_t group, uint32_t member, uint32_t element)>;

struct Matrix {
    uint32_t rows, columns, bits;  // bits of an element
    uint32_t elements;             // a lane has
    Layout place;
    std::vector<int> values{};
};

inline int small_number(uint32_t at, uint32_t seed, int lowest, int highest) {
    uint32_t mixed = (at + 1) * 2654435761u ^ seed * 40503u;
    return lowest + static_cast<int>((mixed >> 13) % static_cast<uint32_t>(highest - lowest + 1));
}

using Encode = std::function<uint64_t(int)>;

// The words that the lanes load: lane by lane, register by register.
inline std::vector<uint32_t> words_of(const Matrix& m, const Encode& encode) {
    uint32_t words = m.elements * m.bits / 32;
    std::vector<uint32_t> all(32 * words);
    for (uint32_t lane = 0; lane < 32; ++lane)
        for (uint32_t e = 0; e < m.elements; ++e) {
            auto [row, column] = m.place(lane / 4, lane % 4, e);
            uint64_t bits = encode(m.values[row * m.columns + column]);
            uint32_t bit = e * m.bits;
            all[lane * words + bit / 32] |= static_cast<uint32_t>(bits << bit % 32);
            if (m.bits == 64) all[lane * words + bit / 32 + 1] = static_cast<uint32_t>(bits >> 32);
        }
    return all;
}

inline std::string register_names(const char* prefix, uint32_t count) {
    std::string text;
    for (uint32_t i = 0; i < count; ++i) text.append(i ? ", %" : "{%").append(prefix).append(std::to_string(i));
    return text + "}";
}

// Each lane loads its registers of a, b and c, and a word more (%e), multiplies, and stores those of d.
// `more` operands may name %scale, whose byte j is the power of two j % 2 + the number of ones in the lane's last three bits.
inline std::string matrix_kernel(const std::string& instruction, uint32_t d, uint32_t a, uint32_t b, uint32_t c,
                                 bool wide, const std::string& more = "") {
    std::string type = wide ? "b64" : "b32", bytes = wide ? "8" : "4";
    std::string text =
        ".version 8.7\n.target sm_90\n.address_size 64\n"
        ".entry k(.param .u64 pd, .param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pe)\n{\n"
        ".reg .b32 %lane, %at; .reg .b64 %p, %o;\n"
        "mov.u32 %lane, %laneid;\n"
        ".reg .b32 %scale; and.b32 %scale, %lane, 7; popc.b32 %scale, %scale;\n"
        "mad.lo.u32 %scale, %scale, 0x01010101, 0x807f807f;\n"
        ".reg .b32 %e; ld.param.u64 %p, [pe]; mul.wide.u32 %o, %lane, 4; add.u64 %p, %p, %o; ld.global.u32 %e, [%p];\n";
    auto each = [&](const char* name, uint32_t count, bool store) {
        text += ".reg ." + type + " %" + name + "<" + std::to_string(count) + ">;\n";
        text += std::string("ld.param.u64 %p, [p") + name + "];\n";
        text += "mul.lo.u32 %at, %lane, " + std::to_string(count) + "; mul.wide.u32 %o, %at, " + bytes +
                "; add.u64 %p, %p, %o;\n";
        for (uint32_t i = 0; i < count; ++i) {
            std::string reg = "%" + (name + std::to_string(i)),
                        place = "[%p+" + std::to_string(i * (wide ? 8 : 4)) + "]";
            const auto &first = store ? place : reg, &second = store ? reg : place;
            text.append(store ? "st.global." : "ld.global.").append(type).append(" ");
            text.append(first).append(", ").append(second).append(";\n");
        }
    };
    each("a", a, false);
    each("b", b, false);
    each("c", c, false);
    std::string call = instruction + " " + register_names("d", d) + ", " + register_names("a", a) + ", " +
                       register_names("b", b) + ", " + register_names("c", c) + more + ";\n";
    // d is declared by `each`, which also stores it: the multiplication stands between.
    auto head = text.size();
    each("d", d, true);
    auto store = text.find("st.global", head);
    text.insert(store, call);
    return text + "ret;\n}";
}

struct Case {
    const char* instruction;
    Matrix a, b, sums;
    Encode encode, encode_sum;
    int lowest = -4, highest = 4;
    std::function<int(int, int)> multiply = [](int x, int y) { return x * y; };
    std::string more = "";
    std::function<int(uint32_t, uint32_t, uint32_t)> scale = [](uint32_t, uint32_t, uint32_t) { return 1; };
    // Of a sparse `a`: where in the whole row what is stored in a column stands, and what the lanes have in %e.
    std::function<uint32_t(uint32_t, uint32_t)> whole = [](uint32_t, uint32_t column) { return column; };
    std::vector<uint32_t> metadata = std::vector<uint32_t>(32);
};

inline void multiplies(Case c) {
    INFO(c.instruction);
    for (auto* m : {&c.a, &c.b, &c.sums}) {
        m->values.resize(m->rows * m->columns);
        bool sums = m == &c.sums;
        for (uint32_t i = 0; i < m->values.size(); ++i)
            m->values[i] = small_number(i, m->bits + m->rows, sums ? -9 : c.lowest, sums ? 9 : c.highest);
    }
    Matrix expected = c.sums;
    for (uint32_t i = 0; i < c.a.rows; ++i)
        for (uint32_t j = 0; j < c.b.columns; ++j)
            for (uint32_t stored = 0; stored < c.a.columns; ++stored) {
                uint32_t k = c.whole(i, stored);
                expected.values[i * c.b.columns + j] +=
                    c.scale(i, j, k) *
                    c.multiply(c.a.values[i * c.a.columns + stored], c.b.values[k * c.b.columns + j]);
            }
    bool wide = c.a.bits == 64;
    auto registers = [&](const Matrix& m) { return m.elements * m.bits / (wide ? 64 : 32); };
    Bench bench(matrix_kernel(c.instruction, registers(c.sums), registers(c.a), registers(c.b), registers(c.sums), wide,
                              c.more));
    auto wanted = words_of(expected, c.encode_sum);
    auto d = bench.array<uint32_t>(wanted.size());
    bench.run("k", {1}, {32}, d, bench.array(words_of(c.a, c.encode)), bench.array(words_of(c.b, c.encode)),
              bench.array(words_of(c.sums, c.encode_sum)), bench.array(c.metadata));
    CHECK(std::vector<uint32_t>(d.data(), d.data() + d.size) == wanted);
}

inline uint64_t half(int x) {
    return to_half(x);
}
inline uint64_t bfloat(int x) {
    return to_bfloat(x);
}
inline uint64_t single(int x) {
    return std::bit_cast<uint32_t>(static_cast<float>(x));
}
inline uint64_t twice_as_wide(int x) {
    return std::bit_cast<uint64_t>(static_cast<double>(x));
}
inline uint64_t byte(int x) {
    return static_cast<uint8_t>(x);
}
inline uint64_t four_bits(int x) {
    return static_cast<uint32_t>(x) & 15;
}
inline uint64_t whole(int x) {
    return static_cast<uint32_t>(x);
}

inline Matrix sums16(uint32_t bits) {
    return {16, 8, bits, 4, [](uint32_t g, uint32_t t, uint32_t i) -> Place {
                return {i < 2 ? g : g + 8, t * 2 + (i & 1)};
            }};
}
inline Matrix sums8(uint32_t bits) {
    return {8, 8, bits, 2, [](uint32_t g, uint32_t t, uint32_t i) -> Place { return {g, t * 2 + i}; }};
}

}  // namespace tnr::ptx::test
