// Code images: received in pieces, loaded once, described to the client in one answer.
#include <optional>

#include "gpu_client/protocol/bundle.hpp"
#include "gpu_client/protocol/fatbin.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/image_variables.hpp"
#include "gpu_server/worker/jit_options.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static wire::KernelDescription describe_kernel(CUkernel kernel, CUdevice device) {
    wire::KernelDescription description;
    const char* name = "";
    driver().cuKernelGetName(&name, kernel);
    description.name = name;
    size_t offset = 0, size = 0;
    auto& parameters = description.parameters;
    while (parameters.size() < wire::kernel_parameters_max &&
           driver().cuKernelGetParamInfo(kernel, parameters.size(), &offset, &size) == CUDA_SUCCESS)
        parameters.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(size)});
    for (uint32_t id = 0; id < wire::function_attributes; ++id) {
        int value = 0;
        driver().cuKernelGetAttribute(&value, static_cast<CUfunction_attribute>(id), kernel, device);
        description.attributes.push_back(value);
    }
    return description;
}

// Describes the kernels, in as many KernelsDescribed as the limit of a record requires.
static void describe_library(WorkerSession& session, const Library& library, uint64_t call_number, CUdevice device) {
    wire::KernelsDescribed described{call_number, {}};
    size_t bytes = 0;
    auto tell = [&] {
        session.outbox.tell(described);
        described.kernels.clear();
        bytes = 0;
    };
    for (auto& kernel : library.kernels) {
        auto& description = described.kernels.emplace_back(describe_kernel(kernel.handle, device));
        bytes += wire::payload_of(description).size();
        if (bytes > wire::record_bytes_max / 2) tell();
    }
    if (!described.kernels.empty()) tell();
}

struct LibraryOptions {
    explicit LibraryOptions(const wire::LibraryOptions& given) {
        for (auto& option : given) {
            ids.push_back(static_cast<CUlibraryOption>(option.number));
            values.push_back(reinterpret_cast<void*>(option.value));
        }
    }
    std::vector<CUlibraryOption> ids;
    std::vector<void*> values;
    unsigned count() const { return static_cast<unsigned>(ids.size()); }
};

static CUresult load(Library& library, std::span<const std::byte> image, LibraryOptions& options,
                     JitOptions& compiler) {
    const void* code = image.data();
    std::optional<fatbin::Unbundled> unbundled;
    if (fatbin::is_bundle(image)) {
        auto found = fatbin::Unbundled::from(image);
        if (!found) return CUDA_ERROR_INVALID_IMAGE;
        code = unbundled.emplace(std::move(*found)).wrapper();
    }
    auto result =
        driver().cuLibraryLoadData(&library.handle, code, compiler.ids.data(), compiler.values.data(), compiler.count(),
                                   options.ids.data(), options.values.data(), options.count());
    if (result != CUDA_SUCCESS) return result;

    unsigned count = 0;
    result = driver().cuLibraryGetKernelCount(&count, library.handle);
    std::vector<CUkernel> kernels(count);
    if (result == CUDA_SUCCESS && count > 0)
        result = driver().cuLibraryEnumerateKernels(kernels.data(), count, library.handle);
    for (auto kernel : kernels) library.kernels.push_back({kernel, {}});
    return result;
}

// While this lives, some context is current: kernels can only be described in one, and a program that loads a library
// may not have one yet.
class AnyContext {
public:
    explicit AnyContext(CUdevice device) : device_(device) {
        CUcontext context = nullptr;
        driver().cuCtxGetCurrent(&context);
        if (context || driver().cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return;
        retained_ = true;
        driver().cuCtxSetCurrent(context);
    }
    ~AnyContext() {
        if (!retained_) return;
        driver().cuCtxSetCurrent(nullptr);
        driver().cuDevicePrimaryCtxRelease_v2(device_);
    }
    AnyContext(const AnyContext&) = delete;
    AnyContext& operator=(const AnyContext&) = delete;

private:
    CUdevice device_;
    bool retained_ = false;
};

// What a client asks for.
struct LoadRequest {
    explicit LoadRequest(const Call& call, const wire::LoadLibrary& record)
        : call_number(call.number), library(record.library), options(record.options), compiler(record.compiler) {}
    uint64_t call_number;
    uint64_t library;
    LibraryOptions options;
    JitOptions compiler;
};

// Whatever the number stood for is the client's mistake; what was loaded under it must not stay behind.
static CUresult enter_library(WorkerSession& session, uint64_t number, Library library) {
    auto handle = library.handle;
    if (session.handles.libraries.add(number, std::move(library))) return CUDA_SUCCESS;
    (void)driver().cuLibraryUnload(handle);
    return CUDA_ERROR_INVALID_VALUE;
}

// A driver that loads code when it is first used looks at a text no earlier than that (NVIDIA's: not even its logs are
// wanted before). The program is to hear at once, and of everything that may have been written in the logs' memory.
static CUresult compile_now(Library& library, std::span<const std::byte> image, JitOptions& compiler) {
    if (fatbin::image_kind(image) != fatbin::Image::ptx || !driver().cuLibraryGetKernel) return CUDA_SUCCESS;
    CUkernel none = nullptr;
    auto result = driver().cuLibraryGetKernel(&none, library.handle, "nothing");
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_FOUND) return CUDA_SUCCESS;
    CUmodule module = nullptr;
    // Once more, for the logs.
    auto told = driver().cuModuleLoadDataEx(&module, image.data(), compiler.count(), compiler.ids.data(),
                                            compiler.values.data());
    if (told == CUDA_SUCCESS) (void)driver().cuModuleUnload(module);
    (void)driver().cuLibraryUnload(library.handle);
    library = {};
    return told != CUDA_SUCCESS ? told : result;
}

