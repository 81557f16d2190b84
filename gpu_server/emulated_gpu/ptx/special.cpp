// The special registers: who a thread is, where it runs, what time it is.
#include <chrono>

#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/lanes.hpp"

namespace tnr::ptx {
namespace {

const Dim3& block_size(const Warp& w) {
    return w.block->grid->launch->block;
}
const Dim3& grid_size(const Warp& w) {
    return w.block->grid->launch->grid;
}

uint64_t now_ns() {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count());
}
// Programs turn it into time by the device's clock rate.
uint64_t clock_cycles(const Warp& w) {
    constexpr uint64_t ns_per_ms = 1'000'000;
    auto ns = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count());
    uint64_t per_ms = w.block->grid->launch->clock_khz;
    return ns / ns_per_ms * per_ms + ns % ns_per_ms * per_ms / ns_per_ms;
}

uint32_t lane_id(const Warp&, uint32_t l) {
    return l;
}
uint32_t lanes_eq(const Warp&, uint32_t l) {
    return 1u << l;
}
uint32_t lanes_lt(const Warp&, uint32_t l) {
    return (1u << l) - 1;
}
uint32_t lanes_le(const Warp&, uint32_t l) {
    return (2u << l) - 1;
}
uint32_t lanes_gt(const Warp&, uint32_t l) {
    return ~((2u << l) - 1);
}
uint32_t lanes_ge(const Warp&, uint32_t l) {
    return ~((1u << l) - 1);
}

// A value that differs per lane.
template <auto F>
void per_lane(Warp& w, const Instr& i) {
    auto* d = w.reg<uint32_t>(i.dst);
    for (uint32_t rest = w.active; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        d[lane] = F(w, lane);
    }
}

// A warp's threads follow each other, so that only its first has to be found by division, which took longer than all else
// that short kernels do.
template <char Axis>
void thread_id(Warp& w, const Instr& i) {
    auto* d = w.reg<uint32_t>(i.dst);
    auto size = block_size(w);
    uint32_t first = w.index * warp_lanes;
    uint32_t x = first % size.x, y = first / size.x % size.y, z = first / size.x / size.y;
    if (size.x - x >= warp_lanes)
        return assign_lanes(w.active, d, [=](uint32_t l) { return Axis == 'x' ? x + l : Axis == 'y' ? y : z; });
    uint32_t ids[warp_lanes];
    for (auto& id : ids) {
        id = Axis == 'x' ? x : Axis == 'y' ? y : z;
        if (++x < size.x) continue;
        x = 0;
        if (++y == size.y) y = 0, ++z;
    }
    assign_lanes(w.active, d, [from = ids](uint32_t l) { return from[l]; });
}

// One that all lanes of a warp share.
template <class T, auto F>
void per_warp(Warp& w, const Instr& i) {
    auto* d = w.reg<T>(i.dst);
    T value = static_cast<T>(F(w));
    assign_lanes(w.active, d, [=](uint32_t) { return value; });
}

template <auto F>
constexpr Handler word() {
    return per_warp<uint32_t, F>;
}

uint64_t workspace(const Warp& w) {
    return reinterpret_cast<uint64_t>(w.block->grid->workspace);
}
uint64_t current_graph_exec(const Warp& w) {
    auto* graph = w.block->grid->launch->graph;
    return graph ? graph->exec() : 0;
}
uint32_t ntid_x(const Warp& w) {
    return block_size(w).x;
}
uint32_t ntid_y(const Warp& w) {
    return block_size(w).y;
}
uint32_t ntid_z(const Warp& w) {
    return block_size(w).z;
}
uint32_t ctaid_x(const Warp& w) {
    return w.block->id.x;
}
uint32_t ctaid_y(const Warp& w) {
    return w.block->id.y;
}
uint32_t ctaid_z(const Warp& w) {
    return w.block->id.z;
}
uint32_t nctaid_x(const Warp& w) {
    return grid_size(w).x;
}
uint32_t nctaid_y(const Warp& w) {
    return grid_size(w).y;
}
uint32_t nctaid_z(const Warp& w) {
    return grid_size(w).z;
}
const Dim3& cluster(const Warp& w) {
    return w.block->grid->launch->cluster;
}
template <uint32_t Dim3::*Axis>
uint32_t clusterid(const Warp& w) {
    return w.block->id.*Axis / cluster(w).*Axis;
}
template <uint32_t Dim3::*Axis>
uint32_t nclusterid(const Warp& w) {
    return grid_size(w).*Axis / cluster(w).*Axis;
}
template <uint32_t Dim3::*Axis>
uint32_t cluster_ctaid(const Warp& w) {
    return w.block->id.*Axis % cluster(w).*Axis;
}
template <uint32_t Dim3::*Axis>
uint32_t cluster_nctaid(const Warp& w) {
    return cluster(w).*Axis;
}
uint32_t cluster_rank(const Warp& w) {
    return w.block->rank;
}
uint32_t cluster_size(const Warp& w) {
    return w.block->grid->cluster_blocks;
}
uint32_t warp_id(const Warp& w) {
    return w.index;
}
uint32_t nwarp_id(const Warp& w) {
    return static_cast<uint32_t>(w.block->warps.size());
}
uint32_t sm_id(const Warp& w) {
    return w.worker->index;
}
uint32_t nsm_id(const Warp& w) {
    return w.worker->count;
}
uint64_t zero(const Warp&) {
    return 0;
}
uint64_t time_ns(const Warp&) {
    return now_ns();
}
uint64_t time_high(const Warp&) {
    return now_ns() >> 32;
}
uint64_t clock_high(const Warp& w) {
    return clock_cycles(w) >> 32;
}
uint32_t dynamic_shared(const Warp& w) {
    return w.block->grid->launch->dynamic_shared_bytes;
}
uint32_t total_shared(const Warp& w) {
    return w.block->grid->reserved_shared_at;
}
uint32_t total_and_reserved_shared(const Warp& w) {
    return w.block->grid->shared_bytes;
}
uint32_t reserved_capacity(const Warp&) {
    return reserved_shared_bytes;
}
// cooperative_groups finds the memory of its grid barrier through these two.
uint32_t workspace_high(const Warp& w) {
    return static_cast<uint32_t>(workspace(w) >> 32);
}
uint32_t workspace_low(const Warp& w) {
    return static_cast<uint32_t>(workspace(w));
}

