// wgmma: four warps that follow each other in the block multiply matrices of which one or both lie in shared memory. A
// program may not touch what they read or write before it has waited, so nobody can tell that here each warp does its part
// at once, and there is nothing to wait for. Sums as in ops_matrix.cpp.
//
// A descriptor names shared memory in units of 16 bytes:
//   bits 0-13 where the matrix begins, 16-29 the leading offset, 32-45 the stride, 49-51 the phase, 62-63 the swizzle.
// A chunk is 16 bytes of neighbours: in k, or, of a turned matrix, across. Eight lines (rows of `a`, columns of `b`; of a
// turned matrix eight k) are `width` chunks apart, where the swizzle is over 1, 2, 4 or 8 chunks, and exchange chunks by
// the bits of their address from 7 on. Source: the PTX ISA's "Matrix descriptor", and how CUTLASS calls those layouts.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "gpu_server/emulated_gpu/ptx/access.hpp"
#include "gpu_server/emulated_gpu/ptx/fragment_registers.hpp"
#include "gpu_server/emulated_gpu/ptx/matrix_operand.hpp"

namespace tnr::ptx {
namespace {

using matrix::Element;
using matrix::Family;
using matrix::Role;
using matrix::SharedMatrix;
using matrix::WarpgroupMultiply;

constexpr uint32_t chunk_bytes = 16, rows_of_warp = 16, warps_of_group = 4;
constexpr uint32_t depth_max = 32, columns_max = 256;

class SharedTiles {
public:
    SharedTiles(uint64_t descriptor, bool turned)
        : start_(field(descriptor, 0)),
          leading_(field(descriptor, 16)),
          stride_(field(descriptor, 32)),
          phase_(descriptor >> 49 & 7),
          turned_(turned) {
        static constexpr uint32_t widths[] = {1, 8, 4, 2};
        width_ = widths[descriptor >> 62];
    }
    // Of a chunk: how far it is in k and across, both in chunks where its neighbours lie so, else in elements.
    uint64_t address(uint32_t k, uint32_t across) const {
        auto [line, chunk] = turned_ ? std::pair{k, across} : std::pair{across, k};
        uint64_t within = line % 8 * width_ * chunk_bytes, eights = line / 8;
        uint64_t at = start_ + within;
        if (width_ == 1)
            at += turned_ ? eights * leading_ + chunk * stride_ : eights * stride_ + chunk * leading_;
        else if (turned_)
            at += eights * stride_ + chunk % width_ * chunk_bytes + chunk / width_ * leading_;
        else
            at += eights * stride_ + chunk * chunk_bytes;
        return at ^ (((at >> 7) - phase_) & (width_ - 1)) << 4;
    }

private:
    static uint64_t field(uint64_t descriptor, uint32_t at) { return (descriptor >> at & 0x3fff) * chunk_bytes; }