static CUresult load_charged(WorkerSession& session, LoadRequest& request, const CodeImage& image,
                             wire::Bytes& outputs) {
    JitLogs logs;
    logs.ask_for(request.compiler);
    Library library;
    AnyContext context(session.devices.front().handle);
    auto result = load(library, image.bytes(), request.options, request.compiler);
    if (result == CUDA_SUCCESS) result = compile_now(library, image.bytes(), request.compiler);
    if (result == CUDA_SUCCESS) {
        CUdevice device = 0;
        driver().cuCtxGetDevice(&device);
        describe_library(session, library, request.call_number, device);
    }
    outputs = wire::payload_of(wire::LoadLibrary::Reply{static_cast<uint32_t>(library.kernels.size()), logs.said()});
    return result == CUDA_SUCCESS ? enter_library(session, request.library, std::move(library)) : result;
}

// An image whose variables cannot be counted is rejected by every driver; one that is not must not go uncharged.
static CUresult load_uncounted(WorkerSession& session, LoadRequest& request, const CodeImage& image,
                               wire::Bytes& outputs) {
    auto result = load_charged(session, request, image, outputs);
    if (result != CUDA_SUCCESS) return result;
    (void)driver().cuLibraryUnload(session.handles.libraries.find(request.library)->handle);
    session.handles.libraries.remove(request.library);
    outputs = wire::payload_of(wire::LoadLibrary::Reply{0, {"the size of a variable cannot be told", ""}});
    return CUDA_ERROR_NOT_SUPPORTED;
}

// May wait for the supervisor, unless CodeMemory has room for the variables.
static CUresult load_image(WorkerSession& session, LoadRequest& request, const CodeImage& image,
                           std::optional<uint64_t> variables, wire::Bytes& outputs) {
    if (session.handles.libraries.find(request.library)) return CUDA_ERROR_INVALID_VALUE;
    if (!variables) return load_uncounted(session, request, image, outputs);
    if (!session.code_memory.load(request.library, *variables)) return CUDA_ERROR_OUT_OF_MEMORY;
    auto result = load_charged(session, request, image, outputs);
    if (result != CUDA_SUCCESS) session.code_memory.unload(request.library);
    return result;
}

// Not on the dispatcher's thread: the supervisor has to answer, and the image is read through once to check its hash.
static Answer load_offered(WorkerSession& session, Call& call, LoadRequest request) {
    auto offer = session.images.offer(request.library);
    return session.run_aside(call, [&session, offer, request](wire::Bytes& outputs) mutable {
        auto image = offer->wait(session.supervisor);
        if (!image) return static_cast<CUresult>(wire::image_is_unknown);
        session.images.forget(request.library);
        return load_image(session, request, *image, variable_bytes(image->bytes()), outputs);
    });
}

// For the next program that offers it. Code that a driver rejects is not worth keeping.
static CUresult load_received(WorkerSession& session, LoadRequest& request, const CodeImage& image,
                              std::optional<uint64_t> variables, const std::shared_ptr<ImageOffer>& offer,
                              wire::Bytes& outputs) {
    auto result = load_image(session, request, image, variables, outputs);
    if (offer && result == CUDA_SUCCESS) session.supervisor.keep_image(offer->hash(), image.size(), image.file());
    return result;
}

// Aside where the driver may wait for a function of the client's, which may need the dispatcher before it ends.
static Answer load_library(WorkerSession& session, Call& call, const wire::LoadLibrary& record) {
    LoadRequest request(call, record);
    if (session.images.only_offered(record.library, record.image_bytes))
        return load_offered(session, call, std::move(request));
    auto offer = session.images.offer(record.library);
    auto image = session.images.take(record.library, record.image_bytes);
    if (!image) return CUDA_ERROR_INVALID_IMAGE;
    auto variables = variable_bytes(image->bytes());
    if (session.code_memory.has_room_to_load(variables.value_or(0)) && !session.understudy.may_step_in())
        return load_received(session, request, *image, variables, offer, call.outputs);
    auto kept = std::make_shared<CodeImage>(std::move(*image));
    return session.run_aside(call, [&session, request, kept, variables, offer](wire::Bytes& outputs) mutable {
        return load_received(session, request, *kept, variables, offer, outputs);
    });
}

static Answer unload_library(WorkerSession& session, Call& call, const wire::UnloadLibrary<Resolved>& library) {
    session.handles.libraries.remove(library.named.number);
    return session.run_aside(call, [&session, library = library.named] {
        auto result = driver().cuLibraryUnload(library.handle);
        session.code_memory.unload(library.number);
        return result;
    });
}

static Answer get_global(WorkerSession&, Call& call, const wire::GetGlobal<Resolved>& wanted) {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    auto result =
        driver().cuLibraryGetGlobal(&address, &bytes, wanted.library.handle, std::string(wanted.name).c_str());
    call.reply(wire::GetGlobal<>::Reply{address, bytes});
    return result;
}

static Answer get_managed(WorkerSession&, Call& call, const wire::GetManaged<Resolved>& wanted) {
    if (!driver().cuLibraryGetManaged) return CUDA_ERROR_NOT_FOUND;
    CUdeviceptr address = 0, block = 0;
    size_t bytes = 0, block_bytes = 0;
    auto result =
        driver().cuLibraryGetManaged(&address, &bytes, wanted.library.handle, std::string(wanted.name).c_str());
    if (result == CUDA_SUCCESS) result = driver().cuMemGetAddressRange_v2(&block, &block_bytes, address);
    call.reply(wire::GetManaged<>::Reply{address, bytes, block, block_bytes});
    return result;
}

void add_code_calls(HandlerTable& table) {
    table.add<load_library>();
    table.add<unload_library>();
    table.add<get_global>();
    table.add<get_managed>();
}

}  // namespace tnr::worker
