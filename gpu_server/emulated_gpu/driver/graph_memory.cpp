#include "gpu_server/emulated_gpu/driver/graph_memory.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "gpu_server/emulated_gpu/driver/graph_exec.hpp"
#include "gpu_server/emulated_gpu/driver/pool.hpp"

namespace tnr::emulated {
namespace {

using Shared = std::shared_ptr<GraphAllocation>;

// What a device's memory is to graphs. What a launch has taken of it stays taken when graphs are gone, for the next one,
// until it is trimmed or somebody else needs it; all of it counts as used, as with a driver.
struct GraphMemory {
    std::atomic<uint64_t> reserved{0}, cached{0};  // atomic: allocations go without the lock
    uint64_t reserved_high = 0, used_high = 0;
    std::map<uint64_t, std::shared_ptr<GraphAllocation>> live;  // lives on when its graph is gone
};

GraphMemory& memory_of(const Device& device) {
    static auto& all = *new std::vector<GraphMemory>(driver().devices.size());
    return all[static_cast<size_t>(device.ordinal)];
}

// Those that there are, by address. Its lock is innermost.
struct Known {
    Mutex mutex;
    std::map<uint64_t, std::weak_ptr<GraphAllocation>> allocations TNR_GUARDED_BY(mutex);
};

Known& known_allocations() {
    static Known& known = *new Known;
    return known;
}

void set_live(const std::shared_ptr<GraphAllocation>& allocation, bool live) {
    GraphMemory& memory = memory_of(allocation->device);
    allocation->live = live;
    if (live)
        memory.live[allocation->address] = allocation;
    else
        memory.live.erase(allocation->address);
}

uint64_t take_cached(GraphMemory& memory, uint64_t most) {
    uint64_t cached = memory.cached;
    while (!memory.cached.compare_exchange_weak(cached, cached - std::min(cached, most))) {
    }
    return std::min(cached, most);
}

bool reserve(GraphAllocation& allocation) {
    if (allocation.charged) return true;
    GraphMemory& memory = memory_of(allocation.device);
    uint64_t again = take_cached(memory, allocation.bytes), fresh = allocation.bytes - again;
    if (fresh && !charge(allocation.device, fresh)) {
        memory.cached += again;
        return false;
    }
    allocation.charged = true;
    memory.reserved += fresh;
    memory.reserved_high = std::max(memory.reserved_high, memory.reserved.load());
    memory.used_high = std::max(memory.used_high, memory.reserved.load());
    return true;
}

void unreserve(GraphAllocation& allocation) {
    if (allocation.charged) memory_of(allocation.device).cached += allocation.bytes;
    allocation.charged = false;
}

// Of the device's, what no launch has left allocated.
std::vector<Shared> not_live(const Device& device) {
    Known& known = known_allocations();
    std::vector<Shared> all;
    {
        LockGuard lock(known.mutex);
        for (auto& [address, weak] : known.allocations)
            if (auto allocation = weak.lock()) all.push_back(std::move(allocation));
    }
    std::erase_if(all, [&](const Shared& allocation) { return &allocation->device != &device || allocation->live; });
    return all;
}

void trim(Device& device) {
    for (auto& allocation : not_live(device))
        if (allocation->busy.passed()) unreserve(*allocation);
    release_graph_memory(device);
}

// Calls `on` for each allocation that a launch of the plan allocates or frees, in order, until it fails.
template <class On>
CUresult each_memory_step(const Plan& plan, On&& on) {
    for (const Step& step : plan.steps) {
        CUresult error = CUDA_SUCCESS;
        if (auto* allocates = std::get_if<AllocWork>(step.work.get())) error = on(allocates->allocation, true);
        if (auto* frees = std::get_if<FreeWork>(step.work.get())) error = on(frees->allocation, false);
        if (error) return error;
    }
    return CUDA_SUCCESS;
}

// A launch's memory may be that of other graphs whose launches are over, or come before it in its stream.
void reuse_for_launch(const Plan& plan, const Queue& queue) {
    std::set<const GraphAllocation*> own;
    std::set<Device*> lacking;
    each_memory_step(plan, [&](const Shared& allocation, bool) {
        own.insert(allocation.get());
        if (!allocation->charged) lacking.insert(&allocation->device);
        return CUDA_SUCCESS;
    });
    for (Device* device : lacking)
        for (auto& other : not_live(*device))
            if (!own.contains(other.get()) && (other->busy.queue.get() == &queue || other->busy.passed()))
                unreserve(*other);
}

}  // namespace

GraphAllocation::~GraphAllocation() {
    Known& known = known_allocations();
    {
        LockGuard lock(known.mutex);
        known.allocations.erase(address);
    }
    if (driver().addresses.take(address, [](const Allocation& a) { return a.in_graph; }))
        device.arena.release(address, bytes);
    unreserve(*this);
}

CUresult allocate_for_graph(Device& device, uint64_t size, uint64_t access,
                            std::shared_ptr<GraphAllocation>& allocation) {
    if (size == 0) return CUDA_ERROR_INVALID_VALUE;
    if (size > device.memory_total) return CUDA_ERROR_OUT_OF_MEMORY;
    Allocation like;
    like.access = access;
    like.in_graph = true;
    uint64_t address = 0;
    if (CUresult error = place_on_device(device, size, like, address)) return error;
    allocation = std::make_shared<GraphAllocation>(device, address, granules(size));
    Known& known = known_allocations();
    LockGuard lock(known.mutex);
    known.allocations[address] = allocation;
    return CUDA_SUCCESS;
}

std::shared_ptr<GraphAllocation> graph_allocation(uint64_t address) {
    Known& known = known_allocations();
    LockGuard lock(known.mutex);
    auto found = known.allocations.find(address);
    return found == known.allocations.end() ? nullptr : found->second.lock();
}

std::shared_ptr<GraphAllocation> free_outside(uint64_t address) {
    auto allocation = graph_allocation(address);
    LockGuard lock(graph_mutex());
    if (!allocation || !allocation->live) return nullptr;
    set_live(allocation, false);
    return allocation;
}

void release_graph_memory(Device& device) {
    GraphMemory& memory = memory_of(device);
    uint64_t bytes = memory.cached.exchange(0);
    memory.reserved -= bytes;
    device.refund(bytes);
}

CUresult account_for_launch(const Plan& plan, bool auto_free, const Stream& stream) {
    std::map<GraphAllocation*, bool> live;
    bool reused = false;
    CUresult error = each_memory_step(plan, [&](const Shared& allocation, bool allocates) -> CUresult {
        bool& now = live.try_emplace(allocation.get(), allocation->live).first->second;
        if (now == allocates && !(allocates && auto_free)) return CUDA_ERROR_INVALID_VALUE;
        now = allocates;
        if (allocates && !allocation->charged && !std::exchange(reused, true)) reuse_for_launch(plan, *stream.queue);
        return !allocates || reserve(*allocation) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    });
    if (error) return error;
    return each_memory_step(plan, [](const Shared& allocation, bool allocates) {
        set_live(allocation, allocates);
        return CUDA_SUCCESS;
    });
}

void note_launch(const Plan& plan, const Point& point) {
    each_memory_step(plan, [&](const Shared& allocation, bool) {
        allocation->busy = point;
        return CUDA_SUCCESS;
    });
}

}  // namespace tnr::emulated

