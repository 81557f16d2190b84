// Matrices between memory and a warp's registers: wmma.load, wmma.store, ldmatrix, stmatrix; and movmatrix, which
// turns one in place.
#include <algorithm>
#include <bit>
#include <cstring>

#include "gpu_server/emulated_gpu/ptx/collective.hpp"
#include "gpu_server/emulated_gpu/ptx/matrix_operand.hpp"
#include "gpu_server/emulated_gpu/ptx/memory_operand.hpp"

namespace tnr::ptx {
namespace {

using matrix::Element;
using matrix::Family;
using matrix::Fragment;
using matrix::Role;

// Of every Instr here: a, b: address and its offset; count: the Where; flags:
// columns: neighbours in a column are neighbours in memory. fours, sixes: bits of an element, which gets a byte. bytes: elements
// have 8 bits, and are turned.
enum Flag : uint8_t { flag_columns = 4, flag_writes = 8, flag_fours = 16, flag_sixes = 32, flag_bytes = 64 };

uint64_t address_of(Warp& w, const Instr& i, uint32_t lane) {
    uint64_t offset = w.reg_of<uint64_t>(lane, i.b)[lane];
    if (static_cast<Where>(i.count) == Where::shared32)
        return static_cast<uint32_t>(w.reg_of<uint32_t>(lane, i.a)[lane] + offset);
    return w.reg_of<uint64_t>(lane, i.a)[lane] + offset;
}

// Null after a fault.
std::byte* at(Warp& w, const Instr& i, uint32_t lane, uint64_t address, uint32_t bytes, uint32_t alignment) {
    bool writes = i.flags & flag_writes, misaligned = address % alignment;
    std::byte* p = nullptr;
    if (!misaligned) switch (static_cast<Where>(i.count)) {
            case Where::global:
                p = global_pointer(*w.worker, address, bytes);
                break;
            case Where::shared:
            case Where::shared32:
                p = shared_pointer(w, address, bytes);
                break;
            default:
                p = generic_pointer(w, lane, address, bytes, writes);
        }
    if (!p) memory_fault(w, address, lane, bytes, writes ? "matrix store" : "matrix load", misaligned);
    return p;
}

void set_address(Decoder& d, Instr& instr, const Address& address) {
    instr.a = address.base;
    instr.b = d.constant(static_cast<uint64_t>(address.offset), 8);
    instr.count = static_cast<uint16_t>(address.where);
}

bool reachable(const Address& address) {
    return address.where == Where::global || address.where == Where::shared || address.where == Where::shared32 ||
           address.where == Where::generic;
}

// ---- wmma: every lane reads or writes its own elements. dst: which of Program::fragments; c: the stride, in elements.

void move_fragment(Warp& w, const Instr& i, uint32_t lanes) {
    refresh_ranges(*w.worker);
    auto& f = w.program->fragments[i.dst];
    bool columns = i.flags & flag_columns, writes = i.flags & flag_writes;
    uint32_t per = f.per_register(), bits = matrix::bits_of(f.element), bytes = (bits + 7) / 8;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        uint64_t base = address_of(w, i, lane), stride = w.reg_of<uint32_t>(lane, i.c)[lane];
        auto* place = &f.places[lane * f.elements];
        for (uint32_t r = 0; r < f.register_count; ++r) {
            RegRef ref = w.program->registers[f.registers + r];
            uint64_t word = 0;
            if (writes) word = bits == 64 ? w.reg_of<uint64_t>(lane, ref)[lane] : w.reg_of<uint32_t>(lane, ref)[lane];
            for (uint32_t e = 0; e < per; ++e, ++place) {
                uint64_t row = *place / f.columns, column = *place % f.columns;
                uint64_t bit = (columns ? column * stride + row : row * stride + column) * bits;
                auto* p = at(w, i, lane, base + bit / 8, bytes, bytes);
                if (!p) return;
                uint64_t value = word >> (bits * e);
                if (writes) {
                    std::memcpy(p, &value, bytes);
                    continue;
                }
                std::memcpy(&(value = 0), p, bytes);
                if (bits < 8) value = value >> (bit % 8) & ((1u << bits) - 1);
                word |= value << (bits * e);
            }
            if (writes) continue;
            if (bits == 64)
                put(w, ref, lane, word);
            else
                put(w, ref, lane, static_cast<uint32_t>(word));
        }
    }
}

// wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {…}, [p], stride and wmma.store.d… [p], {…}, stride
void decode_fragment(Decoder& d, bool writes) {
    auto role = d.take_any_of({"a", "b", "c", "d"});
    d.take("sync");
    bool columns = d.take("col");
    if (!d.take("aligned") || (!columns && !d.take("row"))) return d.unsupported();
    auto shape = take_shape(d);
    auto space = take_space(d);
    auto elements = take_elements(d);
    if (d.failed()) return;
    if (elements.size() != 1 || role.empty() || (role == "d") != writes) return d.unsupported();
    auto kind = role == "a" ? Role::a : role == "b" ? Role::b : Role::accumulator;
    auto f = matrix::fragment(Family::wmma, kind, shape, elements[0]);
    // Bits of neighbouring rows must not share a byte.
    bool small = matrix::bits_of(elements[0]) < 8;
    if (f.register_count == 0 || (small && columns != (kind == Role::b))) return d.unsupported();
    auto address = decode_address(d, d.operand(writes ? 0 : 1), space);
    if (!reachable(address)) return d.unsupported();
    auto stride = d.operand_count() > 2 ? d.source(2, Type::u32) : d.constant(columns ? f.rows : f.columns, 4);
    if (writes)
        read_fragment(d, d.operand(1), f);
    else
        write_fragment(d, d.operand(0), f);
    auto& all = d.program().fragments;
    auto& instr = emit_aligned(d, move_fragment);
    instr.dst = static_cast<RegRef>(all.size());
    instr.c = stride;
    instr.flags |= static_cast<uint8_t>((columns ? flag_columns : 0) | (writes ? flag_writes : 0));
    set_address(d, instr, address);
    all.push_back(std::move(f));
}

// ---- 8 x 8 elements of 16 bits, up to four at once: lane 8 m + r says where row r of matrix m lies, and a lane holds two
// neighbours of row lane / 4 (transposed: of a column). dst: the first of Program::registers; d: how many.

using Tile = uint16_t[8][8];

void scatter_tile(Warp& w, RegRef ref, uint32_t lanes, const Tile& tile, bool transposed) {
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        uint32_t row = lane / 4, column = lane % 4 * 2;
        uint32_t low = transposed ? tile[column][row] : tile[row][column];
        uint32_t high = transposed ? tile[column + 1][row] : tile[row][column + 1];
        put(w, ref, lane, high << 16 | low);
    }
}