// A cluster of one block that the launch asks for is like none.
void is_in_cluster(Warp& w, const Instr& i) {
    w.set_mask(i.dst, w.active, w.block->grid->cluster_blocks > 1 ? all_lanes : 0);
}

struct Special {
    std::string_view name;
    Type type;
    Handler handler;
};

constexpr Special specials[] = {
    {"%tid.x", Type::u32, thread_id<'x'>},
    {"%tid.y", Type::u32, thread_id<'y'>},
    {"%tid.z", Type::u32, thread_id<'z'>},
    {"%laneid", Type::u32, per_lane<lane_id>},
    {"%lanemask_eq", Type::u32, per_lane<lanes_eq>},
    {"%lanemask_lt", Type::u32, per_lane<lanes_lt>},
    {"%lanemask_le", Type::u32, per_lane<lanes_le>},
    {"%lanemask_gt", Type::u32, per_lane<lanes_gt>},
    {"%lanemask_ge", Type::u32, per_lane<lanes_ge>},
    {"%ntid.x", Type::u32, word<ntid_x>()},
    {"%ntid.y", Type::u32, word<ntid_y>()},
    {"%ntid.z", Type::u32, word<ntid_z>()},
    {"%ctaid.x", Type::u32, word<ctaid_x>()},
    {"%ctaid.y", Type::u32, word<ctaid_y>()},
    {"%ctaid.z", Type::u32, word<ctaid_z>()},
    {"%nctaid.x", Type::u32, word<nctaid_x>()},
    {"%nctaid.y", Type::u32, word<nctaid_y>()},
    {"%nctaid.z", Type::u32, word<nctaid_z>()},
    {"%warpid", Type::u32, word<warp_id>()},
    {"%nwarpid", Type::u32, word<nwarp_id>()},
    {"%smid", Type::u32, word<sm_id>()},
    {"%nsmid", Type::u32, word<nsm_id>()},
    {"%gridid", Type::u64, per_warp<uint64_t, zero>},
    {"%clock", Type::u32, word<clock_cycles>()},
    {"%clock_hi", Type::u32, word<clock_high>()},
    {"%clock64", Type::u64, per_warp<uint64_t, clock_cycles>},
    {"%globaltimer", Type::u64, per_warp<uint64_t, time_ns>},
    {"%globaltimer_lo", Type::u32, word<time_ns>()},
    {"%globaltimer_hi", Type::u32, word<time_high>()},
    {"%dynamic_smem_size", Type::u32, word<dynamic_shared>()},
    {"%total_smem_size", Type::u32, word<total_shared>()},
    {"%aggr_smem_size", Type::u32, word<total_and_reserved_shared>()},
    {"%reserved_smem_offset_begin", Type::u32, word<total_shared>()},
    {"%reserved_smem_offset_0", Type::u32, word<total_shared>()},
    {"%reserved_smem_offset_1", Type::u32, word<total_shared>()},
    {"%reserved_smem_offset_end", Type::u32, word<total_and_reserved_shared>()},
    {"%reserved_smem_offset_cap", Type::u32, word<reserved_capacity>()},
    {"%envreg1", Type::u32, word<workspace_high>()},
    {"%envreg2", Type::u32, word<workspace_low>()},
    {"%current_graph_exec", Type::u64, per_warp<uint64_t, current_graph_exec>},
    {"%clusterid.x", Type::u32, word<clusterid<&Dim3::x>>()},
    {"%clusterid.y", Type::u32, word<clusterid<&Dim3::y>>()},
    {"%clusterid.z", Type::u32, word<clusterid<&Dim3::z>>()},
    {"%nclusterid.x", Type::u32, word<nclusterid<&Dim3::x>>()},
    {"%nclusterid.y", Type::u32, word<nclusterid<&Dim3::y>>()},
    {"%nclusterid.z", Type::u32, word<nclusterid<&Dim3::z>>()},
    {"%cluster_ctaid.x", Type::u32, word<cluster_ctaid<&Dim3::x>>()},
    {"%cluster_ctaid.y", Type::u32, word<cluster_ctaid<&Dim3::y>>()},
    {"%cluster_ctaid.z", Type::u32, word<cluster_ctaid<&Dim3::z>>()},
    {"%cluster_nctaid.x", Type::u32, word<cluster_nctaid<&Dim3::x>>()},
    {"%cluster_nctaid.y", Type::u32, word<cluster_nctaid<&Dim3::y>>()},
    {"%cluster_nctaid.z", Type::u32, word<cluster_nctaid<&Dim3::z>>()},
    {"%cluster_ctarank", Type::u32, word<cluster_rank>()},
    {"%cluster_nctarank", Type::u32, word<cluster_size>()},
    {"%is_explicit_cluster", Type::pred, is_in_cluster},
};

}  // namespace

Handler special_handler(std::string_view name, Type& type) {
    for (auto& special : specials) {
        if (special.name != name) continue;
        type = special.type;
        return special.handler;
    }
    if (name.substr(0, 7) != "%envreg") return nullptr;
    type = Type::b32;
    return word<zero>();
}

}  // namespace tnr::ptx