    uint64_t start_, leading_, stride_, phase_;
    uint32_t width_;
    bool turned_;
};

double number_of(uint64_t bits, Element element) {
    if (matrix::is_whole(element)) return matrix::whole_of(static_cast<uint32_t>(bits), element);
    return matrix::real_of(bits, element);
}

// `put(k, across, number)` for `count` lines across from `first` on. False after a fault.
template <class Put>
bool read_shared(Warp& w, uint32_t lane, const SharedMatrix& m, uint32_t depth, uint32_t first, uint32_t count,
                 Put&& put) {
    const SharedTiles tiles(w.reg_of<uint64_t>(lane, m.descriptor)[lane], m.turned);
    const uint32_t bytes = matrix::bits_of(m.element) / 8, per_chunk = chunk_bytes / bytes;
    const uint32_t k_step = m.turned ? 1 : per_chunk, step = m.turned ? per_chunk : 1;
    for (uint32_t k = 0; k < depth; k += k_step)
        for (uint32_t line = first; line < first + count; line += step) {
            uint64_t address = tiles.address(k / k_step, line / step);
            auto* chunk = shared_pointer(w, address, chunk_bytes);
            if (!chunk) return memory_fault(w, address, lane, chunk_bytes, "warpgroup's matrix load", false), false;
            for (uint32_t e = 0; e < per_chunk; ++e) {
                uint64_t bits = 0;
                std::memcpy(&bits, chunk + e * bytes, bytes);
                double number = number_of(bits, m.element);
                put(m.turned ? k : k + e, m.turned ? line + e : line, m.negated ? -number : number);
            }
        }
    return true;
}

uint64_t result_bits(double sum, const WarpgroupMultiply& m) {
    if (m.d.element != Element::s32) return matrix::bits_from(sum, m.d.element);
    constexpr int64_t lowest = std::numeric_limits<int32_t>::min(), highest = std::numeric_limits<int32_t>::max();
    auto whole = static_cast<int64_t>(sum);  // exact: a sum of 32 products of bytes, and 32 bits
    return static_cast<uint32_t>(m.saturate ? std::clamp(whole, lowest, highest) : whole);
}

// dst: which of Program::warpgroup_multiplies.
void multiply_warpgroup(Warp& w, const Instr& i, uint32_t lanes) {
    static thread_local double a[rows_of_warp * depth_max], b[depth_max * columns_max],
        sums[rows_of_warp * columns_max];
    auto& m = w.program->warpgroup_multiplies[i.dst];
    auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    const uint32_t first = w.index % warps_of_group * rows_of_warp;
    auto put_left = [&](uint32_t k, uint32_t row, double number) { a[(row - first) * m.depth + k] = number; };
    auto put_right = [&](uint32_t k, uint32_t column, double number) { b[k * m.columns + column] = number; };
    if (m.a.register_count != 0)
        gather(w, m.a, lanes, a,
               [&](uint64_t bits) { return (m.left.negated ? -1 : 1) * number_of(bits, m.a.element); });
    else if (!read_shared(w, lane, m.left, m.depth, first, rows_of_warp, put_left))
        return;
    if (!read_shared(w, lane, m.right, m.depth, 0, m.columns, put_right)) return;
    if (*w.reg_of<uint32_t>(lane, m.adds) >> lane & 1)
        gather(w, m.d, lanes, sums, [&](uint64_t bits) { return number_of(bits, m.d.element); });
    else
        std::fill_n(sums, rows_of_warp * m.columns, 0.0);
    add_products({rows_of_warp, m.depth, m.columns}, a, b, sums,
                 [](double& sum, double left, double right) { sum += left * right; });
    scatter(w, m.d, lanes, [&](uint32_t place) { return result_bits(sums[place], m); });
}

void nothing_to_wait_for(Warp&, const Instr&, uint32_t) {}

bool is_known(Element d, Element a, Element b) {
    if (a == Element::s8 || a == Element::u8) return d == Element::s32 && (b == Element::s8 || b == Element::u8);
    bool bytes = a == Element::e4m3 || a == Element::e5m2;
    if (bytes ? b != Element::e4m3 && b != Element::e5m2 : a != b) return false;
    if (!bytes && a != Element::f16 && a != Element::bf16 && a != Element::tf32) return false;
    return d == Element::f32 || (d == Element::f16 && (bytes || a == Element::f16));
}

int64_t integer_operand(Decoder& d, size_t at) {
    auto& operand = d.operand(at);
    if (operand.kind != ast::Operand::Kind::integer) d.fail("expected a number, not a register");
    return operand.value;
}

// d, a, b, whether to add d; of floats the signs of a and b; of those of 16 bits what is turned (of `a` in registers nothing).
void decode_warpgroup_operands(Decoder& d, WarpgroupMultiply& m) {
    bool in_registers = d.operand(1).kind == ast::Operand::Kind::vector;
    if (in_registers) read_fragment(d, d.operand(1), m.a);
    if (!in_registers) m.a.register_count = 0, m.left.descriptor = d.source(1, Type::b64);
    m.right.descriptor = d.source(2, Type::b64);
    m.adds = d.predicate(d.operand(3));
    if (!matrix::is_whole(m.left.element))
        m.left.negated = integer_operand(d, 4) < 0, m.right.negated = integer_operand(d, 5) < 0;
    if (matrix::bits_of(m.left.element) == 16) {
        if (!in_registers) m.left.turned = integer_operand(d, 6) != 0;
        m.right.turned = integer_operand(d, in_registers ? 6 : 7) != 0;
    }
    write_fragment(d, d.operand(0), m.d);
}

// wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {…}, a, b, p, 1, 1, 0, 0
void decode_multiply_warpgroup(Decoder& d) {
    auto shape = take_shape(d);
    auto elements = take_elements(d);
    WarpgroupMultiply m;
    m.saturate = d.take("satfinite");
    if (d.failed()) return;
    if (elements.size() != 3 || !is_known(elements[0], elements[1], elements[2])) return d.unsupported();
    m.left.element = elements[1], m.right.element = elements[2];
    m.columns = shape.n, m.depth = shape.k;
    m.a = matrix::fragment(Family::warpgroup, Role::a, shape, elements[1]);
    m.d = matrix::fragment(Family::warpgroup, Role::accumulator, shape, elements[0]);
    bool right_depth = shape.k == 2 * chunk_bytes * 8 / matrix::bits_of(elements[1]);
    if (shape.m != rows_of_warp * warps_of_group || !right_depth || m.a.register_count == 0 || m.d.register_count == 0)
        return d.unsupported();
    decode_warpgroup_operands(d, m);
    auto& all = d.program().warpgroup_multiplies;
    emit_aligned(d, multiply_warpgroup).dst = static_cast<RegRef>(all.size());
    all.push_back(std::move(m));
}

}  // namespace

// Those with a sparse `a` and of single bits stay with what is absent.
bool decode_warpgroup(Decoder& d) {
    if (d.inst().name != "wgmma") return false;
    for (auto word : d.inst().modifiers)
        if (word == "sp" || word == "b1") return false;
    bool multiplies = d.take("mma_async"), waits = !multiplies && d.take("wait_group");
    bool known = multiplies || waits || d.take("fence") || d.take("commit_group");
    if (!known || !d.take("sync") || !d.take("aligned")) return d.unsupported(), true;
    if (multiplies) return decode_multiply_warpgroup(d), true;
    if (waits) integer_operand(d, 0);
    emit_aligned(d, nothing_to_wait_for);
    return true;
}

}  // namespace tnr::ptx
