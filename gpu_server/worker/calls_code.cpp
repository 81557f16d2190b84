// Code images: received in pieces, loaded once, described to the client in one answer.
#include <optional>

#include "cuda_calls.hpp"
#include "gpu_client/protocol/bundle.hpp"
#include "gpu_client/protocol/custom_calls.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/jit_options.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

// Parameters of one kernel; 32764 bytes hold no more single bytes than that, and real kernels have under 100.
static constexpr size_t parameters_max = 4096;

static void describe_parameters(wire::Writer& out, wire::Bytes& bytes, CUkernel kernel) {
    auto count_at = bytes.size();
    uint32_t count = 0;
    out.put(count);
    size_t offset = 0, size = 0;
    while (count < parameters_max && driver().cuKernelGetParamInfo(kernel, count, &offset, &size) == CUDA_SUCCESS) {
        out.put(static_cast<uint32_t>(offset));
        out.put(static_cast<uint32_t>(size));
        ++count;
    }
    std::memcpy(bytes.data() + count_at, &count, sizeof count);
}

static void describe_kernel(wire::Bytes& bytes, CUkernel kernel, CUdevice device) {
    wire::Writer out(bytes);
    const char* name = "";
    driver().cuKernelGetName(&name, kernel);
    out.put_string(name);
    describe_parameters(out, bytes, kernel);
    out.put(wire::function_attributes);
    for (uint32_t id = 0; id < wire::function_attributes; ++id) {
        int value = 0;
        driver().cuKernelGetAttribute(&value, static_cast<CUfunction_attribute>(id), kernel, device);
        out.put(static_cast<int32_t>(value));
    }
}

// As many op_kernels_described records as the limit of a record asks for.
static void describe_library(WorkerSession& session, const Library& library, uint64_t call_number, CUdevice device) {
    wire::Bytes kernels;
    uint32_t count = 0;
    auto tell = [&] {
        wire::Bytes payload;
        wire::Writer writer(payload);
        writer.put(call_number);
        writer.put(count);
        writer.put_raw(kernels.data(), kernels.size());
        session.outbox.tell(wire::op_kernels_described, payload);
        kernels.clear();
        count = 0;
    };
    for (auto& kernel : library.kernels) {
        describe_kernel(kernels, kernel.handle, device);
        ++count;
        if (kernels.size() > wire::record_bytes_max / 2) tell();
    }
    if (count > 0) tell();
}

struct LibraryOptions {
    std::vector<CUlibraryOption> ids;
    std::vector<void*> values;

    void read(Decoder& in) {
        auto count = in.get<uint32_t>();
        for (uint32_t i = 0; i < count && i < CU_LIBRARY_NUM_OPTIONS; ++i) {
            ids.push_back(static_cast<CUlibraryOption>(in.get<uint32_t>()));
            values.push_back(reinterpret_cast<void*>(in.get<uint64_t>()));
        }
    }
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

// Some context, while this lives: kernels can only be described in one, and a program that loads a library may not have
// one yet.
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
    uint64_t call_number = 0;
    uint64_t library = 0;
    uint64_t image_bytes = 0;
    LibraryOptions options;
    JitOptions compiler;
};

static CUresult load_image(WorkerSession& session, LoadRequest& request, const CodeImage& image, wire::Bytes& outputs) {
    JitLogs logs;
    logs.ask_for(request.compiler);
    Library library;
    AnyContext context(session.devices.front().handle);
    auto result = load(library, image.bytes(), request.options, request.compiler);
    if (result == CUDA_SUCCESS) {
        CUdevice device = 0;
        driver().cuCtxGetDevice(&device);
        describe_library(session, library, request.call_number, device);
    }
    wire::Writer out(outputs);
    out.put(static_cast<uint32_t>(library.kernels.size()));
    logs.write(out);
    if (result == CUDA_SUCCESS && !session.handles.libraries.add(request.library, std::move(library)))
        return CUDA_ERROR_INVALID_VALUE;
    return result;
}

// The server is asked for the image, and what it gives is read through once: not on the dispatcher's thread.
static Answer load_offered(WorkerSession& session, Call& call, LoadRequest request) {
    auto offer = session.images.offer(request.library);
    return session.run_aside(call, [&session, offer, request](wire::Bytes& outputs) mutable {
        auto image = offer->wait(session.supervisor);
        if (!image) return static_cast<CUresult>(wire::image_is_unknown);
        session.images.forget(request.library);
        return load_image(session, request, *image, outputs);
    });
}

static Answer load_library(WorkerSession& session, Call& call) {
    LoadRequest request;
    request.call_number = call.number;
    request.library = call.in.get<uint64_t>();
    request.image_bytes = call.in.get<uint64_t>();
    request.options.read(call.in);
    request.compiler.read(call.in);
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (session.images.only_offered(request.library, request.image_bytes))
        return load_offered(session, call, std::move(request));
    auto offer = session.images.offer(request.library);
    auto image = session.images.take(request.library, request.image_bytes);
    if (!image) return CUDA_ERROR_INVALID_IMAGE;
    auto result = load_image(session, request, *image, call.outputs);
    // For the next program that offers it. Code that a driver does not take is not worth keeping.
    if (offer && result == CUDA_SUCCESS) session.supervisor.keep_image(offer->hash(), image->size(), image->file());
    return result;
}

static Answer unload_library(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto* library = session.handles.libraries.find(number);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    auto handle = library->handle;
    session.handles.libraries.remove(number);
    return session.run_aside(call, [handle] { return driver().cuLibraryUnload(handle); });
}

static Answer get_global(WorkerSession&, Call& call) {
    auto library = call.in.library();
    std::string name(call.in.string());
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    CUdeviceptr address = 0;
    size_t length = 0;
    auto result = driver().cuLibraryGetGlobal(&address, &length, library, name.c_str());
    wire::Writer out(call.outputs);
    out.put(static_cast<uint64_t>(address));
    out.put(static_cast<uint64_t>(length));
    return result;
}

void add_code_calls(std::vector<Handler>& table) {
    table[wire::op_cuLibraryLoadData] = load_library;
    table[wire::op_cuLibraryUnload] = unload_library;
    table[wire::op_cuLibraryGetGlobal] = get_global;
}

}  // namespace tnr::worker
