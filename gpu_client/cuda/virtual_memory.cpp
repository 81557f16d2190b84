// See virtual_memory.hpp.
#include "gpu_client/cuda/virtual_memory.hpp"

#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/protocol/multicast_records.hpp"

namespace tnr::cuda {

Physicals& physicals() {
    static auto* all = new Physicals;
    return *all;
}
Mappings& mappings() {
    static auto* all = new Mappings;
    return *all;
}

CUresult send_changes(const Freed& freed) {
    CUresult result = CUDA_SUCCESS;
    for (auto* device : devices())
        if (auto sent = device->memory->sends().flush(); result == CUDA_SUCCESS) result = sent;
    for (auto& [device, bytes] : freed) find_device(device)->memory->return_grant(bytes);
    return result;
}

Device* reserving_device() {
    auto* context = contexts().find(current_context_handle());
    return find_device(context ? context->device : 0);
}

Physical* find_held(uint64_t handle) {
    auto* physical = physicals().find(handle);
    return physical && physical->held > 0 ? physical : nullptr;
}

void release_if_unused(uint64_t handle, Physical& physical, Freed& freed) {
    if (physical.held > 0 || physical.used > 0) return;
    find_device(physical.device)->memory->sends().put(wire::ReleaseAllocation<>{physical.number});
    freed.emplace_back(physical.device, physical.charged);
    auto bindings = std::move(physical.bindings);
    physicals().destroy(handle);
    for (auto& binding : bindings) unuse(binding.memory, freed);
}

void unuse(uint64_t handle, Freed& freed) {
    auto* physical = physicals().find(handle);
    --physical->used;
    release_if_unused(handle, *physical, freed);
}

void drop_tiles(std::vector<std::shared_ptr<const uint64_t>>& memory, Freed& freed) {
    for (auto& handle : memory) {
        if (handle.use_count() == 1) unuse(*handle, freed);
        handle.reset();
    }
    memory.clear();
}

void forget_bindings(Physical& object, int device, uint64_t offset, uint64_t bytes, Freed& freed) {
    std::erase_if(object.bindings, [&](const Binding& binding) TNR_REQUIRES(mappings().mutex) {
        bool inside = binding.device == device && binding.offset >= offset && binding.bytes <= bytes &&
                      binding.offset - offset <= bytes - binding.bytes;
        if (inside) unuse(binding.memory, freed);
        return inside;
    });
}

const std::pair<const uint64_t, Mapping>* find_mapping(uint64_t address) {
    auto after = mappings().by_address.upper_bound(address);
    if (after == mappings().by_address.begin()) return nullptr;
    auto& found = *std::prev(after);
    return address - found.first < found.second.bytes ? &found : nullptr;
}

Run mappings_from(uint64_t address, uint64_t bytes) {
    auto& all = mappings().by_address;
    auto found = all.find(address);
    Run run{found, found};
    while (run.last != all.end() && run.last->first == address + run.covered && run.covered < bytes &&
           !run.last->second.waits)
        run.covered += (run.last++)->second.bytes;
    return run;
}

bool may_be_mapped(uint64_t address, uint64_t bytes) {
    auto after = mappings().reserved.upper_bound(address);
    if (after == mappings().reserved.begin()) return false;
    auto& [start, length] = *std::prev(after);
    if (address - start > length || bytes > length - (address - start)) return false;
    auto next = mappings().by_address.lower_bound(address);
    bool overlaps = next != mappings().by_address.end() && next->first < address + bytes;
    return !overlaps && !find_mapping(address);
}

static uint64_t open_to(const Mapping& mapping) {
    uint64_t devices = 0;
    for (auto& [ordinal, flags] : mapping.access) devices |= uint64_t{1} << ordinal;
    if (mapping.of_host) devices |= uint64_t{1} << mapping.device;
    return devices;
}

void note_access(uint64_t address, const Mapping& mapping) {
    auto& memory = *device_of_address(address)->memory;
    memory.forget_mapping(address, mapping.bytes);
    if (open_to(mapping) == 0 || mapping.multicast) return;
    auto* context = contexts().find(current_context_handle());
    auto* owner = find_device(mapping.device);
    bool ours = context && context->device == mapping.device;
    memory.note_mapping(address, mapping.bytes, ours ? context->handle : owner->primary_context, open_to(mapping));
}

// The session's device of that number.
static Device* device_numbered(const ClientSession* session, uint32_t number) {
    for (auto* device : devices())
        if (device->session.load() == session && device->number == number) return device;
    return nullptr;
}

CUresult lend_allocation(CUmemGenericAllocationHandle handle, Lent& lent) {
    uint64_t number = 0;
    Device* device = nullptr;
    {
        LockGuard lock(mappings().mutex);
        auto* physical = find_held(handle);
        if (!physical) return CUDA_ERROR_INVALID_VALUE;
        if (!(physical->properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
            return CUDA_ERROR_INVALID_VALUE;
        number = physical->number;
        device = find_device(physical->device);
        lent.multicast = physical->multicast;
        lent.bytes = physical->bytes;
    }
    RemoteCall call(wire::LendAllocation<>{number});
    call.on(*device);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::LendAllocation<>::Reply reply;
    auto result = call.take(reply);
    lent.name = reply.name;
    return result;
}

// Nobody's until its facts are known.
static uint64_t make_unknown(Physical*& made) {
    return physicals().create([&](Physical& physical, uint64_t index, uint64_t) {
        physical = {};
        physical.number = index + 1;
        physical.held = 0;
        made = &physical;
    });
}

CUresult borrow_allocation(const wire::ThingName& name, CUmemGenericAllocationHandle& handle, uint64_t& bytes) {
    auto& here = *reserving_device();
    if (auto result = open_session(here); result != CUDA_SUCCESS) return result;
    Physical* made = nullptr;
    handle = make_unknown(made);
    RemoteCall call(wire::BorrowMemory{made->number, name});
    call.on(here);
    wire::BorrowMemory::Reply reply;
    auto result = call.send();
    if (result == CUDA_SUCCESS) result = call.take(reply);
    if (result != CUDA_SUCCESS) {
        physicals().destroy(handle);
        return result;
    }
    // Memory of a GPU that CUDA_VISIBLE_DEVICES hides counts as memory of one that the program sees.
    auto* device = device_numbered(here.session.load(), reply.device);
    if (!device) device = &here;
    LockGuard lock(mappings().mutex);
    made->bytes = bytes = reply.bytes;
    made->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made->device = device->ordinal;
    made->properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal};
    made->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    made->held = 1;
    return CUDA_SUCCESS;
}

CUresult borrow_multicast(const wire::ThingName& name, uint64_t bytes, CUmemGenericAllocationHandle& handle) {
    auto& here = *reserving_device();
    if (auto result = open_session(here); result != CUDA_SUCCESS) return result;
    Physical* made = nullptr;
    handle = make_unknown(made);
    RemoteCall call(wire::BorrowMulticast{made->number, name});
    call.on(here);
    if (auto result = call.send(); result != CUDA_SUCCESS) {
        physicals().destroy(handle);
        return result;
    }
    LockGuard lock(mappings().mutex);
    made->multicast = true;
    made->bytes = bytes;  // a false one is the worker's driver's to refuse
    made->device = here.ordinal;
    made->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    made->held = 1;
    return CUDA_SUCCESS;
}

}  // namespace tnr::cuda
