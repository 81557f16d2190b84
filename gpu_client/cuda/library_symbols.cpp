// See library_symbols.hpp.
#include "gpu_client/cuda/library_symbols.hpp"

#include "gpu_client/cuda/address_ranges.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/shared_pages.hpp"

namespace tnr::cuda {

// Each more takes the memory of one more copy for a moment. Modules need pages of their own here, of which the driver fills one
// with eight: this is enough for some 70 modules with managed variables.
static constexpr int places_tried_max = 512;

// CUDA_ERROR_ALREADY_MAPPED where the program has something at the address, which the driver has chosen.
static CUresult share_block(Context& context, LoadedCode& code, uint64_t block, uint64_t bytes) {
    SharedMemory shared;
    if (find_shared(block, shared)) return CUDA_SUCCESS;  // for a neighbour
    if (!hold_pages(block, bytes)) return CUDA_ERROR_ALREADY_MAPPED;
    auto result = share_memory(context, {SharedKind::variable, block, block, bytes, 0});
    if (result != CUDA_SUCCESS) return result;
    LockGuard lock(code.mutex);
    code.managed.push_back(block);
    return CUDA_SUCCESS;
}

// A module's is its own, current or not.
static CUresult context_for_global(const Library& library, Context*& context) {
    if (library.context == 0) return current_context(context);
    context = contexts().find(library.context);
    return usable(context);
}

// The runtime asks before it has made a context current. The first device's is then kept for good.
static CUresult context_for_managed(const Library& library, Context*& context) {
    if (library.context != 0) return context_for_global(library, context);
    if (current_context_handle() != 0) return current_context(context);
    CUcontext primary = nullptr;
    if (auto result = cuDevicePrimaryCtxRetain(&primary, 0); result != CUDA_SUCCESS) return result;
    context = find_context(primary);
    return usable(context);
}

static CUresult ask_for_managed(const Library& library, Context& context, const char* name,
                                wire::GetManaged<>::Reply& reply) {
    RemoteCall call(wire::GetManaged<>{library.number, name});
    call.in_context(&context);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    return call.take(reply);
}

// Until the driver has put the variables where this program has nothing.
static CUresult find_place(Library& library, Context& context, const char* name, wire::GetManaged<>::Reply& found) {
    std::vector<uint64_t> left;
    auto result = CUDA_ERROR_ALREADY_MAPPED;
    for (int tries = 0; result == CUDA_ERROR_ALREADY_MAPPED && tries < places_tried_max; ++tries) {
        if (tries > 0 && load_elsewhere(library, left) != CUDA_SUCCESS) break;
        result = ask_for_managed(library, context, name, found);
        if (result == CUDA_SUCCESS) result = share_block(context, *library.code.load(), found.block, found.block_bytes);
    }
    unload_copies(library, left);
    return result;
}

CUresult get_managed(Library& library, const char* name, uint64_t& address, uint64_t& bytes) {
    Context* context = nullptr;
    if (auto result = context_for_managed(library, context); result != CUDA_SUCCESS) return result;
    if (auto result = ensure_loaded(library); result != CUDA_SUCCESS) return result;
    auto& code = *library.code.load();
    TakenTurn turn(code.sending);
    wire::GetManaged<>::Reply found;
    auto result = find_place(library, *context, name, found);
    if (result == CUDA_ERROR_ALREADY_MAPPED)
        log_once(LogLevel::warning,
                 "a managed variable lies on the GPU where this program has something else: it cannot be used; another "
                 "run may have more luck");
    if (result != CUDA_SUCCESS) return result;
    keep_in_place(code);
    address = found.address;
    bytes = found.bytes;
    note_symbol(address, bytes, context->handle, library.number);
    return CUDA_SUCCESS;
}

static CUresult ask_for_global(Library& library, Context& context, const char* name, uint64_t& address,
                               uint64_t& bytes) {
    keep_in_place(*library.code.load());
    RemoteCall call(wire::GetGlobal<>{library.number, name});
    call.in_context(&context);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::GetGlobal<>::Reply reply;
    if (auto result = call.take(reply); result != CUDA_SUCCESS) return result;
    address = reply.address;
    bytes = reply.bytes;
    note_symbol(address, bytes, context.handle, library.number);
    return CUDA_SUCCESS;
}

CUresult get_global(Library& library, const char* name, uint64_t& address, uint64_t& bytes) {
    if (auto result = ensure_loaded(library); result != CUDA_SUCCESS) return result;
    Context* context = nullptr;
    if (auto result = context_for_global(library, context); result != CUDA_SUCCESS) return result;
    auto& code = *library.code.load();
    auto key = std::to_string(context->number) + ' ' + name;  // a library's globals differ from context to context
    {
        LockGuard lock(code.mutex);
        if (auto found = code.globals.find(key); found != code.globals.end()) {
            std::tie(address, bytes) = found->second;
            return CUDA_SUCCESS;
        }
    }
    // Runtimes before CUDA 13 ask so for managed variables, too, which the program must find there.
    auto result = get_managed(library, name, address, bytes);
    if (result == CUDA_ERROR_NOT_FOUND) result = ask_for_global(library, *context, name, address, bytes);
    if (result != CUDA_SUCCESS) return result;
    LockGuard lock(code.mutex);
    code.globals[key] = {address, bytes};
    return CUDA_SUCCESS;
}

}  // namespace tnr::cuda