void gather_tile(Warp& w, RegRef ref, uint32_t lanes, Tile& tile, bool transposed) {
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        uint32_t row = lane / 4, column = lane % 4 * 2, word = w.reg_of<uint32_t>(lane, ref)[lane];
        (transposed ? tile[column][row] : tile[row][column]) = static_cast<uint16_t>(word);
        (transposed ? tile[column + 1][row] : tile[row][column + 1]) = static_cast<uint16_t>(word >> 16);
    }
}

// Bytes that are turned: a matrix of 16 x 16 is two tiles, one below the other, and a lane gets four neighbours of its column
// lane / 4 in one register, of the column 8 further right in the next.
void scatter_bytes(Warp& w, RegRef ref, uint32_t lanes, const Tile* matrix, uint32_t right) {
    auto* bytes = reinterpret_cast<const uint8_t*>(matrix);
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        uint32_t row = lane % 4 * 4, column = lane / 4 + right * 8, word = 0;
        for (uint32_t e = 0; e < 4; ++e) word |= uint32_t{bytes[(row + e) * 16 + column]} << 8 * e;
        put(w, ref, lane, word);
    }
}

// A tile of 8 x 16 bytes: a lane has two neighbours of its column, and two of that 8 further right.
void gather_bytes(Warp& w, RegRef ref, uint32_t lanes, Tile& tile) {
    auto* bytes = reinterpret_cast<uint8_t*>(tile);
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        uint32_t row = lane % 4 * 2, column = lane / 4, word = w.reg_of<uint32_t>(lane, ref)[lane];
        for (uint32_t e = 0; e < 4; ++e)
            bytes[(row + e % 2) * 16 + column + e / 2 * 8] = static_cast<uint8_t>(word >> 8 * e);
    }
}

void gather_register(Warp& w, const Instr& i, uint32_t t, uint32_t lanes, Tile& tile) {
    RegRef ref = w.program->registers[i.dst + t];
    if (i.flags & flag_bytes) return gather_bytes(w, ref, lanes, tile);
    gather_tile(w, ref, lanes, tile, i.flags & flag_columns);
}

void scatter_register(Warp& w, const Instr& i, uint32_t t, uint32_t lanes, const Tile* tiles) {
    RegRef ref = w.program->registers[i.dst + t];
    if (i.flags & flag_bytes) return scatter_bytes(w, ref, lanes, tiles + t / 2 * 2, t % 2);
    scatter_tile(w, ref, lanes, tiles[t], i.flags & flag_columns);
}

// A row of 16 elements of so many bits, packed at its begin: each gets a byte.
void spread(uint16_t (&row)[8], uint32_t bits) {
    uint8_t packed[sizeof row], bytes[sizeof row];
    std::memcpy(packed, row, sizeof row);
    for (uint32_t e = 0; e < sizeof row; ++e) {
        uint32_t at = e * bits, next = std::min<uint32_t>(at / 8 + 1, sizeof row - 1);
        uint32_t word = packed[at / 8] | static_cast<uint32_t>(packed[next]) << 8;
        bytes[e] = static_cast<uint8_t>(word >> at % 8 & ((1u << bits) - 1));
    }
    std::memcpy(row, bytes, sizeof row);
}

