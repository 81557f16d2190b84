#include "gpu_server/emulated_gpu/driver/module.hpp"

#include <cstring>

#include "api_client/base/mutex.hpp"
#include "gpu_server/emulated_gpu/driver/memory.hpp"

namespace tnr::emulated {

static bool is_in_module(const Allocation& allocation) {
    return allocation.in_module;
}

ManagedVariables::~ManagedVariables() {
    if (addresses.empty()) return;
    if (auto taken = driver().addresses.take(addresses.front(), is_in_module)) give_back(*taken);
}

// Other modules' may be in the same page, as NVIDIA's driver seems to place them.
CUresult Module::place_managed(Allocation like, ManagedVariables& variables) {
    uint64_t bytes = 0;
    std::vector<uint64_t> offsets;
    for (const ptx::Global& global : code->globals()) {
        if (!global.managed) continue;
        const uint64_t align = std::max<uint64_t>(global.align, 1);
        bytes = (bytes + align - 1) / align * align;
        offsets.push_back(bytes);
        bytes += std::max<uint64_t>(global.size, 1);
    }
    if (offsets.empty()) return CUDA_SUCCESS;
    like.type = MemoryType::managed;
    if (!library.expired()) like.context = nullptr;  // it is there for other contexts, too
    uint64_t block = 0;                              // where the first one is
    if (CUresult error = allocate_device(context.device, bytes, like, block)) return error;
    for (uint64_t offset : offsets) variables.addresses.push_back(block + offset);
    return CUDA_SUCCESS;
}

CUresult Module::place_globals(std::shared_ptr<const ManagedVariables> shared) {
    const auto& globals = code->globals();
    Allocation like;
    like.context = &context;
    like.in_module = true;
    const bool is_first = !shared;
    if (is_first) {
        auto placed = std::make_shared<ManagedVariables>();
        if (CUresult error = place_managed(like, *placed)) return error;
        shared = std::move(placed);
    }
    if (!shared->addresses.empty()) {
        LockGuard lock(mutex_);
        managed_ = shared;
    }
    size_t next_managed = 0;
    for (const ptx::Global& global : globals) {
        if (global.managed) {
            global_addresses.push_back(shared->addresses[next_managed++]);
            continue;
        }
        uint64_t address = 0;
        // A variable without a size (extern) still gets an address of its own.
        if (CUresult error = allocate_device(context.device, std::max<uint64_t>(global.size, 1), like, address))
            return error;
        global_addresses.push_back(address);
    }
    for (size_t i = 0; i < globals.size(); ++i)
        if (is_first || !globals[i].managed)
            code->initialise(i, global_addresses,
                             {static_cast<std::byte*>(pointer(global_addresses[i])), globals[i].size});
    return CUDA_SUCCESS;
}

std::shared_ptr<Function> Module::function(size_t index) {
    if (index >= code->kernels().size()) return nullptr;
    LockGuard lock(mutex_);
    functions_.resize(code->kernels().size());
    auto& function = functions_[index];
    if (function) return function;
    auto owner = library.lock();
    auto settings = owner ? owner->kernels[index]->settings[static_cast<size_t>(context.device.ordinal)]
                          : std::make_shared<FunctionSettings>();
    if (!owner) settings->registers_max = registers_max;
    function = driver().registry.add(
        std::make_shared<Function>(shared_from_this(), code->kernels()[index], std::move(settings)));
    return function;
}

void Module::unload() {
    std::vector<std::shared_ptr<Function>> functions;
    std::shared_ptr<const ManagedVariables> managed;
    {
        LockGuard lock(mutex_);
        functions.swap(functions_);
        managed.swap(managed_);
    }
    for (auto& function : functions)
        if (function) driver().registry.remove(function->handle());
    references.unload();
    for (size_t i = 0; i < global_addresses.size(); ++i) {
        if (code->globals()[i].managed) continue;
        if (auto taken = driver().addresses.take(global_addresses[i], is_in_module)) give_back(*taken);
    }
}

std::shared_ptr<const ManagedVariables> Library::managed() {
    for (auto& [context, module] : instances_)
        if (auto found = module->managed()) return found;
    return nullptr;
}

CUresult Library::instance(Context& context, std::shared_ptr<Module>& module) {
    if (unusable) return unusable;
    LockGuard lock(mutex_);
    auto here = instances_.find(&context);
    if (here == instances_.end() || !find<Module>(here->second->handle())) {  // or gone with a context that was reset
        auto fresh = std::make_shared<Module>(context, code);
        fresh->library = weak_from_this();
        if (CUresult error = fresh->place_globals(managed())) {
            fresh->unload();
            return error;
        }
        here = instances_.insert_or_assign(&context, driver().registry.add(std::move(fresh))).first;
        context.own(here->second->handle());
    }
    module = here->second;
    return CUDA_SUCCESS;
}

void Library::unload() {
    for (auto& kernel : kernels) driver().registry.remove(kernel->handle());
    std::map<Context*, std::shared_ptr<Module>> instances;
    {
        LockGuard lock(mutex_);
        instances.swap(instances_);
    }
    for (auto& [context, module] : instances) {  // without the lock: this waits for the context's work
        if (!driver().registry.remove(module->handle())) continue;
        context->synchronize();
        context->disown(module->handle());
        module->unload();
    }
}

CUresult function_of(Context& context, CUfunction handle, std::shared_ptr<Function>& function) {
    function = find<Function>(handle);
    if (function) return CUDA_SUCCESS;
    auto kernel = find<Kernel>(handle);
    auto library = kernel ? kernel->library.lock() : nullptr;
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    std::shared_ptr<Module> module;
    if (CUresult error = library->instance(context, module)) return error;
    function = module->function(kernel->index);
    return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

namespace {

template <class Items>
size_t index_by_name(const Items& items, const char* name) {
    size_t index = 0;
    while (index < items.size() && items[index].name != name) ++index;
    return index;
}

}  // namespace

size_t kernel_index(const ptx::Module& code, const char* name) {
    return index_by_name(code.kernels(), name);
}
size_t global_index(const ptx::Module& code, const char* name) {
    return index_by_name(code.globals(), name);
}

}  // namespace tnr::emulated
