// See matrix.hpp.
#include "gpu_server/emulated_gpu/ptx/matrix.hpp"

#include <bit>
#include <charconv>
#include <utility>

#include "gpu_server/emulated_gpu/ptx/half.hpp"

namespace tnr::ptx::matrix {
namespace {

struct Place {
    uint32_t row, column;
};

// Four lanes share a row of `a` (a column of `b`), each with a register's worth of neighbours; further registers hold
// the rows 8 below, then what follows in the row.
Place mma_place(Role role, Shape shape, uint32_t per_register, uint32_t lane, uint32_t element) {
    uint32_t group = lane / 4, member = lane % 4;
    uint32_t reg = element / per_register, within = element % per_register;
    switch (role) {
        case Role::a: {
            bool tall = shape.m == 16;
            uint32_t below = tall ? reg & 1 : 0, chunk = tall ? reg >> 1 : reg;
            return {group + 8 * below, (member + 4 * chunk) * per_register + within};
        }
        case Role::b:
            return {(member + 4 * reg) * per_register + within, group};
        case Role::accumulator:
            return {group + 8 * (element >> 1 & 1), member * 2 + (element & 1) + 8 * (element >> 2)};
    }
    return {0, 0};
}

Place volta_place(Role role, bool columns, bool wide, uint32_t lane, uint32_t element) {
    uint32_t member = lane % 4, upper = lane / 16 * 4;
    if (role == Role::accumulator && wide)
        return {(lane & 1) + (element & 2) + upper, (element & 4) + (lane & 2) + (element & 1)};
    if (role == Role::accumulator) return {member + upper, element};
    if (role == Role::a) return columns ? Place{element + upper, member} : Place{member + upper, element};
    return columns ? Place{element, member + upper} : Place{member, element + upper};
}

bool has_mma(Shape shape, Element element) {
    uint32_t quad = 4 * register_bits(element) / bits_of(element);  // elements of a row that four lanes' registers hold
    bool deep = element == Element::f64 && shape.m == 16 && shape.k == 4 * quad;
    bool small = element == Element::f64 || is_whole(element);  // these have m8n8, with one register of `a`
    if (shape.n != 8) return false;
    if (shape.m == 8) return small && shape.k == quad;
    return shape.m == 16 && (shape.k == quad || shape.k == 2 * quad || deep);
}

// What is stored is half as deep as `b`.
bool has_sparse(Shape shape, Element element) {
    bool narrow_real = !is_whole(element) && bits_of(element) <= 8;
    if (shape.m != 16 || element == Element::f64 || element == Element::b1) return false;
    if (narrow_real && shape.k != 512 / bits_of(element)) return false;
    return has_mma({shape.m, shape.n, shape.k / 2}, element);
}

bool has_wmma(Shape shape, Element element) {
    auto is = [&](uint32_t m, uint32_t n, uint32_t k) { return shape.m == m && shape.n == n && shape.k == k; };
    switch (element) {
        case Element::f16:
        case Element::bf16:
        case Element::s8:
        case Element::u8:
            return is(16, 16, 16) || is(8, 32, 16) || is(32, 8, 16);
        case Element::tf32:
            return is(16, 16, 8);
        case Element::f64:
            return is(8, 8, 4);
        case Element::s4:
        case Element::u4:
            return is(8, 8, 32);
        case Element::b1:
            return is(8, 8, 128);
        default:
            return false;
    }
}

bool has_accumulator(Family family, Shape shape, Element element) {
    if (element != Element::f16 && element != Element::f32 && element != Element::s32 && element != Element::f64)
        return false;
    if (family == Family::warpgroup) return shape.n % 8 == 0 && shape.n - 8 < 256 && element != Element::f64;
    if (family != Family::wmma) return shape.n == 8 && (shape.m == 8 || shape.m == 16);
    return shape.m * shape.n == 256 || (shape.m == 8 && shape.n == 8);
}

}  // namespace

Element element_named(std::string_view word) {
    static constexpr std::pair<std::string_view, Element> names[] = {
        {"f16", Element::f16}, {"bf16", Element::bf16}, {"tf32", Element::tf32}, {"f32", Element::f32},
        {"f64", Element::f64}, {"e4m3", Element::e4m3}, {"e5m2", Element::e5m2}, {"s32", Element::s32},
        {"s8", Element::s8},   {"u8", Element::u8},     {"s4", Element::s4},     {"u4", Element::u4},
        {"b1", Element::b1},   {"e3m2", Element::e3m2}, {"e2m3", Element::e2m3}, {"e2m1", Element::e2m1},
    };
    for (auto& [name, element] : names)
        if (name == word) return element;
    return Element::none;
}

double real_of(uint64_t bits, Element element) {
    auto word = static_cast<uint32_t>(bits);
    switch (element) {
        case Element::f16:
            return half_to_float(static_cast<uint16_t>(bits));
        case Element::bf16:
            return bfloat_to_float(static_cast<uint16_t>(bits));
        case Element::tf32:
            return std::bit_cast<float>(word & ~0x1fffu);  // the rest of the register does not count
        case Element::f32:
            return std::bit_cast<float>(word);
        case Element::e4m3:
            return decode_bits_of(word, e4m3_format);
        case Element::e5m2:
            return decode_bits_of(word, e5m2_format);
        case Element::e3m2:
            return decode_bits_of(word & 63, e3m2_format);
        case Element::e2m3:
            return decode_bits_of(word & 63, e2m3_format);
        case Element::e2m1:
            return decode_bits_of(word >> 2 & 15, e2m1_format);
        case Element::e2m1_packed:
            return decode_bits_of(word & 15, e2m1_format);
        default:
            return std::bit_cast<double>(bits);
    }
}

int32_t whole_of(uint32_t bits, Element element) {
    switch (element) {
        case Element::s8:
            return static_cast<int8_t>(bits);
        case Element::s4:
            return static_cast<int32_t>(bits << 28) >> 28;
        default:
            return static_cast<int32_t>(bits);
    }
}

uint64_t bits_from(double value, Element element) {
    if (element == Element::f16) return to_half(value);
    if (element == Element::f32) return std::bit_cast<uint32_t>(static_cast<float>(value));
    return std::bit_cast<uint64_t>(value);
}

Shape shape_named(std::string_view word) {
    Shape shape;
    for (auto [letter, number] : {std::pair{'m', &shape.m}, {'n', &shape.n}, {'k', &shape.k}}) {
        if (word.empty() || word[0] != letter) return {};
        auto [end, error] = std::from_chars(word.data() + 1, word.data() + word.size(), *number);
        if (error != std::errc{}) return {};
        word.remove_prefix(static_cast<size_t>(end - word.data()));
    }
    return word.empty() ? shape : Shape{};
}

Fragment fragment(Family family, Role role, Shape shape, Element element) {
    Fragment made;
    bool accumulator = role == Role::accumulator, sparse = family == Family::sparse;
    if (family == Family::warpgroup) shape.m = 16;
    bool there = accumulator                   ? has_accumulator(family, shape, element)
                 : sparse                      ? has_sparse(shape, element)
                 : family == Family::mma       ? has_mma(shape, element)
                 : family == Family::warpgroup ? has_mma({shape.m, 8, shape.k}, element)
                                               : has_wmma(shape, element);
    if (!there) return made;
    made.element = element;
    made.rows = role == Role::b ? shape.k : shape.m;
    made.columns = role != Role::a ? shape.n : sparse ? shape.k / 2 : shape.k;
    uint32_t all = made.rows * made.columns;
    made.elements = all / warp_lanes;
    // Each half of `a` and `b` is held several times, as many registers as the first tensor cores needed.
    if (family == Family::wmma && element == Element::f16 && !accumulator) made.elements = 16;
    made.register_count = made.elements / made.per_register();
    bool documented = family != Family::wmma || (accumulator && shape.m <= 16 && shape.n <= 16);
    for (uint32_t lane = 0; lane < warp_lanes; ++lane)
        for (uint32_t e = 0; e < made.elements; ++e) {
            uint32_t place = (lane * made.elements + e) % all;
            if (documented) {
                auto [row, column] = mma_place(role, shape, made.per_register(), lane, e);
                place = row * made.columns + column;
            }
            made.places.push_back(static_cast<uint16_t>(place));
        }
    return made;
}

Fragment volta_fragment(Role role, bool columns, Element element) {
    Fragment made;
    bool accumulator = role == Role::accumulator;
    if (element != Element::f16 && !(accumulator && element == Element::f32)) return made;
    made.element = element;
    made.parts = 4;
    made.rows = role == Role::b ? 4 : 8;
    made.columns = role == Role::a ? 4 : 8;
    made.elements = made.parts * made.rows * made.columns / warp_lanes;
    made.register_count = made.elements / made.per_register();
    for (uint32_t lane = 0; lane < warp_lanes; ++lane)
        for (uint32_t e = 0; e < made.elements; ++e) {
            auto [row, column] = volta_place(role, columns, element == Element::f32, lane, e);
            uint32_t part = lane % 16 / 4;
            made.places.push_back(static_cast<uint16_t>((part * made.rows + row) * made.columns + column));
        }
    return made;
}

MetadataPlace metadata_place(const Fragment& stored, uint32_t row, uint32_t column, uint32_t selector) {
    uint32_t bits = bits_of(stored.element), group = row % 8 * 4;
    auto pieces = [&](uint32_t columns) { return bits == 4 ? columns / 2 : bits == 32 ? columns * 2 : columns; };
    uint32_t piece = pieces(column), all = pieces(stored.columns);
    if (bits >= 16) {  // a lane has half a register for each of the two rows
        uint32_t lane = all == 8 ? selector & 3 : (selector & 1) * 2 + piece / 8;
        return {group + lane, row / 8 * 16 + piece % 8 * 2};
    }
    uint32_t pair = all == 16 ? selector & 1 : piece / 16;  // of lanes, one for each of the two rows
    return {group + pair * 2 + row / 8, piece % 16 * 2};
}

uint32_t whole_column(Element element, uint32_t stored_column, uint32_t two_bits) {
    switch (bits_of(element)) {
        case 4:
            return stored_column / 4 * 8 + two_bits * 2 + stored_column % 2;
        case 32:
            return stored_column * 2 + two_bits / 2;
        default:
            return stored_column / 2 * 4 + two_bits;
    }
}

}  // namespace tnr::ptx::matrix
