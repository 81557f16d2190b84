// See handles_for_others.hpp.
#include "gpu_client/cuda/handles_for_others.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <set>

#include "api_client/base/handles.hpp"
#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/shared_pages.hpp"
#include "gpu_client/cuda/virtual_memory.hpp"

namespace tnr::cuda {

namespace {

// Shown here, of another process. The same name may be shown once for each of its parts.
struct Opened {
    wire::ThingName name{};
    uint64_t base = 0, bytes = 0;  // as mapped
    CUmemGenericAllocationHandle memory = 0;
    int times = 1;
    bool from_pool = false;
    uint64_t context = 0;  // that opened it
};
struct Things {
    Mutex mutex;
    std::set<wire::ThingName> lent TNR_GUARDED_BY(mutex);
    std::map<uint64_t, Opened> opened TNR_GUARDED_BY(mutex);  // by the address that the program was given
};
Things& things() {
    static auto* all = new Things;
    return *all;
}

CUresult show(const HandleForOthers& handle, Opened& opened) {
    auto result = borrow_allocation(handle.name, opened.memory, opened.bytes);
    if (result != CUDA_SUCCESS) return result;
    bool inside = handle.offset <= opened.bytes && handle.bytes <= opened.bytes - handle.offset && handle.bytes != 0;
    CUdeviceptr base = 0;
    result = inside ? cuMemAddressReserve(&base, opened.bytes, 0, 0, 0) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) {
        (void)cuMemRelease(opened.memory);
        return result;
    }
    opened.base = base;
    opened.name = handle.name;
    opened.from_pool = handle.kind == HandleForOthers::Kind::pool_memory;
    result = cuMemMap(base, opened.bytes, 0, opened.memory, 0);
    if (result == CUDA_SUCCESS) {
        CUmemAllocationProp properties{};
        (void)cuMemGetAllocationPropertiesFromHandle(&properties, opened.memory);
        auto* here = contexts().find(current_context_handle());
        CUmemAccessDesc access[2] = {{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                     {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
        access[1].location.id = here->device;  // a kernel there may reach it, where there is a way
        result = cuMemSetAccess(base, opened.bytes, access, here->device == properties.location.id ? 1 : 2);
        if (result == CUDA_SUCCESS) return result;
        (void)cuMemUnmap(base, opened.bytes);
    }
    (void)cuMemRelease(opened.memory);
    (void)cuMemAddressFree(base, opened.bytes);
    return result;
}

}  // namespace

int to_descriptor(const HandleForOthers& handle) {
    UniqueFd file(memfd_create("tnr-shareable-handle", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    bool written = file && write(file.get(), &handle, sizeof handle) == sizeof handle &&
                   fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0;
    return written ? file.release() : -1;
}

bool from_descriptor(int descriptor, HandleForOthers& handle) {
    return descriptor >= 0 && pread(descriptor, &handle, sizeof handle, 0) == sizeof handle;
}

CUresult lend_memory(CUdeviceptr address, HandleForOthers::Kind kind, HandleForOthers& handle) {
    Allocation found;
    if (!find_allocation(address, found) || found.mapped_by_program) return CUDA_ERROR_INVALID_VALUE;
    SharedMemory shared;
    const bool of_pool = kind == HandleForOthers::Kind::pool_memory;
    if (find_shared(found.address, shared) || (found.pool != 0) != of_pool) return CUDA_ERROR_INVALID_VALUE;
    auto* device = device_of_address(found.address);
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    RemoteCall call(wire::LendMemory{found.address});
    call.on(*device);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::LendMemory::Reply reply;
    if (auto result = call.take(reply); result != CUDA_SUCCESS) return result;
    handle.kind = kind;
    handle.name = reply.name;
    handle.offset = reply.offset;
    handle.bytes = found.bytes;
    note_lent(reply.name);
    return CUDA_SUCCESS;
}

void note_lent(const wire::ThingName& name) {
    LockGuard lock(things().mutex);
    things().lent.insert(name);
}

bool is_lent_here(const wire::ThingName& name) {
    LockGuard lock(things().mutex);
    return things().lent.contains(name);
}

// Of another context of the same device, which is all that may have it open then.
static bool is_others(const Opened& opened, const Context& context) {
    auto* other = contexts().find(opened.context);
    return !opened.from_pool && other && other != &context && other->active && other->device == context.device;
}

CUresult open_memory(const HandleForOthers& handle, CUdeviceptr& address) {
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    // A pool's memory is taken by the process that has it, too.
    const bool of_pool = handle.is(HandleForOthers::Kind::pool_memory);
    if (!of_pool && is_lent_here(handle.name)) return CUDA_ERROR_INVALID_CONTEXT;
    {
        LockGuard lock(things().mutex);
        for (auto& [at, opened] : things().opened) {
            if (opened.name != handle.name || at != opened.base + handle.offset) continue;
            if (is_others(opened, *context)) return CUDA_ERROR_INVALID_HANDLE;
            if (opened.context != context->handle && !opened.from_pool) continue;
            ++opened.times;
            address = at;
            return CUDA_SUCCESS;
        }
    }
    Opened opened;
    if (auto result = show(handle, opened); result != CUDA_SUCCESS) return result;
    address = opened.base + handle.offset;
    opened.context = context->handle;
    LockGuard lock(things().mutex);
    things().opened.emplace(address, opened);
    return CUDA_SUCCESS;
}

bool is_opened_from_pool(CUdeviceptr address) {
    LockGuard lock(things().mutex);
    auto found = things().opened.find(address);
    return found != things().opened.end() && found->second.from_pool;
}

CUresult close_memory(CUdeviceptr address) {
    Opened last;
    {
        LockGuard lock(things().mutex);
        auto found = things().opened.find(address);
        if (found == things().opened.end()) return CUDA_ERROR_INVALID_VALUE;
        if (--found->second.times > 0) return CUDA_SUCCESS;
        last = found->second;
        things().opened.erase(found);
    }
    (void)cuCtxSynchronize();  // as the driver: nothing of ours still uses it
    (void)cuMemUnmap(last.base, last.bytes);
    (void)cuMemRelease(last.memory);
    return cuMemAddressFree(last.base, last.bytes);
}

}  // namespace tnr::cuda
