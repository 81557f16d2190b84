// Sending code to the worker and keeping what it tells of it.
#include "gpu_client/cuda/libraries.hpp"

#include <deque>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/protocol/custom_calls.hpp"
#include "gpu_client/protocol/image_hash.hpp"

namespace tnr::cuda {

// Code that was unloaded stays in memory until this many later ones are unloaded, too: another thread may still be
// looking at it (the program's bug, but no reason to crash).
static constexpr size_t unloaded_kept = 64;

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

// Names the image, so that it need not travel if the worker has it.
static CUresult offer_image(uint64_t number, const Image& image, Context* context) {
    RemoteCall call(wire::op_image_offer, wire::CallWay::async_);
    call.in_context(context);
    call.put(number);
    call.put(uint64_t{image.size()});
    call.put(wire::hash_of_image(image.parts()));
    return call.send();
}

CUresult send_image(uint64_t number, const Image& image, Context* context) {
    for (size_t offset = 0; offset < image.size(); offset += wire::piece_bytes_max) {
        size_t length = std::min(image.size() - offset, wire::piece_bytes_max);
        zmq::message_t piece(length);
        image.copy(offset, length, piece.data());
        RemoteCall call(wire::op_image_piece, wire::CallWay::async_);
        call.in_context(context);
        call.put(number);
        call.put(uint64_t{offset});
        call.put(uint64_t{image.size()});
        if (auto result = call.send(&piece); result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

static bool read_kernel(wire::Reader& in, KernelInfo& kernel) {
    kernel.name = in.string();
    auto parameters = in.get<uint32_t>();
    if (parameters > in.left()) return false;
    for (uint32_t i = 0; i < parameters; ++i) {
        Parameter parameter{in.get<uint32_t>(), in.get<uint32_t>()};
        bool sound = parameter.offset <= wire::parameter_bytes_max && parameter.size <= wire::parameter_bytes_max;
        if (!sound) return false;
        kernel.parameter_bytes = std::max(kernel.parameter_bytes, parameter.offset + parameter.size);
        kernel.parameters.push_back(parameter);
    }
    auto attributes = in.get<uint32_t>();
    if (attributes > wire::function_attributes) return false;
    for (uint32_t i = 0; i < attributes; ++i) kernel.attributes[i] = in.get<int32_t>();
    kernel.attribute_count = attributes;
    return in.ok();
}

static bool read_kernels(LoadedCode& code, const std::vector<wire::Bytes>& described) {
    for (auto& payload : described) {
        wire::Reader in(payload);
        auto count = in.get<uint32_t>();
        for (uint32_t i = 0; i < count; ++i) {
            auto kernel = std::make_unique<KernelInfo>();
            if (!read_kernel(in, *kernel)) return false;
            code.by_name.emplace(kernel->name, code.kernels.size());
            code.kernels.push_back(std::move(kernel));
        }
        if (!in.finished()) return false;
    }
    return true;
}

void put_options(RemoteCall& call, const Options& options) {
    call.put(static_cast<uint32_t>(options.size()));
    for (auto [id, value] : options) {
        call.put(id);
        call.put(value);
    }
}

// Of the image that was offered or sent before.
static CUresult ask_to_load(Library& library, LoadedCode& code, Context* context) {
    RemoteCall call(wire::op_cuLibraryLoadData, wire::CallWay::sync);
    call.in_context(context);
    call.put(library.number);
    call.put(uint64_t{code.image.size()});
    put_options(call, code.options.library);
    put_options(call, code.options.compiler);
    auto result = call.send();
    auto kernels = call.answer().get<uint32_t>();
    code.errors = call.answer().string();
    code.information = call.answer().string();
    if (result != CUDA_SUCCESS) return result;
    if (!call.answer().finished() || !read_kernels(code, call.pending().described) || code.kernels.size() != kernels)
        return CUDA_ERROR_UNKNOWN;
    return CUDA_SUCCESS;
}

// A large image is offered first: the load goes out right behind, so a worker that has it costs no round trip more.
static CUresult load(Library& library, LoadedCode& code) {
    Context* context = contexts().find(library.context != 0 ? library.context : current_context_handle());
    if (context && !context->active) context = nullptr;
    constexpr auto unknown = static_cast<CUresult>(wire::image_is_unknown);
    auto result = unknown;
    if (code.image.size() >= wire::offered_image_bytes_min) {
        if (auto sent = offer_image(library.number, code.image, context); sent != CUDA_SUCCESS) return sent;
        result = ask_to_load(library, code, context);
    }
    if (result == unknown) {
        if (auto sent = send_image(library.number, code.image, context); sent != CUDA_SUCCESS) return sent;
        result = ask_to_load(library, code, context);
    }
    if (result == CUDA_SUCCESS) return result;
    log(LogLevel::info, "loading code failed with error %d", static_cast<int>(result));
    // Programs forget to look, and few ask for the compiler's log; those who do get it.
    if (!code.options.log_wanted && !code.errors.empty())
        log_once(LogLevel::warning, "code does not load: " + code.errors);
    return result;
}

CUresult ensure_loaded(Library& library) {
    auto* code = library.code.load();
    if (code->loaded.load(std::memory_order_acquire)) return code->failed;
    TakenTurn turn(code->sending);
    if (code->loaded) return code->failed;
    code->failed = load(library, *code);
    code->image = {};
    code->loaded.store(true, std::memory_order_release);
    return code->failed;
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

// Everything but telling the worker.
static bool forget_library(uint64_t handle, Library& library, bool& was_loaded) {
    auto* code = library.code.load();
    uint64_t number = library.number;
    if (!libraries().destroy(handle)) return false;
    was_loaded = code->loaded && code->failed == CUDA_SUCCESS;
    for (auto& kernel : code->kernels)
        if (uint64_t function = kernel->handle) functions().destroy(function);
    forget_symbols(number);
    bury(code);
    return true;
}

CUresult unload_library(uint64_t handle) {
    auto* library = libraries().find(handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    auto* context = contexts().find(library->context != 0 ? library->context : current_context_handle());
    uint64_t number = library->number;
    bool was_loaded = false;
    if (!forget_library(handle, *library, was_loaded)) return CUDA_ERROR_INVALID_HANDLE;
    if (!was_loaded) return CUDA_SUCCESS;
    RemoteCall call(wire::op_cuLibraryUnload, wire::CallWay::async_);
    call.in_context(context && context->active ? context : nullptr);
    call.put(number);
    return call.send();
}

void forget_modules_of(uint64_t context_handle) {
    libraries().each([&](Library& library, uint64_t handle) {
        if (library.context == context_handle) (void)unload_library(handle);
    });
}

CUresult kernel_handle(Library& library, size_t index, uint64_t& handle) {
    auto& code = *library.code.load();
    auto& kernel = *code.kernels[index];
    handle = kernel.handle;
    if (handle != 0) return CUDA_SUCCESS;
    LockGuard lock(code.mutex);
    if (kernel.handle == 0) {
        kernel.handle = functions().create([&](Function& function, uint64_t, uint64_t value) {
            function.number = wire::function_number(library.number, index);
            function.handle = value;
            function.library = library.handle;
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

CUresult get_global(Library& library, const char* name, uint64_t& address, uint64_t& bytes) {
    if (auto result = ensure_loaded(library); result != CUDA_SUCCESS) return result;
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    auto& code = *library.code.load();
    auto key = std::to_string(context->number) + ' ' + name;  // a library's globals differ from context to context
    {
        LockGuard lock(code.mutex);
        if (auto found = code.globals.find(key); found != code.globals.end()) {
            std::tie(address, bytes) = found->second;
            return CUDA_SUCCESS;
        }
    }
    RemoteCall call(wire::op_cuLibraryGetGlobal, wire::CallWay::sync);
    call.put(library.number);
    call.put_string(name);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    address = call.answer().get<uint64_t>();
    bytes = call.answer().get<uint64_t>();
    if (auto result = call.finished(); result != CUDA_SUCCESS) return result;
    note_symbol(address, bytes, context->handle, library.number);
    LockGuard lock(code.mutex);
    code.globals[key] = {address, bytes};
    return CUDA_SUCCESS;
}

}  // namespace tnr::cuda
