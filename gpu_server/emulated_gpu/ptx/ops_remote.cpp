// st.async and red.async: to the shared memory of a block of the cluster, and the bytes are counted at a barrier there. Both
// are done at once; one worker runs all blocks of a cluster, so nobody is in between.
#include <algorithm>

#include "gpu_server/emulated_gpu/ptx/access.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"
#include "gpu_server/emulated_gpu/ptx/transaction.hpp"

namespace tnr::ptx {
namespace {

// a: the address; d: the barrier's; table, count: the values, each of `flags` bytes; imm: a Reduce, or null.
using Reduce = uint64_t (*)(uint64_t there, uint64_t value);

std::byte* remote(Warp& w, uint32_t lane, uint64_t address, uint32_t bytes) {
    bool misaligned = address & (bytes - 1);
    auto* p = misaligned                ? nullptr
              : (address & window_mask) ? generic_pointer(w, lane, address, bytes, true)
                                        : shared_pointer(w, address, bytes);
    if (!p) memory_fault(w, address, lane, bytes, "asynchronous access", misaligned);
    return p;
}

void change_remote(Warp& w, const Instr& i) {
    auto *addresses = w.reg<uint64_t>(i.a), *barriers = w.reg<uint64_t>(i.d);
    auto reduce = reinterpret_cast<Reduce>(i.imm);
    uint32_t bytes = i.flags, all = bytes * i.count;
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto* p = remote(w, lane, addresses[lane], all);
        auto* barrier = p ? barrier_word(w, lane, barriers[lane]) : nullptr;
        if (!barrier) return;
        for (uint32_t e = 0; e < i.count; ++e, p += bytes) {
            auto* reg = w.reg<std::byte>(w.program->registers[i.table + e]) + lane * bytes;
            uint64_t value = 0, there = 0;
            std::memcpy(&value, reg, bytes);
            std::memcpy(&there, p, bytes);
            if (reduce) value = reduce(there, value);
            std::memcpy(p, &value, bytes);
        }
        complete_bytes(*barrier, all);
    }
}

uint64_t add(uint64_t a, uint64_t b) {
    return a + b;
}
uint64_t bits_and(uint64_t a, uint64_t b) {
    return a & b;
}
uint64_t bits_or(uint64_t a, uint64_t b) {
    return a | b;
}
uint64_t bits_xor(uint64_t a, uint64_t b) {
    return a ^ b;
}
template <class T, bool Max>
uint64_t extreme(uint64_t a, uint64_t b) {
    return (static_cast<T>(a) < static_cast<T>(b)) == Max ? b : a;
}
uint64_t increment(uint64_t a, uint64_t limit) {
    return a >= limit ? 0 : a + 1;
}
uint64_t decrement(uint64_t a, uint64_t limit) {
    return a == 0 || a > limit ? limit : a - 1;
}

Reduce reduction(std::string_view op, Type type) {
    bool bits = type == Type::b32 || type == Type::b64, narrow = type == Type::u32;
    if (op == "and" && bits) return bits_and;
    if (op == "or" && bits) return bits_or;
    if (op == "xor" && bits) return bits_xor;
    if (op == "add" && !bits) return add;
    if (op == "inc" && narrow) return increment;
    if (op == "dec" && narrow) return decrement;
    if (op == "min") return type == Type::s32 ? extreme<int32_t, false> : narrow ? extreme<uint32_t, false> : nullptr;
    if (op == "max") return type == Type::s32 ? extreme<int32_t, true> : narrow ? extreme<uint32_t, true> : nullptr;
    return nullptr;
}

}  // namespace

// st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [to], {a, b}, [barrier]
// red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [to], a, [barrier]
void decode_remote(Decoder& d, bool reduces) {
    d.take("weak") || d.take("relaxed");
    d.take("cluster");
    d.take("shared::cluster");
    if (!d.take("mbarrier::complete_tx::bytes")) return d.unsupported();  // the forms without one go to global memory
    auto op = reduces ? d.take_any_of({"add", "min", "max", "inc", "dec", "and", "or", "xor"}) : std::string_view{};
    uint32_t width = reduces ? 1 : d.take("v2") ? 2 : d.take("v4") ? 4 : 1;
    auto type = d.take_type();
    auto reduce = reduces ? reduction(op, type) : nullptr;
    if ((size_of(type) != 4 && size_of(type) != 8) || (reduces && !reduce)) return d.unsupported();
    auto address = whole_address(d, d.operand(0), Space::shared);
    auto& values = d.operand(1);
    bool vector = values.kind == ast::Operand::Kind::vector;
    if ((vector ? values.parts.size() : 1) != width) return d.fail("the operand does not fit the vector's width");
    std::vector<RegRef> refs;
    for (uint32_t e = 0; e < width; ++e) refs.push_back(d.source(vector ? values.parts[e] : values, type));
    auto barrier = whole_address(d, d.operand(2), Space::shared);
    auto table = d.add_table(refs);
    auto& instr = d.emit(change_remote);
    instr.a = address;
    instr.d = barrier;
    instr.table = table;
    instr.count = static_cast<uint16_t>(width);
    instr.flags = static_cast<uint8_t>(size_of(type));
    instr.imm = reinterpret_cast<int64_t>(reduce);
}

}  // namespace tnr::ptx
