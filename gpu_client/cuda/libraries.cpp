// Sending code to the worker and keeping what it says about it.
#include "gpu_client/cuda/libraries.hpp"

#include <deque>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/device_memory.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/shared_pages.hpp"

namespace tnr::cuda {

// Code that was unloaded stays in memory until this many later ones are unloaded, too: another thread may still be
// looking at it (the program's bug, but no reason to crash).
static constexpr size_t unloaded_kept = 64;

// A module borrows the program's memory only until it is loaded; so much of it is copied to be kept.
static constexpr size_t kept_image_bytes_max = size_t{1} << 20;

uint64_t next_library_number() {
    static std::atomic<uint64_t> last{0};
    return ++last;  // never reused, so that cached answers about its kernels cannot be mistaken
}

CUresult create_library(Image image, LoadOptions options, uint64_t context, Library*& library) {
    auto code = std::make_unique<LoadedCode>();
    code->image = std::move(image);
    code->options = std::move(options);
    libraries().create([&](Library& made, uint64_t, uint64_t handle) {
        made.number = next_library_number();
        made.handle = handle;
        made.context = context;
        made.of_runtime = false;
        made.code = code.release();
        library = &made;
    });
    return CUDA_SUCCESS;
}

// In which context records about the code travel; null: in none.
static Context* context_of(const Library& library) {
    auto* context = contexts().find(library.context != 0 ? library.context : current_context_handle());
    return context && context->active ? context : nullptr;
}

// Names the image, so that it need not travel if the worker has it.
static CUresult offer_image(uint64_t number, LoadedCode& code, Context* context) {
    if (code.image.size() != 0) code.offer = {0, code.image.size(), wire::hash_of_image(code.image.parts())};
    code.offer.image = number;
    RemoteCall call(code.offer);
    call.in_context(context);
    return call.send();
}

CUresult send_image(uint64_t number, const Image& image, Context* context) {
    for (size_t offset = 0; offset < image.size(); offset += wire::piece_bytes_max) {
        size_t length = std::min(image.size() - offset, wire::piece_bytes_max);
        zmq::message_t piece(length);
        image.copy(offset, length, piece.data());
        RemoteCall call(wire::ImagePiece{number, offset, image.size()});
        call.in_context(context);
        if (auto result = call.send(&piece); result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

static bool take_kernel(const wire::KernelDescription& described, KernelInfo& kernel) {
    kernel.name = described.name;
    for (auto [offset, size] : described.parameters) {
        if (offset > wire::parameter_bytes_max || size > wire::parameter_bytes_max) return false;
        kernel.parameter_bytes = std::max(kernel.parameter_bytes, offset + size);
        kernel.parameters.push_back({offset, size});
    }
    for (auto value : described.attributes) kernel.attributes[kernel.attribute_count++] = value;
    return true;
}

static bool take_kernels(LoadedCode& code, const std::vector<wire::Bytes>& payloads) {
    for (auto& payload : payloads) {
        wire::Reader in(payload);
        wire::KernelsDescribed described;
        if (!wire::read(in, described)) return false;
        for (auto& description : described.kernels) {
            auto kernel = std::make_unique<KernelInfo>();
            if (!take_kernel(description, *kernel)) return false;
            code.by_name.emplace(kernel->name, code.kernels.size());
            code.kernels.push_back(std::move(kernel));
        }
    }
    return true;
}

// Loads the image that was offered or sent before.
static CUresult ask_to_load(uint64_t number, LoadedCode& code, Context* context) {
    const uint64_t bytes = code.image.size() != 0 ? code.image.size() : code.offer.total;
    RemoteCall call(wire::LoadLibrary{number, bytes, code.options.library, code.options.compiler});
    call.in_context(context);
    call.leave_async_errors();  // what was wrong with another call would stay this code's failure
    auto result = call.send();
    wire::LoadLibrary::Reply reply;
    bool sound = call.read(reply);
    code.errors = reply.logs.errors;
    code.information = reply.logs.information;
    if (result != CUDA_SUCCESS) return result;
    sound = sound && take_kernels(code, call.pending().described) && code.kernels.size() == reply.kernels;
    return sound ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

// A large image is offered first. The load follows at once, so if the worker has the image that costs no extra round
// trip.
static CUresult hand_over(Context* context, uint64_t number, LoadedCode& code) {
    constexpr auto unknown = static_cast<CUresult>(wire::image_is_unknown);
    auto result = unknown;
    if (code.image.size() >= wire::offered_image_bytes_min || code.offer.total != 0) {
        if (auto sent = offer_image(number, code, context); sent != CUDA_SUCCESS) return sent;
        result = ask_to_load(number, code, context);
    }
    if (result == unknown && code.image.size() != 0) {
        if (auto sent = send_image(number, code.image, context); sent != CUDA_SUCCESS) return sent;
        result = ask_to_load(number, code, context);
    }
    return result;
}

static CUresult load(Context* context, uint64_t number, LoadedCode& code) {
    auto result = hand_over(context, number, code);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        // What is missing for its variables may be what this process was granted and does not use.
        for (auto* device : devices())
            if (device->memory && device->session) device->memory->give_up_idle(device->description.memory_bytes);
        result = hand_over(context, number, code);
    }
    if (result == CUDA_SUCCESS) return result;
    log(LogLevel::info, "loading code failed with error %d", static_cast<int>(result));
    if (!code.options.log_wanted && !code.errors.empty()) explain_once("code does not load: " + code.errors);
    return result;
}

// For load_elsewhere(): its bytes, or no more than its name.
static void keep_image(const Library& library, LoadedCode& code) {
    bool lasts = library.context == 0 || code.image.borrowed.empty();
    bool wanted = code.failed == CUDA_SUCCESS && (lasts || code.image.size() <= kept_image_bytes_max);
    if (!wanted)
        code.image = {};
    else if (!lasts)
        code.image.own();
}

CUresult ensure_loaded(Library& library) {
    auto* code = library.code.load();
    if (code->loaded.load(std::memory_order_acquire)) return code->failed;
    TakenTurn turn(code->sending);
    if (code->loaded) return code->failed;
    auto result = load(context_of(library), library.number, *code);
    // A program may make room and use the library again; a module is gone with the call that could not load it.
    if (result == CUDA_ERROR_OUT_OF_MEMORY && library.context == 0) return result;
    code->failed = result;
    keep_image(library, *code);
    code->loaded.store(true, std::memory_order_release);
    return code->failed;
}

static CUresult unload_number(Context* context, uint64_t number) {
    RemoteCall call(wire::UnloadLibrary<>{number});
    call.in_context(context);
    return call.send();
}

void keep_in_place(LoadedCode& code) {
    LockGuard lock(code.mutex);
    code.used = true;
    code.image = {};
    code.offer = {};
}

CUresult load_elsewhere(Library& library, std::vector<uint64_t>& left) {
    auto& code = *library.code.load();
    LoadedCode copy;
    {
        LockGuard lock(code.mutex);
        if (code.used || (code.image.size() == 0 && code.offer.total == 0)) return CUDA_ERROR_ALREADY_MAPPED;
        copy.image = code.image;
        copy.offer = code.offer;
    }
    copy.options = code.options;
    uint64_t number = next_library_number();
    if (auto result = load(context_of(library), number, copy); result != CUDA_SUCCESS) return result;
    LockGuard lock(code.mutex);
    if (!code.used) std::swap(library.number, number);
    left.push_back(number);
    return code.used ? CUDA_ERROR_ALREADY_MAPPED : CUDA_SUCCESS;
}

void unload_copies(const Library& library, const std::vector<uint64_t>& left) {
    for (auto number : left) (void)unload_number(context_of(library), number);
}

static void bury(LoadedCode* code) {
    struct Graves {
        Mutex mutex;
        std::deque<std::unique_ptr<LoadedCode>> codes TNR_GUARDED_BY(mutex);
    };
    static auto& graves = *new Graves;
    LockGuard lock(graves.mutex);
    graves.codes.emplace_back(code);
    if (graves.codes.size() > unloaded_kept) graves.codes.pop_front();
}

// Forgets the library here; the caller tells the worker.
static bool forget_library(uint64_t handle, Library& library, bool& was_loaded) {
    auto* code = library.code.load();
    uint64_t number = library.number;
    if (!libraries().destroy(handle)) return false;
    was_loaded = code->loaded && code->failed == CUDA_SUCCESS;
    for (auto& kernel : code->kernels)
        if (uint64_t function = kernel->handle) functions().destroy(function);
    std::vector<uint64_t> managed;
    {
        LockGuard lock(code->mutex);
        managed.swap(code->managed);
    }
    for (auto block : managed) (void)unshare_memory(block, false);
    forget_symbols(number);
    bury(code);
    return true;
}

CUresult unload_library(uint64_t handle) {
    auto* library = libraries().find(handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    auto* context = context_of(*library);
    uint64_t number = library->number;
    bool was_loaded = false;
    if (!forget_library(handle, *library, was_loaded)) return CUDA_ERROR_INVALID_HANDLE;
    return was_loaded ? unload_number(context, number) : CUDA_SUCCESS;
}

// A library stays, but in a context that has ended it has no variables any more: after a reset they are made again, and
// what was shared of them must be so anew.
static void forget_globals_in(uint64_t context_number, LoadedCode& code) {
    const auto prefix = std::to_string(context_number) + ' ';
    LockGuard lock(code.mutex);
    std::erase_if(code.globals, [&](const auto& entry) { return entry.first.starts_with(prefix); });
    std::erase_if(code.managed, [](uint64_t block) {
        SharedMemory shared;
        return !find_shared(block, shared);
    });
}

void forget_modules_of(const Context& context) {
    libraries().each([&](Library& library, uint64_t handle) {
        if (library.context == context.handle)
            (void)unload_library(handle);
        else if (library.context == 0)
            forget_globals_in(context.number, *library.code.load());
    });
}

CUresult kernel_handle(Library& library, size_t index, uint64_t& handle) {
    auto& code = *library.code.load();
    auto& kernel = *code.kernels[index];
    handle = kernel.handle;
    if (handle != 0) return CUDA_SUCCESS;
    LockGuard lock(code.mutex);
    if (kernel.handle == 0) {
        code.used = true;
        code.image = {};
        kernel.handle = functions().create([&](Function& function, uint64_t, uint64_t value) {
            function.number = wire::function_number(library.number, index);
            function.handle = value;
            function.library = library.handle;
            function.context = library.context;
            function.info = &kernel;
        });
    }
    handle = kernel.handle;
    return CUDA_SUCCESS;
}

CUresult get_kernel(Library& library, const char* name, uint64_t& handle) {
    if (auto result = ensure_loaded(library); result != CUDA_SUCCESS) return result;
    auto& code = *library.code.load();
    auto found = code.by_name.find(std::string_view(name));
    if (found == code.by_name.end()) return CUDA_ERROR_NOT_FOUND;
    return kernel_handle(library, found->second, handle);
}

}  // namespace tnr::cuda
