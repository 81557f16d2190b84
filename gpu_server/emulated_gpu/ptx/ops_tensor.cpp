// cp.async.bulk.tensor and cp.reduce.async.bulk.tensor: a box of a tensor (tensor_map.hpp) between global and shared memory,
// done at once. What of the box lies outside the tensor arrives as zeros (or NaN), and is not written.
#include <algorithm>
#include <array>
#include <cstring>

#include "gpu_server/emulated_gpu/ptx/atomic_update.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"
#include "gpu_server/emulated_gpu/ptx/memory_operand.hpp"
#include "gpu_server/emulated_gpu/ptx/tensor_map.hpp"
#include "gpu_server/emulated_gpu/ptx/transaction.hpp"

namespace tnr::ptx {
namespace {

// a: the map's address, generic; b: shared memory; c: the blocks it goes to; d: the barrier; table: where the box begins, count
// axes and, with im2col, offsets of 16 bits behind them; imm: which reduction, or none; flags: these, and above them the
// TensorWay. pair: with a multicast, the barriers are in the blocks of each pair of the cluster that the own one is in.
enum Flag : uint8_t { flag_load = 1, flag_multicast = 2, flag_four_rows = 4, flag_pair = 8 };
constexpr uint32_t way_shift = 4;
constexpr int64_t no_reduction = -1;
constexpr uint32_t four_rows = 4;
constexpr size_t packet_max = 12;  // bytes of the largest packet; no element is as long

TensorWay way_of(const Instr& i) {
    return static_cast<TensorWay>(i.flags >> way_shift);
}

bool is_wide(TensorWay way) {
    return way == TensorWay::im2col_wide || way == TensorWay::im2col_wide_128;
}

// What one copy does.
struct Copying {
    bool load = false;
    Update update = nullptr;  // instead of a store
};

// A program can write to a map what it likes: what copies rely on is looked at before each.
bool is_sound(const TensorMap& map) {
    if (map.mark != TensorMap::ours && map.mark != TensorMap::of_zeros) return false;
    if (map.rank == 0 || map.rank > TensorMap::rank_max) return false;
    if (map.packing > Packing::b6x16_p32) return false;
    uint64_t bytes = map.strides[0];
    if (bytes == 0 || bytes > packet_max || bytes != packet_of(map).bytes || map.nan_bytes > bytes) return false;
    bool tiles = map.way == TensorWay::tiles;
    if (!tiles && (map.pixels == 0 || map.box[0] == 0)) return false;
    for (uint32_t axis = 0; axis < map.rank; ++axis)
        if (map.steps[axis] == 0 || (tiles && map.box[axis] == 0)) return false;
    return true;
}

// From here on the first axis counts packets.
void count_packets(TensorMap& map) {
    uint32_t log2 = packet_of(map).values_log2;
    map.box[0] = static_cast<uint16_t>(map.box[0] >> log2);
    map.last[0] = static_cast<uint32_t>(((uint64_t{map.last[0]} + 1) >> log2) - 1);
}

bool read_map(Warp& w, uint32_t lane, uint64_t address, uint32_t rank, TensorWay way, TensorMap& map) {
    constexpr uint64_t alignment = 64;
    bool misaligned = address % alignment;
    auto* p = misaligned ? nullptr : generic_pointer(w, lane, address, sizeof map, false);
    if (!p) return memory_fault(w, address, lane, sizeof map, "reading of a tensor map", misaligned), false;
    std::memcpy(&map, p, sizeof map);
    if (is_sound(map) && map.rank == rank && map.way == way) return count_packets(map), true;
    fault(w, Outcome::illegal_instruction, lane,
          "no tensor map of " + std::to_string(rank) + " axes for this kind of copy");
    return false;
}

// Atoms of shared memory are exchanged within rows of so many, by the number of the line of 128 bytes.
uint64_t swizzled(uint64_t address, const TensorMap& map) {
    constexpr uint64_t chunk = 16, half_chunk = 8;
    if (!map.swizzle_chunks) return address;
    uint64_t line = address >> 7, row = map.swizzle_chunks * chunk;
    uint64_t atom = map.atom == SwizzleAtom::bytes_16   ? chunk
                    : map.atom == SwizzleAtom::bytes_64 ? 4 * chunk
                                                        : 2 * chunk;
    if (map.atom == SwizzleAtom::bytes_32_flipped && (line & 1)) address ^= half_chunk;
    return atom < row ? address ^ (line & (row / atom - 1)) * atom : address;
}

// One element between the tensor (null: outside) and the box in shared memory.
void move_element(std::byte* in_tensor, std::byte* in_box, const TensorMap& map, const Copying& copying) {
    size_t bytes = map.strides[0];
    if (in_tensor && copying.load)
        std::memcpy(in_box, in_tensor, bytes);
    else if (in_tensor)
        copying.update ? copying.update(in_tensor, in_box) : void(std::memcpy(in_tensor, in_box, bytes));
    if (!copying.load || in_tensor) return;
    std::array<uint16_t, packet_max / sizeof(uint16_t)> outside{};
    if (map.nan_bytes) outside.fill(oob_nan);
    std::memcpy(in_box, outside.data(), bytes);
}

// The element at the coordinates, and the one in shared memory. False after a fault.
bool copy_element(Warp& w, uint32_t lane, const TensorMap& map, const int64_t* coordinates, uint64_t shared,
                  const Copying& copying) {
    auto bytes = static_cast<uint32_t>(map.strides[0]);
    uint64_t address = map.address;
    bool inside = true;
    for (uint32_t axis = 0; axis < map.rank; ++axis) {
        inside &= coordinates[axis] >= 0 && coordinates[axis] <= int64_t{map.last[axis]};
        address += static_cast<uint64_t>(coordinates[axis]) * map.strides[axis];
    }
    auto place = swizzled(shared, map);
    auto* in_box = shared_pointer(w, place, bytes);
    if (!in_box) return memory_fault(w, place, lane, bytes, "a tensor's box", false), false;
    auto* in_tensor = inside ? global_pointer(*w.worker, address, bytes) : nullptr;
    if (inside && !in_tensor) return memory_fault(w, address, lane, bytes, "a tensor", false), false;
    move_element(in_tensor, in_box, map, copying);
    return true;
}

// The bytes of the box in shared memory, or 0 after a fault.
uint64_t copy_box(Warp& w, uint32_t lane, const TensorMap& map, const int32_t* begin, uint64_t shared,
                  const Copying& copying) {
    uint32_t counts[TensorMap::rank_max] = {1, 1, 1, 1, 1}, at[TensorMap::rank_max] = {};
    uint64_t elements = 1, apart = packet_of(map).shared_bytes;
    for (uint32_t axis = 0; axis < map.rank; ++axis) {
        counts[axis] = (map.box[axis] + map.steps[axis] - 1u) / map.steps[axis];
        elements *= counts[axis];
    }
    for (uint64_t index = 0; index < elements; ++index) {
        int64_t coordinates[TensorMap::rank_max];
        for (uint32_t axis = 0; axis < map.rank; ++axis)
            coordinates[axis] = int64_t{begin[axis]} + int64_t{at[axis]} * map.steps[axis];
        if (!copy_element(w, lane, map, coordinates, shared + index * apart, copying)) return 0;
        for (uint32_t axis = 0; axis < map.rank && ++at[axis] == counts[axis]; ++axis) at[axis] = 0;
    }
    return elements * apart;
}

// To the next pixel of im2col's box, and from the last of one image to the first of the next.
void advance_pixel(const TensorMap& map, int64_t* at) {
    uint32_t images = map.rank - 1u;
    for (uint32_t axis = 1; axis < images; ++axis) {
        at[axis] += map.steps[axis];
        if (at[axis] <= int64_t{map.last[axis]} + map.upper[axis - 1]) return;
        at[axis] = map.lower[axis - 1];
    }
    at[images] += map.steps[images];
}

// im2col: pixels of the box from `begin` on, each moved by the offsets before it is looked up. The bytes, or 0 after a fault.
uint64_t copy_pixels(Warp& w, uint32_t lane, const TensorMap& map, const int32_t* begin, const uint16_t* offsets,
                     uint64_t shared, const Copying& copying) {
    int64_t at[TensorMap::rank_max];
    std::copy_n(begin, map.rank, at);
    uint64_t bytes = 0, apart = packet_of(map).shared_bytes;
    for (uint32_t pixel = 0; pixel < map.pixels; ++pixel, advance_pixel(map, at)) {
        int64_t coordinates[TensorMap::rank_max];
        std::copy_n(at, map.rank, coordinates);
        for (uint32_t axis = 1; axis + 1 < map.rank; ++axis) coordinates[axis] += offsets[axis - 1];
        for (uint32_t channel = 0; channel < map.box[0]; ++channel, ++coordinates[0], bytes += apart)
            if (!copy_element(w, lane, map, coordinates, shared + bytes, copying)) return 0;
    }
    return bytes;
}

// The wide ways: `offset` moves the box and where in it the copy begins, along the width. The bytes, or 0 after a fault.
uint64_t copy_wide(Warp& w, uint32_t lane, const TensorMap& map, const int32_t* begin, int64_t offset, uint64_t shared,
                   const Copying& copying) {
    constexpr uint32_t pixels_of_128 = 128;
    uint32_t pixels = map.way == TensorWay::im2col_wide_128 ? pixels_of_128 : map.pixels, images = map.rank - 1u;
    int64_t at[TensorMap::rank_max], lower = map.lower[0] + offset,
                                     upper = int64_t{map.last[1]} + map.upper[0] + offset;
    std::copy_n(begin, map.rank, at);
    at[1] += offset;
    uint64_t bytes = 0, apart = packet_of(map).shared_bytes;
    for (uint32_t pixel = 0; pixel < pixels; ++pixel) {
        int64_t coordinates[TensorMap::rank_max];
        std::copy_n(at, map.rank, coordinates);
        for (uint32_t channel = 0; channel < map.box[0]; ++channel, ++coordinates[0], bytes += apart)
            if (!copy_element(w, lane, map, coordinates, shared + bytes, copying)) return 0;
        at[1] += map.steps[1];
        if (at[1] > upper) at[1] = lower, ++at[images];
    }
    return bytes;
}

// Four rows of a matrix that need not be neighbours, as one box. The bytes, or 0 after a fault.
uint64_t copy_rows(Warp& w, uint32_t lane, TensorMap map, const int32_t* at, uint64_t shared, const Copying& copying) {
    map.box[1] = 1;
    uint64_t bytes = 0;
    for (uint32_t row = 0; row < four_rows; ++row) {
        int32_t begin[] = {at[0], at[1 + row]};
        uint64_t more = copy_box(w, lane, map, begin, shared + bytes, copying);
        if (more == 0) return 0;
        bytes += more;
    }
    return bytes;
}

// To or from one place in shared memory. False after a fault.
bool copy_once(Warp& w, const Instr& i, uint32_t lane, const TensorMap& map, uint64_t shared, uint64_t barrier) {
    constexpr uint64_t alignment = 128;
    if (shared % alignment) return memory_fault(w, shared, lane, alignment, "a tensor's box", true), false;
    Copying copying{(i.flags & flag_load) != 0};
    if (i.imm != no_reduction) copying.update = update_of(reductions[static_cast<size_t>(i.imm)], map.element);
    if (i.imm != no_reduction && !copying.update)
        return fault(w, Outcome::illegal_instruction, lane, "a reduction that the tensor's type does not have"), false;
    int32_t at[1 + four_rows] = {};
    uint32_t coordinates = i.flags & flag_four_rows ? 1 + four_rows : i.count;
    for (uint32_t k = 0; k < coordinates; ++k) at[k] = w.reg<int32_t>(w.program->registers[i.table + k])[lane];
    auto packet = packet_of(map);
    at[0] >>= packet.values_log2;
    uint16_t offsets[TensorMap::space_max] = {};
    auto way = way_of(i);
    uint32_t offset_count = way == TensorWay::tiles || !copying.load ? 0 : is_wide(way) ? 2 : i.count - 2u;
    for (uint32_t k = 0; k < offset_count; ++k)
        offsets[k] = w.reg<uint16_t>(w.program->registers[i.table + i.count + k])[lane];
    if (is_wide(way) && offsets[0])
        return fault(w, Outcome::illegal_instruction, lane,
                     "a halo of im2col::w, which the emulated GPU does not have"),
               false;
    uint64_t bytes = is_wide(way)               ? copy_wide(w, lane, map, at, offsets[1], shared, copying)
                     : way == TensorWay::im2col ? copy_pixels(w, lane, map, at, offsets, shared, copying)
                     : i.flags & flag_four_rows ? copy_rows(w, lane, map, at, shared, copying)
                                                : copy_box(w, lane, map, at, shared, copying);
    if (bytes == 0 || !copying.load) return bytes != 0;
    auto* word = barrier_word(w, lane, barrier);
    if (word)
        complete_bytes(*word, bytes / packet.shared_bytes * packet.bytes);  // without gaps, as CUTLASS counts them
    return word;
}

// Where the news of a multicast to the block `rank` goes to. `barrier` may name a block of the cluster.
uint64_t barrier_beside(const Warp& w, const Instr& i, uint64_t barrier, uint32_t rank) {
    if (!(i.flags & flag_pair)) return in_block(barrier, rank);
    uint64_t named = barrier >> block_shift;
    uint32_t own = named ? static_cast<uint32_t>(named - 1) : w.block->rank;
    return in_block(barrier, (rank & ~1u) | (own & 1));
}

void copy_tensor(Warp& w, const Instr& i) {
    refresh_ranges(*w.worker);
    auto *maps = w.reg<uint64_t>(i.a), *shared = w.reg<uint64_t>(i.b), *barriers = w.reg<uint64_t>(i.d);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        TensorMap map;
        if (!read_map(w, lane, maps[lane], i.count, way_of(i), map)) return;
        if (i.flags & flag_multicast) {
            auto each = [&](uint32_t rank) {
                return copy_once(w, i, lane, map, in_block(shared[lane], rank),
                                 barrier_beside(w, i, barriers[lane], rank));
            };
            if (!each_block(w.reg<uint16_t>(i.c)[lane], each)) return;
        } else if (!copy_once(w, i, lane, map, shared[lane], barriers[lane])) {
            return;
        }
    }
}

uint32_t take_rank(Decoder& d) {
    static constexpr std::string_view names[] = {"1d", "2d", "3d", "4d", "5d"};
    for (uint32_t i = 0; i < TensorMap::rank_max; ++i)
        if (d.take(names[i])) return i + 1;
    d.unsupported();
    return 0;
}

// The registers of [map, {coordinates}]; empty after a failure.
std::vector<RegRef> tensor_coordinates(Decoder& d, const ast::Operand& tensor, uint32_t count) {
    bool named = tensor.kind == ast::Operand::Kind::memory && tensor.parts.size() == 2 && tensor.value == 0 &&
                 tensor.parts[1].kind == ast::Operand::Kind::vector && tensor.parts[1].parts.size() == count;
    if (!named)
        return d.fail("expected [tensor map, {" + std::to_string(count) + " coordinates}]"), std::vector<RegRef>{};
    std::vector<RegRef> begin;
    for (auto& part : tensor.parts[1].parts) begin.push_back(d.source(part, Type::s32));
    return begin;
}

// im2col's {w, h}, of as many axes as the tensor has between its channels and its images; of the wide ways {halo, w}.
void add_offsets(Decoder& d, const ast::Operand& offsets, uint32_t count, std::vector<RegRef>& table) {
    bool braces = offsets.kind == ast::Operand::Kind::vector;
    if ((braces ? offsets.parts.size() : 1) != count)
        return d.fail("expected {" + std::to_string(count) + " offsets of im2col}");
    for (uint32_t k = 0; k < count; ++k) table.push_back(d.source(braces ? offsets.parts[k] : offsets, Type::u16));
}

TensorWay take_way(Decoder& d, bool load) {
    if (d.take(load ? "im2col" : "im2col_no_offs")) return TensorWay::im2col;
    if (load && d.take("im2col::w")) return TensorWay::im2col_wide;
    return load && d.take("im2col::w::128") ? TensorWay::im2col_wide_128 : TensorWay::tiles;
}

}  // namespace

// cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{.multicast::cluster}
//     [box], [map, {x, y}], [barrier]{, blocks}
// cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes{.multicast::cluster}
//     [box], [map, {c, w, h, n}], [barrier], {w, h}{, blocks}; .im2col_no_offs of what is stored, without such offsets
// Likewise .im2col::w and .im2col::w::128, with {halo, w}. cta_group::2: the barrier may be in the other block of a pair.
// cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [map, {x, y}], [box]
// cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group alike
void decode_tensor_copy(Decoder& d, bool reduces) {
    uint32_t rank = take_rank(d);
    bool load = d.take("mbarrier::complete_tx::bytes"), store = d.take("bulk_group");
    bool rows = d.take(load ? "tile::gather4" : "tile::scatter4");
    auto way = take_way(d, load);
    bool im2col = way != TensorWay::tiles;
    d.take("tile");
    d.take("L2::cache_hint");
    bool multicast = d.take("multicast::cluster");
    bool pair = load && !d.take("cta_group::1") && d.take("cta_group::2");
    bool shared = d.take("shared::cluster") || d.take("shared::cta");
    if (d.failed()) return;
    bool fits = load != store && shared && d.take("global") && !(rows && rank != 2) && (load || !multicast) &&
                !(im2col && (rows || rank < 3));
    if (!fits || (reduces && (load || rows))) return d.unsupported();
    auto op = reduces ? take_reduction(d) : std::string_view{};
    if (reduces && op.empty()) return d.unsupported();
    auto& tensor = d.operand(load ? 1 : 0);
    auto begin = tensor_coordinates(d, tensor, rows ? 1 + four_rows : rank);
    if (im2col && load) add_offsets(d, d.operand(3), is_wide(way) ? 2 : rank - 2, begin);
    if (d.failed()) return;
    auto map = d.source(tensor.parts[0], Type::u64);
    auto table = d.add_table(begin);
    auto box = whole_address(d, d.operand(load ? 0 : 1), Space::shared);
    auto barrier = load ? whole_address(d, d.operand(2), Space::shared) : 0;
    auto blocks = multicast ? d.source(im2col ? 4 : 3, Type::u16) : 0;
    auto& instr = d.emit(copy_tensor);
    instr.a = map;
    instr.b = box;
    instr.c = blocks;
    instr.d = barrier;
    instr.table = table;
    instr.count = static_cast<uint16_t>(rank);
    instr.imm = reduces ? std::find(reductions.begin(), reductions.end(), op) - reductions.begin() : no_reduction;
    instr.flags =
        static_cast<uint8_t>((load ? flag_load : 0) | (multicast ? flag_multicast : 0) | (rows ? flag_four_rows : 0) |
                             (pair ? flag_pair : 0) | static_cast<uint32_t>(way) << way_shift);
}

}  // namespace tnr::ptx
