// mma and wmma.mma: a warp multiplies matrices that lie in its registers (matrix.hpp). Products are summed in double
// precision and rounded once, which is closer than tensor cores come; how those round between is not documented.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "gpu_server/emulated_gpu/ptx/fragment_registers.hpp"
#include "gpu_server/emulated_gpu/ptx/half.hpp"
#include "gpu_server/emulated_gpu/ptx/matrix_operand.hpp"

namespace tnr::ptx {
namespace {

using matrix::Arithmetic;
using matrix::Element;
using matrix::Family;
using matrix::Fragment;
using matrix::Multiply;
using matrix::Role;

// The largest: 32 x 16 halves; 8 x 128 bits; 16 x 256 bits.
constexpr size_t elements_max = 16 * 256;

// As gather(), of `a`; what is not stored of a sparse one is zero.
template <class T, class Read>
void gather_left(Warp& w, const Multiply& m, uint32_t lanes, T* a, Read&& read) {
    static thread_local T stored[elements_max];
    if (!m.sparsity.there) return gather(w, m.a, lanes, a, read);
    gather(w, m.a, lanes, stored, read);
    auto first = static_cast<uint32_t>(std::countr_zero(lanes));
    uint32_t depth = m.b.rows, selector = w.reg_of<uint32_t>(first, m.sparsity.selector)[first];
    std::fill_n(a, m.a.rows * depth, T{});
    for (uint32_t row = 0; row < m.a.rows; ++row)
        for (uint32_t column = 0; column < m.a.columns; ++column) {
            auto [lane, shift] = matrix::metadata_place(m.a, row, column, selector);
            uint32_t two_bits = w.reg_of<uint32_t>(lane, m.sparsity.metadata)[lane] >> shift & 3;
            a[row * depth + matrix::whole_column(m.a.element, column, two_bits)] = stored[row * m.a.columns + column];
        }
}

double scale_of(Warp& w, const matrix::Scales& scales, const matrix::Scale& scale, uint32_t lane, uint32_t chunk) {
    uint32_t byte = w.reg_of<uint16_t>(lane, scale.byte)[lane] + chunk;
    uint32_t bits = w.reg_of<uint32_t>(lane, scale.data)[lane] >> (byte % 4 * 8) & 255;
    if (!scales.powers) return decode_bits_of(bits & 127, e4m3_format);
    return bits == 255 ? NAN : std::ldexp(1.0, static_cast<int>(bits) - 127);
}

// Of each four lanes, two that stand together hold the scales of the rows r and r + 8 of `a`, one that of a column of `b`.
void apply_scales(Warp& w, const Multiply& m, uint32_t lanes, double* a, double* b) {
    auto& scales = m.scales;
    auto first = static_cast<uint32_t>(std::countr_zero(lanes));
    uint32_t pair = w.reg_of<uint16_t>(first, scales.a.lane)[first] & 1;
    uint32_t single = w.reg_of<uint16_t>(first, scales.b.lane)[first] & 3;
    uint32_t depth = m.b.rows, columns = m.b.columns, chunk_depth = depth / scales.chunks;
    for (uint32_t k = 0; k < depth; ++k) {
        for (uint32_t row = 0; row < m.a.rows; ++row)
            a[row * depth + k] *= scale_of(w, scales, scales.a, row % 8 * 4 + pair * 2 + row / 8, k / chunk_depth);
        for (uint32_t column = 0; column < columns; ++column)
            b[k * columns + column] *= scale_of(w, scales, scales.b, column * 4 + single, k / chunk_depth);
    }
}

// Products of anything shorter than f64 are exact.
void add_real_products(const Multiply& m, const double* a, const double* b, double* sums) {
    const ProductShape shape{m.a.rows, m.b.rows, m.b.columns};
    if (m.d.element == Element::f64)
        add_products(shape, a, b, sums,
                     [](double& sum, double left, double right) { sum = std::fma(left, right, sum); });
    else
        add_products(shape, a, b, sums, [](double& sum, double left, double right) { sum += left * right; });
}

void multiply_real(Warp& w, const Multiply& m, uint32_t lanes) {
    static thread_local double a[elements_max], b[elements_max], sums[elements_max];
    auto reader = [](Element element) { return [element](uint64_t bits) { return matrix::real_of(bits, element); }; };
    gather_left(w, m, lanes, a, reader(m.a.element));
    gather(w, m.b, lanes, b, reader(m.b.element));
    gather(w, m.c, lanes, sums, reader(m.c.element));
    if (m.scales.chunks) apply_scales(w, m, lanes, a, b);
    for (uint32_t part = 0; part < m.d.parts; ++part)
        add_real_products(m, a + part * m.a.rows * m.b.rows, b + part * m.b.rows * m.b.columns,
                          sums + part * m.d.rows * m.d.columns);
    scatter(w, m.d, lanes, [&](uint32_t place) { return matrix::bits_from(sums[place], m.d.element); });
}

void multiply_whole(Warp& w, const Multiply& m, uint32_t lanes) {
    static thread_local int32_t a[elements_max], b[elements_max];
    static thread_local int64_t sums[elements_max];
    auto reader = [](Element element) {
        return [element](uint64_t bits) { return matrix::whole_of(static_cast<uint32_t>(bits), element); };
    };
    gather_left(w, m, lanes, a, reader(m.a.element));
    gather(w, m.b, lanes, b, reader(m.b.element));
    gather(w, m.c, lanes, sums, reader(Element::s32));
    add_products({m.a.rows, m.b.rows, m.b.columns}, a, b, sums, [&](int64_t& sum, int32_t left, int32_t right) {
        sum += m.arithmetic == Arithmetic::xor_popc   ? left ^ right
               : m.arithmetic == Arithmetic::and_popc ? left & right
                                                      : left * right;
    });
    constexpr int64_t lowest = std::numeric_limits<int32_t>::min(), highest = std::numeric_limits<int32_t>::max();
    scatter(w, m.d, lanes, [&](uint32_t place) -> uint64_t {
        int64_t sum = m.saturate ? std::clamp(sums[place], lowest, highest) : sums[place];
        return static_cast<uint32_t>(sum);
    });
}

// dst: which of Program::multiplies.
void multiply(Warp& w, const Instr& i, uint32_t lanes) {
    auto& m = w.program->multiplies[i.dst];
    if (m.arithmetic == Arithmetic::real)
        multiply_real(w, m, lanes);
    else
        multiply_whole(w, m, lanes);
}

Arithmetic take_bit_operation(Decoder& d) {
    bool both = d.take("and");
    if (!both && !d.take("xor")) d.unsupported();
    if (!d.take("popc")) d.unsupported();
    return both ? Arithmetic::and_popc : Arithmetic::xor_popc;
}

// The elements' names stand in the order d, a, b, c; where wmma multiplies halves, they are only d's and c's.
struct Elements {
    Element d = Element::none, a = Element::none, b = Element::none, c = Element::none;
};

Elements elements_of(Decoder& d) {
    auto found = take_elements(d);
    if (found.size() == 4) return {found[0], found[1], found[2], found[3]};
    if (found.size() == 2) return {found[0], Element::f16, Element::f16, found[1]};
    d.unsupported();
    return {};
}

bool fit(const Elements& e) {
    bool whole = matrix::is_whole(e.a);
    if (whole != matrix::is_whole(e.b) || matrix::bits_of(e.a) != matrix::bits_of(e.b)) return false;
    if (!whole && matrix::bits_of(e.a) > 8 && e.a != e.b) return false;
    if (whole) return e.d == Element::s32 && e.c == Element::s32 && (e.a == Element::b1) == (e.b == Element::b1);
    if (e.a == Element::f64) return e.d == Element::f64 && e.c == Element::f64;
    bool half_sums = e.a == Element::f16 || matrix::bits_of(e.a) == 8;
    auto sums = [&](Element x) { return x == Element::f32 || (half_sums && x == Element::f16); };
    return sums(e.d) && sums(e.c);
}

// `at`: the operand with the numbers; behind it {which byte, which lane}.
matrix::Scale decode_scale(Decoder& d, size_t at) {
    auto& place = d.operand(at + 1);
    if (place.parts.size() != 2) return d.fail("expected {byte, thread} of a scale"), matrix::Scale{};
    auto& data = d.operand(at).parts.size() == 1 ? d.operand(at).parts[0] : d.operand(at);  // with or without braces
    return {d.source(data, Type::b32), d.source(place.parts[0], Type::u16), d.source(place.parts[1], Type::u16)};
}

// .kind::mxf4nvf4.block_scale.scale_vec::4X ... .ue4m3: words only. False: not one of the ISA's combinations.
bool take_scales(Decoder& d, std::string_view kind, matrix::Scales& scales) {
    bool bytes = kind == "kind::mxf8f6f4", packed = kind == "kind::mxf4" || kind == "kind::mxf4nvf4";
    bool scaled = d.take("block_scale");
    if (scaled != (bytes || packed)) return false;
    if (!scaled) return true;
    auto width = d.take_any_of({"scale_vec::1X", "scale_vec::2X", "scale_vec::4X"});
    scales.chunks = !width.empty() ? static_cast<uint32_t>(width[11] - '0') : bytes ? 1 : 2;
    scales.powers = d.take("ue8m0");
    if (!scales.powers && !(kind == "kind::mxf4nvf4" && scales.chunks == 4 && d.take("ue4m3"))) return false;
    return bytes ? scales.chunks == 1 : scales.chunks == 2 || (kind == "kind::mxf4nvf4" && scales.chunks == 4);
}

// "row" and "col", as they stand.
std::vector<std::string_view> take_layouts(Decoder& d) {
    std::vector<std::string_view> found;
    for (auto word : d.inst().modifiers)
        if ((word == "row" || word == "col") && d.take(word)) found.push_back(word);
    return found;
}

void choose_fragments(Multiply& m, Family family, matrix::Shape shape, const Elements& elements,
                      const std::vector<std::string_view>& layouts) {
    auto choose = [&](Role role, bool columns, Element element) {
        bool volta = family == Family::mma && matrix::is_volta(shape, elements.a);
        return volta ? matrix::volta_fragment(role, columns, element) : matrix::fragment(family, role, shape, element);
    };
    m.a = choose(Role::a, layouts[0] == "col", elements.a);
    m.b = choose(Role::b, layouts[1] == "col", elements.b);
    m.c = choose(Role::accumulator, false, elements.c);
    m.d = choose(Role::accumulator, false, elements.d);
}

// d, a, b, c, of a sparse `a` its metadata and selector, and the scales.
void decode_operands(Decoder& d, Multiply& m) {
    read_fragment(d, d.operand(1), m.a);
    read_fragment(d, d.operand(2), m.b);
    read_fragment(d, d.operand(3), m.c);
    write_fragment(d, d.operand(0), m.d);
    size_t next = 4;
    if (m.sparsity.there) {
        m.sparsity.metadata = d.source(next++, Type::b32);
        m.sparsity.selector = d.source(next++, Type::u32);
    }
    if (m.scales.chunks) m.scales.a = decode_scale(d, next), m.scales.b = decode_scale(d, next + 2);
}

void decode_multiply(Decoder& d, Family family) {
    d.take("sync");
    d.take("rn");
    auto kind = d.take_any_of({"kind::f8f6f4", "kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4"});
    Multiply m;
    m.sparsity.there = family == Family::sparse;
    if (!take_scales(d, kind, m.scales)) return d.unsupported();
    auto shape = take_shape(d);
    // How wmma's operands lay in memory is of no account here: a fragment is a matrix, however it was loaded.
    auto layouts = take_layouts(d);
    m.saturate = d.take("satfinite");
    auto elements = elements_of(d);
    if (!d.take("aligned") || layouts.size() != 2) return d.unsupported();
    if (d.failed()) return;
    bool any_layout = family == Family::wmma || matrix::is_volta(shape, elements.a);
    if (!any_layout && (layouts[0] != "row" || layouts[1] != "col")) return d.unsupported();
    if (kind.starts_with("kind::mxf4") && elements.a == Element::e2m1 && elements.b == Element::e2m1)
        elements.a = elements.b = Element::e2m1_packed;
    bool packed = elements.a == Element::e2m1_packed;
    if (!fit(elements) || packed != kind.starts_with("kind::mxf4") || (m.scales.chunks && shape.m != 16))
        return d.unsupported();
    if (elements.a == Element::b1)
        m.arithmetic = take_bit_operation(d);
    else if (matrix::is_whole(elements.a))
        m.arithmetic = Arithmetic::whole;
    choose_fragments(m, family, shape, elements, layouts);
    for (auto* part : {&m.a, &m.b, &m.c, &m.d})
        if (part->register_count == 0) return d.unsupported();
    decode_operands(d, m);
    auto& all = d.program().multiplies;
    emit_aligned(d, multiply).dst = static_cast<RegRef>(all.size());
    all.push_back(std::move(m));
}

}  // namespace

bool decode_matrix(Decoder& d) {
    auto name = d.inst().name;
    if (name == "mma") {
        bool sparse = !d.take_any_of({"sp", "sp::ordered_metadata"}).empty();
        return decode_multiply(d, sparse ? Family::sparse : Family::mma), true;
    }
    if (name == "wmma" && d.take("mma")) return decode_multiply(d, Family::wmma), true;
    return false;
}

}  // namespace tnr::ptx
