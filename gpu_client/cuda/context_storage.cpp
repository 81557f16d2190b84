// See context_storage.hpp.
#include "gpu_client/cuda/context_storage.hpp"

#include <atomic>
#include <map>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/thread_state.hpp"

namespace tnr::cuda {

namespace {
struct Entry {
    void* value;
    StorageDestructor destructor;
};
struct Storage {
    Mutex mutex;
    std::map<std::pair<uint64_t, void*>, Entry> entries TNR_GUARDED_BY(mutex);
    std::atomic<uint64_t> generation{1};  // any change makes all threads' remembered answers stale
};
Storage& storage() {
    static auto* one = new Storage;
    return *one;
}
}  // namespace

static uint64_t resolve(CUcontext context) {
    uint64_t value = value_of(context);
    return value == 0 || value == ~uint64_t{0} ? current_context_handle() : context_behind(value);
}

CUresult storage_put(CUcontext context, void* key, void* value, StorageDestructor destructor) {
    uint64_t handle = resolve(context);
    if (handle == 0 || !contexts().find(handle)) return CUDA_ERROR_INVALID_CONTEXT;
    LockGuard lock(storage().mutex);
    if (!storage().entries.try_emplace({handle, key}, Entry{value, destructor}).second)
        return CUDA_ERROR_INVALID_HANDLE;
    storage().generation++;
    return CUDA_SUCCESS;
}

CUresult storage_delete(CUcontext context, void* key) {
    LockGuard lock(storage().mutex);
    if (storage().entries.erase({resolve(context), key}) == 0) return CUDA_ERROR_INVALID_HANDLE;
    storage().generation++;
    return CUDA_SUCCESS;
}

CUresult storage_get(void** value, CUcontext context, void* key) {
    uint64_t handle = resolve(context);
    if (handle == 0) return CUDA_ERROR_INVALID_CONTEXT;
    auto& cache = thread_state().storage_cache;
    uint64_t generation = storage().generation.load(std::memory_order_acquire);
    if (cache.generation == generation && cache.context == handle && cache.key == key) {
        *value = cache.value;
        return CUDA_SUCCESS;
    }
    LockGuard lock(storage().mutex);
    auto found = storage().entries.find({handle, key});
    if (found == storage().entries.end()) return CUDA_ERROR_INVALID_HANDLE;
    *value = found->second.value;
    cache = {storage().generation.load(), handle, key, *value};
    return CUDA_SUCCESS;
}

void storage_context_ends(uint64_t context_handle) {
    std::vector<std::pair<void*, Entry>> ended;
    {
        LockGuard lock(storage().mutex);
        auto& entries = storage().entries;
        auto first = entries.lower_bound({context_handle, nullptr}), last = first;
        for (; last != entries.end() && last->first.first == context_handle; ++last)
            ended.emplace_back(last->first.second, last->second);
        entries.erase(first, last);
        storage().generation++;
    }
    for (auto& [key, entry] : ended)  // without the lock: they may call us
        if (entry.destructor) entry.destructor(handle_of<CUcontext>(context_handle), key, entry.value);
}

}  // namespace tnr::cuda