using namespace tnr::emulated;

namespace {

template <class Call>
CUresult on_graph_memory(CUdevice ordinal, Call&& call) {
    return with_graphs([&]() -> CUresult {
        Device* device = device_of(ordinal);
        return device ? call(*device) : CUDA_ERROR_INVALID_DEVICE;
    });
}

}  // namespace

CUresult cuDeviceGraphMemTrim(CUdevice ordinal) {
    return on_graph_memory(ordinal, [](Device& device) {
        trim(device);
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void* value) {
    return on_graph_memory(ordinal, [&](Device& device) -> CUresult {
        const GraphMemory& memory = memory_of(device);
        if (!value) return CUDA_ERROR_INVALID_VALUE;
        auto is = [&](uint64_t bytes) {
            *static_cast<cuuint64_t*>(value) = bytes;
            return CUDA_SUCCESS;
        };
        switch (attribute) {
            case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
                return is(memory.reserved);
            case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
                return is(memory.used_high);
            case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
                return is(memory.reserved);
            case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
                return is(memory.reserved_high);
            default:
                return CUDA_ERROR_INVALID_VALUE;
        }
    });
}

// High watermarks can only be reset.
CUresult cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void* value) {
    return on_graph_memory(ordinal, [&](Device& device) -> CUresult {
        GraphMemory& memory = memory_of(device);
        const bool used = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;
        if (!used && attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) return CUDA_ERROR_INVALID_VALUE;
        if (!value || *static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
        (used ? memory.used_high : memory.reserved_high) = memory.reserved;
        return CUDA_SUCCESS;
    });
}
