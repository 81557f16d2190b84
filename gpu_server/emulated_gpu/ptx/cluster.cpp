// The barrier of a cluster, and addresses in its blocks' shared memory: mapa, getctarank.
//
// All blocks of a cluster belong to one worker, so nothing here needs a lock. A phase of the barrier is over when every
// thread that lives has arrived.
#include "gpu_server/emulated_gpu/ptx/cluster.hpp"

#include "gpu_server/emulated_gpu/ptx/lanes.hpp"
#include "gpu_server/emulated_gpu/ptx/memory_operand.hpp"

namespace tnr::ptx {
namespace {

template <class F>
void each_warp(Block& block, F&& f) {
    for (auto* peer : *block.cluster)
        if (peer)
            for (auto& w : peer->warps) f(*w);
}

void arrive_in_cluster(Warp& w, const Instr&) {
    w.cluster_arrived |= w.active;
    check_cluster(*w.block);
}

// A lane whose phase is over goes on; the others stand here until it is.
void wait_for_cluster(Warp& w, const Instr&) {
    uint32_t waiting = w.active & w.cluster_arrived;
    if (!waiting) return;
    reschedule(w);
    w.park(waiting, w.pc - 1);
    w.at_cluster |= waiting;
}

// The same place in the shared memory of the block with rank b.
template <class T>
void map_address(Warp& w, const Instr& i) {
    T window = sizeof(T) == 8 ? static_cast<T>(shared_window) : 0;
    auto* d = w.reg<T>(i.dst);
    auto* a = w.reg<T>(i.a);
    auto* rank = w.reg<uint32_t>(i.b);
    bool generic = i.flags;
    for_lanes(w.active, [=](uint32_t l) { d[l] = static_cast<T>(in_block(a[l], rank[l])) | (generic ? window : 0); });
}

template <class T>
void rank_of_address(Warp& w, const Instr& i) {
    auto* d = w.reg<uint32_t>(i.dst);
    auto* a = w.reg<T>(i.a);
    uint32_t own = w.block->rank;
    for_lanes(w.active, [=](uint32_t l) {
        auto block = static_cast<uint32_t>(a[l] >> block_shift) & 255;
        d[l] = block ? block - 1 : own;
    });
}

// mapa{.shared::cluster}.u32 d, a, rank
void decode_map(Decoder& d) {
    bool generic = !d.take("shared::cluster");
    auto type = d.take_type();
    if (type != Type::u32 && type != Type::u64) return d.unsupported();
    auto a = d.source(1, type), rank = d.source(2, Type::u32), dst = d.dest(0, type);
    auto& instr = d.emit(type == Type::u32 ? map_address<uint32_t> : map_address<uint64_t>);
    instr.dst = dst;
    instr.a = a;
    instr.b = rank;
    instr.flags = generic;
}

// getctarank{.shared::cluster}.u32 d, a
void decode_rank(Decoder& d) {
    d.take("shared::cluster");
    auto type = d.take_type();
    if (type != Type::u32 && type != Type::u64) return d.unsupported();
    auto a = d.source(1, type), dst = d.dest(0, Type::u32);
    auto& instr = d.emit(type == Type::u32 ? rank_of_address<uint32_t> : rank_of_address<uint64_t>);
    instr.dst = dst;
    instr.a = a;
}

}  // namespace

void check_cluster(Block& block) {
    bool any = false, all = true;
    each_warp(block, [&](const Warp& w) {
        any |= w.cluster_arrived != 0;
        all &= (w.live & ~w.cluster_arrived) == 0;
    });
    if (!any || !all) return;
    each_warp(block, [](Warp& w) {
        w.cluster_arrived = 0;
        for (uint32_t rest = std::exchange(w.at_cluster, 0); rest; rest &= rest - 1)
            ++w.lane_pc[std::countr_zero(rest)];
    });
}

void decode_cluster_barrier(Decoder& d) {
    bool arrives = d.take("arrive");
    if (!arrives && !d.take("wait")) return d.unsupported();
    d.take_any_of({"release", "relaxed", "acquire"});
    d.take("aligned");
    d.emit(arrives ? arrive_in_cluster : wait_for_cluster);
}

bool decode_cluster(Decoder& d) {
    auto name = d.inst().name;
    if (name == "mapa") return decode_map(d), true;
    if (name == "getctarank") return decode_rank(d), true;
    return false;
}

}  // namespace tnr::ptx