void move_tiles(Warp& w, const Instr& i, uint32_t lanes) {
    refresh_ranges(*w.worker);
    bool writes = i.flags & flag_writes;
    // All rows are read first: a register of the result may be an address.
    uint64_t rows[warp_lanes] = {};
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        rows[lane] = address_of(w, i, lane);
    }
    Tile tiles[4] = {};
    for (uint32_t t = 0; t < i.d; ++t) {
        if (writes) gather_register(w, i, t, lanes, tiles[t]);
        for (uint32_t row = 0; row < 8; ++row) {
            uint32_t lane = 8 * t + row;
            if (!(lanes >> lane & 1)) continue;
            auto* p = at(w, i, lane, rows[lane], sizeof tiles[t][row], sizeof tiles[t][row]);
            if (!p) return;
            writes ? std::memcpy(p, tiles[t][row], sizeof tiles[t][row])
                   : std::memcpy(tiles[t][row], p, sizeof tiles[t][row]);
            if (i.flags & (flag_fours | flag_sixes)) spread(tiles[t][row], i.flags & flag_fours ? 4 : 6);
        }
    }
    if (writes) return;
    for (uint32_t t = 0; t < i.d; ++t) scatter_register(w, i, t, lanes, tiles);
}

// ldmatrix.sync.aligned.m8n8.x4{.trans}{.shared}.b16 {…}, [p] and stmatrix… [p], {…}
// ldmatrix.sync.aligned.m8n16.x4{.shared}.b8x16.b4x16_p64 {…}, [p]: 16 elements of 4 bits (.b6x16_p32: of 6) and padding a row
// ldmatrix.sync.aligned.m16n16.x2.trans{.shared}.b8 {…}, [p] or as above, and stmatrix.sync.aligned.m16n8.x4.trans{.shared}.b8
void decode_tiles(Decoder& d, bool writes) {
    d.take("sync");
    auto count = d.take_any_of({"x1", "x2", "x4"});
    bool transposed = d.take("trans");
    auto space = take_space(d);
    bool halves = d.take("m8n8") && d.take("b16");
    bool turned_bytes = !halves && transposed && d.take(writes ? "m16n8" : "m16n16");
    bool narrow = !halves && !writes && (turned_bytes || (!transposed && d.take("m8n16"))) && d.take("b8x16");
    auto packing = narrow ? d.take_any_of({"b4x16_p64", "b6x16_p32"}) : std::string_view{};
    bool bytes = turned_bytes && !narrow && d.take("b8");
    if (count.empty() || !d.take("aligned") || (!halves && !bytes && packing.empty())) return d.unsupported();
    if (turned_bytes && !writes && count == "x4") return d.unsupported();
    if (space != Space::shared && space != Space::generic) return d.unsupported();
    auto tiles = static_cast<uint32_t>(count[1] - '0') * (turned_bytes && !writes ? 2 : 1);
    auto address = decode_address(d, d.operand(writes ? 0 : 1), space);
    if (!reachable(address)) return d.unsupported();
    auto table = register_list(d, d.operand(writes ? 1 : 0), tiles, 32, writes ? Use::source : Use::destination);
    auto& instr = emit_aligned(d, move_tiles);
    instr.dst = table;
    instr.d = tiles;
    instr.flags |= static_cast<uint8_t>((transposed ? flag_columns : 0) | (writes ? flag_writes : 0));
    if (turned_bytes) instr.flags |= flag_bytes;
    if (narrow) instr.flags |= packing == "b4x16_p64" ? flag_fours : flag_sixes;
    set_address(d, instr, address);
}

void transpose(Warp& w, const Instr& i, uint32_t lanes) {
    Tile tile = {};
    gather_tile(w, i.a, lanes, tile, false);
    scatter_tile(w, i.dst, lanes, tile, true);
}

void decode_transpose(Decoder& d) {
    d.take("sync");
    if (!d.take("aligned") || !d.take("m8n8") || !d.take("trans") || !d.take("b16")) return d.unsupported();
    auto a = d.source(1, Type::b32), dst = d.dest(0, Type::b32);
    auto& instr = emit_aligned(d, transpose);
    instr.a = a;
    instr.dst = dst;
}

}  // namespace

bool decode_matrix_memory(Decoder& d) {
    auto name = d.inst().name;
    if (name == "ldmatrix" || name == "stmatrix") return decode_tiles(d, name == "stmatrix"), true;
    if (name == "movmatrix") return decode_transpose(d), true;
    if (name != "wmma") return false;
    bool writes = d.take("store");
    if (!writes && !d.take("load")) return false;
    return decode_fragment(d, writes), true;
}

}  // namespace tnr::ptx
