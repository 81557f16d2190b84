// cp.async.bulk.tensor: a box of a tensor (tensor_map.hpp) between global and shared memory, done at once. What of the box lies
// outside the tensor arrives as zeros (or NaN), and is not written.
#include <cstring>

#include "gpu_server/emulated_gpu/ptx/lanes.hpp"
#include "gpu_server/emulated_gpu/ptx/memory_operand.hpp"
#include "gpu_server/emulated_gpu/ptx/tensor_map.hpp"
#include "gpu_server/emulated_gpu/ptx/transaction.hpp"

namespace tnr::ptx {
namespace {

// a: the map's address, generic; b: shared memory; d: the barrier; table: where the box begins, count axes; flags:
enum Flag : uint8_t { flag_load = 1 };

bool read_map(Warp& w, uint32_t lane, uint64_t address, uint32_t rank, TensorMap& map) {
    constexpr uint64_t alignment = 64;
    bool misaligned = address % alignment;
    auto* p = misaligned ? nullptr : generic_pointer(w, lane, address, sizeof map, false);
    if (!p) return memory_fault(w, address, lane, sizeof map, "reading of a tensor map", misaligned), false;
    std::memcpy(&map, p, sizeof map);
    if (map.mark == TensorMap::ours && map.rank == rank) return true;
    fault(w, Outcome::illegal_instruction, lane, "no tensor map of " + std::to_string(rank) + " axes");
    return false;
}

// Shared memory's 16-byte chunks are exchanged within rows of so many, by the number of the row in a group of as many.
uint64_t swizzled(uint64_t address, uint32_t chunks) {
    return chunks ? address ^ (address >> 3 & (chunks - 1) * 16u) : address;
}

constexpr uint64_t quiet_nan(uint32_t bytes) {
    return bytes == 2 ? 0x7fff : bytes == 4 ? 0x7fffffff : 0x7fffffffffffffff;
}

// One element between the tensor (null: outside) and the box in shared memory.
void move_element(std::byte* in_tensor, std::byte* in_box, const TensorMap& map, bool load) {
    size_t bytes = map.strides[0];
    if (load && in_tensor) std::memcpy(in_box, in_tensor, bytes);
    if (!load && in_tensor) std::memcpy(in_tensor, in_box, bytes);
    if (!load || in_tensor) return;
    uint64_t outside = map.nan_bytes ? quiet_nan(map.nan_bytes) : 0;
    std::memcpy(in_box, &outside, bytes);
}

// The bytes of the box, or 0 after a fault.
uint64_t copy_box(Warp& w, uint32_t lane, const TensorMap& map, const int32_t* begin, uint64_t shared, bool load) {
    uint32_t counts[TensorMap::rank_max] = {1, 1, 1, 1, 1}, at[TensorMap::rank_max] = {};
    uint64_t elements = 1, bytes = map.strides[0];
    for (uint32_t axis = 0; axis < map.rank; ++axis) {
        counts[axis] = (map.box[axis] + map.steps[axis] - 1u) / map.steps[axis];
        elements *= counts[axis];
    }
    for (uint64_t index = 0; index < elements; ++index) {
        uint64_t address = map.address;
        bool inside = true;
        for (uint32_t axis = 0; axis < map.rank; ++axis) {
            int64_t coordinate = int64_t{begin[axis]} + int64_t{at[axis]} * map.steps[axis];
            inside &= coordinate >= 0 && coordinate <= int64_t{map.last[axis]};
            address += static_cast<uint64_t>(coordinate) * map.strides[axis];
        }
        auto place = swizzled(shared + index * bytes, map.swizzle_chunks);
        auto* in_box = shared_pointer(w, place, static_cast<uint32_t>(bytes));
        if (!in_box) return memory_fault(w, place, lane, static_cast<uint32_t>(bytes), "a tensor's box", false), 0;
        auto* in_tensor = inside ? global_pointer(*w.worker, address, static_cast<uint32_t>(bytes)) : nullptr;
        if (inside && !in_tensor)
            return memory_fault(w, address, lane, static_cast<uint32_t>(bytes), "a tensor", false), 0;
        move_element(in_tensor, in_box, map, load);
        for (uint32_t axis = 0; axis < map.rank && ++at[axis] == counts[axis]; ++axis) at[axis] = 0;
    }
    return elements * bytes;
}

void copy_tensor(Warp& w, const Instr& i) {
    refresh_ranges(*w.worker);
    auto *maps = w.reg<uint64_t>(i.a), *shared = w.reg<uint64_t>(i.b), *barriers = w.reg<uint64_t>(i.d);
    bool load = i.flags & flag_load;
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        TensorMap map;
        if (!read_map(w, lane, maps[lane], i.count, map)) return;
        constexpr uint64_t alignment = 128;
        if (shared[lane] % alignment) return memory_fault(w, shared[lane], lane, 128, "a tensor's box", true);
        int32_t begin[TensorMap::rank_max] = {};
        for (uint32_t axis = 0; axis < i.count; ++axis)
            begin[axis] = w.reg<int32_t>(w.program->registers[i.table + axis])[lane];
        uint64_t bytes = copy_box(w, lane, map, begin, shared[lane], load);
        if (bytes == 0) return;
        if (!load) continue;
        auto* barrier = barrier_word(w, lane, barriers[lane]);
        if (!barrier) return;
        complete_bytes(*barrier, bytes);
    }
}

uint32_t take_rank(Decoder& d) {
    static constexpr std::string_view names[] = {"1d", "2d", "3d", "4d", "5d"};
    for (uint32_t i = 0; i < TensorMap::rank_max; ++i)
        if (d.take(names[i])) return i + 1;
    d.unsupported();
    return 0;
}

}  // namespace

// cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [box], [map, {x, y}], [barrier]
// cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [map, {x, y}], [box]
void decode_tensor_copy(Decoder& d) {
    uint32_t rank = take_rank(d);
    d.take("tile");
    d.take("L2::cache_hint");
    bool load = d.take("mbarrier::complete_tx::bytes"), store = d.take("bulk_group");
    bool shared = d.take("shared::cluster") || d.take("shared::cta");
    if (d.failed()) return;
    if (load == store || !shared || !d.take("global")) return d.unsupported();
    auto& tensor = d.operand(load ? 1 : 0);
    bool named = tensor.kind == ast::Operand::Kind::memory && tensor.parts.size() == 2 && tensor.value == 0 &&
                 tensor.parts[1].kind == ast::Operand::Kind::vector && tensor.parts[1].parts.size() == rank;
    if (!named) return d.fail("expected [tensor map, {" + std::to_string(rank) + " coordinates}]");
    auto map = d.source(tensor.parts[0], Type::u64);
    std::vector<RegRef> begin;
    for (auto& part : tensor.parts[1].parts) begin.push_back(d.source(part, Type::s32));
    auto table = d.add_table(begin);
    auto box = whole_address(d, d.operand(load ? 0 : 1), Space::shared);
    auto barrier = load ? whole_address(d, d.operand(2), Space::shared) : 0;
    auto& instr = d.emit(copy_tensor);
    instr.a = map;
    instr.b = box;
    instr.d = barrier;
    instr.table = table;
    instr.count = static_cast<uint16_t>(rank);
    instr.flags = load ? flag_load : 0;
}

}  // namespace tnr::ptx
