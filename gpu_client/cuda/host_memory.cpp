// See host_memory.hpp.
#include "gpu_client/cuda/host_memory.hpp"

#include <sys/mman.h>

#include <map>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "api_client/base/turn.hpp"
#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/managed_memory.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/page_file.hpp"
#include "gpu_client/cuda/thread_state.hpp"

namespace tnr::cuda {

namespace {
struct Pinned {
    Mutex mutex;
    std::map<uint64_t, PinnedRange> by_address TNR_GUARDED_BY(mutex);
    uint64_t last_id TNR_GUARDED_BY(mutex) = 0;
};
Pinned& pinned() {
    static auto* all = new Pinned;
    return *all;
}

// The addresses among which all pinned memory is that the GPU does not have under the same ones. Only ever grows.
std::atomic<uint64_t> first_elsewhere{UINT64_MAX}, behind_elsewhere{0};
void note_elsewhere(uint64_t begin, uint64_t end) TNR_REQUIRES(pinned().mutex) {
    first_elsewhere = std::min(first_elsewhere.load(), begin);
    behind_elsewhere = std::max(behind_elsewhere.load(), end);
}

struct PendingWrites {
    Mutex mutex;  // held for look-ups only, also under the session's receive lock
    // First byte, and the one behind the last.
    std::map<uint64_t, std::pair<uint64_t, uint64_t>> by_ticket TNR_GUARDED_BY(mutex);
    uint64_t last_ticket TNR_GUARDED_BY(mutex) = 0;
    std::atomic<size_t> count{0};  // most programs never have any
};
PendingWrites& pending_writes() {
    static auto* all = new PendingWrites;
    return *all;
}

constexpr unsigned alloc_flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned register_flags =
    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
}  // namespace

PendingWrite::PendingWrite(const void* address, size_t bytes) {
    auto& all = pending_writes();
    LockGuard lock(all.mutex);
    ticket_ = ++all.last_ticket;
    all.by_ticket[ticket_] = {value_of(address), value_of(address) + bytes};
    all.count = all.by_ticket.size();
}

PendingWrite::~PendingWrite() {
    auto& all = pending_writes();
    LockGuard lock(all.mutex);
    all.by_ticket.erase(ticket_);
    all.count = all.by_ticket.size();
}

static bool is_being_written(uint64_t begin, uint64_t end) {
    auto& all = pending_writes();
    if (all.count == 0) return false;
    LockGuard lock(all.mutex);
    for (auto& [ticket, written] : all.by_ticket)
        if (written.first < end && begin < written.second) return true;
    return false;
}

void await_writes(const void* address, size_t bytes) {
    uint64_t begin = value_of(address), end = begin + bytes;
    if (!is_being_written(begin, end)) return;
    for (auto* session : open_sessions()) {
        session->flush();
        session->wait_until([&] { return !is_being_written(begin, end); });
    }
}

bool find_pinned(const void* address, size_t bytes, PinnedRange& range) {
    auto start = reinterpret_cast<uint64_t>(address);
    LockGuard lock(pinned().mutex);
    auto after = pinned().by_address.upper_bound(start);
    if (after == pinned().by_address.begin()) return false;
    auto& found = std::prev(after)->second;
    uint64_t skipped = start - found.address;
    if (skipped >= found.bytes || found.bytes - skipped < bytes) return false;
    range = found;
    return true;
}

bool is_pinned(uint64_t address) {
    PinnedRange range;
    return !device_of_address(address) && find_pinned(handle_of<const void*>(address), 1, range);
}

bool leaves_pinned(uint64_t address, size_t bytes) {
    PinnedRange range;
    return is_pinned(address) && !find_pinned(handle_of<const void*>(address), bytes, range);
}

bool is_pinned_in_part(const void* address, uint64_t bytes) {
    const uint64_t begin = value_of(address), end = bytes < UINT64_MAX - begin ? begin + bytes : UINT64_MAX;
    LockGuard lock(pinned().mutex);
    auto next = pinned().by_address.upper_bound(begin);
    uint64_t pinned_until = begin;
    bool registered = false;
    auto follow = [&](const PinnedRange& range) {
        pinned_until = range.address + range.bytes;
        registered = range.registered;
    };
    if (next != pinned().by_address.begin()) {
        auto& range = std::prev(next)->second;
        if (range.address + range.bytes > begin) follow(range);
    }
    if (pinned_until == begin) return next != pinned().by_address.end() && next->first < end;
    for (; registered && next != pinned().by_address.end() && next->first == pinned_until && next->second.registered;
         ++next)
        follow(next->second);
    return pinned_until < end;
}

static CUresult add(void* address, size_t bytes, unsigned flags, bool registered, uint64_t context, uint64_t pool = 0) {
    auto start = reinterpret_cast<uint64_t>(address);
    LockGuard lock(pinned().mutex);
    auto after = pinned().by_address.lower_bound(start);
    const PinnedRange* met = nullptr;
    if (after != pinned().by_address.end() && after->first < start + bytes) met = &after->second;
    if (after != pinned().by_address.begin()) {
        auto& before = std::prev(after)->second;
        if (before.address + before.bytes > start) met = &before;
    }
    if (met) return met->registered ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : CUDA_ERROR_INVALID_VALUE;
    // The counter is small and outlives the range: the network thread may look at it last.
    pinned().by_address[start] = {start, bytes, flags, registered, context, ++pinned().last_id, new std::atomic<int>(0),
                                  pool};
    if (registered || !(flags & CU_MEMHOSTALLOC_DEVICEMAP)) note_elsewhere(start, start + bytes);
    return CUDA_SUCCESS;
}

// A range may not be freed, nor its pages taken from us, while a copy uses it. Copies end by themselves, or with the
// session.
static void await_copies(const PinnedRange& range) {
    for (auto* session : open_sessions()) session->wait_for_memory([&] { return *range.in_flight == 0; });
}

static bool remove(void* address, bool registered, PinnedRange& range) {
    {
        LockGuard lock(pinned().mutex);
        auto found = pinned().by_address.find(reinterpret_cast<uint64_t>(address));
        if (found == pinned().by_address.end() || found->second.registered != registered) return false;
        range = found->second;
        pinned().by_address.erase(found);
    }
    await_copies(range);
    return true;
}

// Pages of its own, so that the program may register or protect its neighbours as it likes. What kernels are to reach
// is a device's memory as well, at the same address.
static CUresult take_pages(Context& context, size_t bytes, unsigned flags, void*& memory) {
    if (flags & CU_MEMHOSTALLOC_DEVICEMAP) {
        uint64_t address = 0;
        auto result = allocate_shared(context, SharedKind::mapped, bytes, 0, address);
        memory = handle_of<void*>(address);
        return result;
    }
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static void free_pages(const PinnedRange& range) {
    (void)free_shared(range.address);
    bool of_device = (range.flags & CU_MEMHOSTALLOC_DEVICEMAP) != 0;
    if (!of_device) ::munmap(handle_of<void*>(range.address), range.bytes);
}

AddressSpan addresses_elsewhere() {
    return {first_elsewhere.load(std::memory_order_relaxed), behind_elsewhere.load(std::memory_order_relaxed)};
}

CUresult find_elsewhere(Context& context, uint64_t address, uint64_t& device) {
    PinnedRange range;
    if (!find_pinned(handle_of<const void*>(address), 1, range)) return CUDA_ERROR_INVALID_VALUE;
    static auto* mapping = new Turn;  // threads that launch with the same memory map it once
    TakenTurn turn(*mapping);
    SharedMemory shared;
    if (!find_shared(range.address, shared)) {
        await_copies(range);
        // What is not registered has its pages for itself (take_pages).
        const uint64_t pages = (range.bytes + page_bytes() - 1) / page_bytes() * page_bytes();
        auto result =
            share_program_memory(context, range.address, range.registered ? range.bytes : pages, shared.device);
        if (result != CUDA_SUCCESS) return result;
    }
    device = shared.device + (address - range.address);
    return CUDA_SUCCESS;
}

CUresult allocate_pinned(void** out, size_t bytes, unsigned flags, uint64_t pool) {
    if (!out || (flags & ~alloc_flags) != 0) return CUDA_ERROR_INVALID_VALUE;
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    if (bytes == 0) return *out = nullptr, CUDA_SUCCESS;
    if (auto result = pool == 0 ? refuse_unsafe() : CUDA_SUCCESS; result != CUDA_SUCCESS) return result;
    void* memory = nullptr;
    if (auto result = take_pages(*context, bytes, flags, memory); result != CUDA_SUCCESS) return result;
    if (auto result = add(memory, bytes, flags, false, context->handle, pool); result != CUDA_SUCCESS) {
        free_pages({value_of(memory), bytes, flags});
        return result;
    }
    *out = memory;
    return CUDA_SUCCESS;
}

bool free_pinned(void* memory) {
    PinnedRange range;
    if (!remove(memory, false, range)) return false;
    free_pages(range);
    return true;
}

void unpin_memory_of(const Context& context) {
    std::vector<PinnedRange> ended;
    {
        LockGuard lock(pinned().mutex);
        std::erase_if(pinned().by_address, [&](auto& entry) {
            auto& range = entry.second;
            if (range.context != context.handle || range.pool != 0) return false;
            ended.push_back(range);
            return true;
        });
    }
    for (auto& range : ended) {
        await_copies(range);
        if (range.registered)
            (void)free_shared(range.address);
        else
            free_pages(range);
    }
}

// Has the program memory in every page of it? The GPU's memory is none.
static bool is_program_memory(const void* address, size_t bytes) {
    SharedMemory shared;
    if (is_device_address(value_of(address)) && !find_shared(value_of(address), shared)) return false;
    const uint64_t begin = value_of(address) & ~(uint64_t{page_bytes()} - 1);
    return ::msync(handle_of<void*>(begin), value_of(address) + bytes - begin, MS_ASYNC) == 0;
}

static CUresult register_memory(void* address, size_t bytes, unsigned flags) {
    if (!address || bytes == 0 || (flags & CU_MEMHOSTREGISTER_IOMEMORY)) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & ~register_flags) != 0 || value_of(address) + bytes < bytes) return CUDA_ERROR_INVALID_VALUE;
    if (!is_program_memory(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (auto result = refuse_unsafe(); result != CUDA_SUCCESS) return result;
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    if (auto result = add(address, bytes, flags, true, context->handle); result != CUDA_SUCCESS) return result;
    if (!(flags & CU_MEMHOSTREGISTER_DEVICEMAP)) return CUDA_SUCCESS;
    uint64_t device = 0;
    auto result = find_elsewhere(*context, value_of(address), device);
    PinnedRange range;
    if (result != CUDA_SUCCESS) (void)remove(address, true, range);
    return result;
}

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuMemHostAlloc(void** out, size_t bytes, unsigned int flags) {
    return guarded("cuMemHostAlloc", [&] { return allocate_pinned(out, bytes, flags); });
}

CUresult CUDAAPI cuMemAllocHost_v2(void** out, size_t bytes) {
    return guarded("cuMemAllocHost", [&] { return allocate_pinned(out, bytes, 0); });
}

CUresult CUDAAPI cuMemFreeHost(void* memory) {
    return guarded("cuMemFreeHost", [&]() -> CUresult {
        if (!memory) return CUDA_SUCCESS;
        PinnedRange range;
        if (find_pinned(memory, 1, range) && range.pool != 0) return CUDA_ERROR_INVALID_VALUE;
        if (auto result = refuse_unsafe(); result != CUDA_SUCCESS) return result;
        return free_pinned(memory) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult CUDAAPI cuMemHostRegister_v2(void* memory, size_t bytes, unsigned int flags) {
    return guarded("cuMemHostRegister", [&] { return register_memory(memory, bytes, flags); });
}
CUresult CUDAAPI cuMemHostRegister(void* memory, size_t bytes, unsigned int flags) {
    return guarded("cuMemHostRegister", [&] { return register_memory(memory, bytes, flags); });
}

CUresult CUDAAPI cuMemHostUnregister(void* memory) {
    return guarded("cuMemHostUnregister", [&]() -> CUresult {
        if (!memory) return CUDA_ERROR_INVALID_VALUE;
        PinnedRange range;
        if (auto result = refuse_unsafe(); result != CUDA_SUCCESS) return result;
        if (remove(memory, true, range)) {
            (void)free_shared(range.address);
            return CUDA_SUCCESS;
        }
        return find_pinned(memory, 1, range) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    });
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int* flags, void* memory) {
    return guarded("cuMemHostGetFlags", [&]() -> CUresult {
        Context* context = nullptr;
        if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
        SharedMemory shared;  // named by its device's address, maybe
        if (find_shared(value_of(memory), shared)) memory = handle_of<void*>(shared.host);
        PinnedRange range;
        if (!flags || !find_pinned(memory, 1, range)) return CUDA_ERROR_INVALID_VALUE;
        // Addresses are unified, so it is every context's, and mapped for all that the program can tell.
        *flags = range.flags | CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* memory, unsigned int flags) {
    return guarded("cuMemHostGetDevicePointer", [&]() -> CUresult {
        if (!out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        Context* context = nullptr;
        if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
        uint64_t device = 0;
        auto result = find_elsewhere(*context, value_of(memory), device);
        if (result == CUDA_SUCCESS) *out = device;
        return result;
    });
}

}  // extern "C"
