// What is known about addresses; allocating and freeing.
#include "gpu_client/cuda/memory.hpp"

#include <map>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/address_ranges.hpp"
#include "gpu_client/cuda/managed_advice.hpp"
#include "gpu_client/cuda/memory_pools.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/shared_pages.hpp"

namespace tnr::cuda {

namespace {
struct Symbol {
    uint64_t bytes, context, library;
};
struct Symbols {
    Mutex mutex;
    std::map<uint64_t, Symbol> by_address TNR_GUARDED_BY(mutex);
};
Symbols& symbols() {
    static auto* all = new Symbols;
    return *all;
}

bool find_symbol(uint64_t address, Allocation& found) {
    LockGuard lock(symbols().mutex);
    auto after = symbols().by_address.upper_bound(address);
    if (after == symbols().by_address.begin()) return false;
    auto& [start, symbol] = *std::prev(after);
    if (address - start >= symbol.bytes) return false;
    found = {};
    found.address = start;
    found.bytes = found.reserved = symbol.bytes;
    found.context = symbol.context;
    found.mapped_by_program = true;  // not to be freed
    return true;
}
}  // namespace

// Stands for a library's handle.
static constexpr uint64_t of_graphs = 0;

void note_graph_memory(uint64_t address, uint64_t bytes, uint64_t context) {
    {
        LockGuard lock(symbols().mutex);
        auto& all = symbols().by_address;
        auto at = all.lower_bound(address);
        if (at != all.begin() && std::prev(at)->first + std::prev(at)->second.bytes > address) --at;
        while (at != all.end() && at->first < address + bytes)  // of graphs that are gone
            at = at->second.library == of_graphs ? all.erase(at) : std::next(at);
    }
    note_symbol(address, bytes, context, of_graphs);
}

bool is_graph_memory(uint64_t address) {
    LockGuard lock(symbols().mutex);
    auto found = symbols().by_address.find(address);
    return found != symbols().by_address.end() && found->second.library == of_graphs;
}

void note_symbol(uint64_t address, uint64_t bytes, uint64_t context, uint64_t library) {
    (void)hold_pages(address, bytes);
    LockGuard lock(symbols().mutex);
    symbols().by_address[address] = {bytes, context, library};
}

void forget_symbols(uint64_t library) {
    LockGuard lock(symbols().mutex);
    std::erase_if(symbols().by_address, [&](auto& entry) { return entry.second.library == library; });
}

Device* device_of_address(uint64_t address) {
    for (auto* device : devices())
        if (device->memory->in_range(address)) return device;
    return nullptr;
}

bool find_allocation(uint64_t address, Allocation& found) {
    if (auto* device = device_of_address(address)) return device->memory->find(address, found);
    return find_symbol(address, found);
}

bool is_allocated(uint64_t address, uint64_t bytes) {
    if (bytes == 0) return true;
    Allocation found;
    while (find_allocation(address, found)) {
        uint64_t behind = found.address + found.bytes - address;
        if (bytes <= behind) return true;
        if (!found.mapped_by_program) return false;
        address += behind;  // the program's own mappings may lie side by side
        bytes -= behind;
    }
    return false;
}

bool is_device_address(uint64_t address) {
    Allocation found;
    return device_of_address(address) || find_symbol(address, found);
}

CUresult allocate_memory(uint64_t bytes, CUdeviceptr* out) {
    if (!out || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    if (context->session.load()->lost()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    uint64_t address = 0;
    auto result = find_device(context->device)->memory->allocate(*context, bytes, 0, 0, address);
    if (result != CUDA_SUCCESS) return result;
    pools_make_room(context->device);
    *out = address;
    return CUDA_SUCCESS;
}

// `of_stream`: null with all work. Another context's stream is not one of those that may have the memory again at once.
static CUresult free_memory(uint64_t address, uint64_t stream, const Context* of_stream) {
    if (address == 0) return CUDA_SUCCESS;
    auto* device = device_of_address(address);
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    Allocation found;
    if (!device->memory->find(address, found) || found.address != address) return CUDA_ERROR_INVALID_VALUE;
    auto* owner = contexts().find(found.context);
    bool outlived = found.pool != 0 && owner && !owner->active;  // the context that it was allocated in
    if (auto result = outlived ? CUDA_SUCCESS : usable(owner); result != CUDA_SUCCESS) return result;
    SharedMemory shared;
    if (find_shared(address, shared)) {
        if (shared.kind != SharedKind::managed) return CUDA_ERROR_INVALID_VALUE;
        (void)unshare_memory(address, false);
        forget_advice(address, shared.bytes);
    }
    bool in_order = of_stream && of_stream->handle == found.context;
    auto result = device->memory->release(address, in_order ? stream + 1 : 0);
    if (result == CUDA_SUCCESS) return_to_pool(found.pool, found.bytes);
    return result;
}

CUresult free_memory(uint64_t address) {
    return free_memory(address, 0, nullptr);
}

CUresult free_memory(uint64_t address, const StreamRef& stream, const Context& of_stream) {
    return free_memory(address, stream.number, &of_stream);
}

}  // namespace tnr::cuda
