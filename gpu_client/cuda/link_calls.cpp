// cuLink…: the worker's driver links, the result comes back. Programs that link compile anyway, so every call waits.
#include "api_client/base/turn.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/images.hpp"
#include "gpu_client/cuda/jit_options.hpp"
#include "gpu_client/cuda/libraries.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/thread_state.hpp"
#include "gpu_client/protocol/limits.hpp"

using namespace tnr;
using namespace tnr::cuda;

namespace {

struct LinkState {
    explicit LinkState(const JitArguments& jit) : logs(jit) {}

    Turn turn;
    uint64_t number = 0;   // as `context`: fixed once the link has its handle
    uint64_t context = 0;  // handle
    // The driver, too, writes them whenever it has something to say.
    JitLogs logs TNR_GUARDED_BY(turn);
    // Once complete; the program reads it until it destroys the link.
    wire::Bytes image TNR_GUARDED_BY(turn);
};

struct Link {
    std::atomic<LinkState*> state{nullptr};
};
using Links = HandleRegistry<Link, HandleKind::link>;
Links& links() {
    static auto* all = new Links;
    return *all;
}

// Null when no such link lives.
LinkState* find_link(CUlinkState handle) {
    auto* link = links().find(value_of(handle));
    return link ? link->state.load() : nullptr;
}

CUresult create_link(const JitArguments& jit, CUlinkState* out) {
    if (!out || !jit.sound()) return CUDA_ERROR_INVALID_VALUE;
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    auto state = std::make_unique<LinkState>(jit);
    state->number = next_library_number();
    state->context = context->handle;
    RemoteCall call(wire::CreateLink{state->number, plain_jit_options(jit)});
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    auto handle = links().create([&](Link& link, uint64_t, uint64_t) { link.state = state.release(); });
    *out = handle_of<CUlinkState>(handle);
    return CUDA_SUCCESS;
}

CUresult add_to_link(CUlinkState handle, CUjitInputType type, const Image& data, const char* name,
                     const JitArguments& jit) {
    if (!jit.sound()) return CUDA_ERROR_INVALID_VALUE;
    auto* link = find_link(handle);
    if (!link) return CUDA_ERROR_INVALID_HANDLE;
    TakenTurn turn(link->turn);
    link->logs.begin_call();
    if (!link->image.empty() || data.size() == 0 || data.size() > wire::image_bytes_max)
        return CUDA_ERROR_INVALID_VALUE;
    auto* context = contexts().find(link->context);
    auto number = next_library_number();
    if (auto result = send_image(number, data, context); result != CUDA_SUCCESS) return result;
    RemoteCall call(wire::AddToLink{link->number, number, data.size(), static_cast<uint32_t>(type), name ? name : "",
                                    plain_jit_options(jit)});
    call.in_context(context);
    auto result = call.send();
    wire::AddToLink::Reply logs;
    (void)call.read(logs);  // where there are none, nothing was said
    link->logs.write(logs);
    return result;
}

CUresult add_file_to_link(CUlinkState handle, CUjitInputType type, const char* path, const JitArguments& jit) {
    wire::Bytes bytes;
    if (auto result = read_file(path, bytes); result != CUDA_SUCCESS) return result;
    return add_to_link(handle, type, Image(std::move(bytes)), path, jit);
}

// One piece of the linked image; `total` is known afterwards.
CUresult fetch_linked_piece(LinkState& link, wire::Bytes& image, uint64_t& total) TNR_REQUIRES(link.turn) {
    RemoteCall call(wire::CompleteLink<>{link.number, image.size()});
    call.in_context(contexts().find(link.context));
    auto result = call.send();
    wire::CompleteLink<>::Reply reply;
    bool sound = call.read(reply);
    link.logs.write(reply.logs);
    if (result != CUDA_SUCCESS) return result;
    total = reply.total;
    image.insert(image.end(), reply.piece.begin(), reply.piece.end());
    sound = sound && !reply.piece.empty() && total <= wire::image_bytes_max && image.size() <= total;
    return sound ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult complete_link(LinkState& link) TNR_REQUIRES(link.turn) {
    link.logs.begin_call();
    wire::Bytes image;
    uint64_t total = 0;
    do {
        if (auto result = fetch_linked_piece(link, image, total); result != CUDA_SUCCESS) return result;
    } while (image.size() < total);
    link.image = std::move(image);
    return CUDA_SUCCESS;
}

CUresult destroy_link(CUlinkState handle) {
    auto* link = links().find(value_of(handle));
    if (!link) return CUDA_ERROR_INVALID_HANDLE;
    std::unique_ptr<LinkState> state(link->state.load());
    if (!links().destroy(value_of(handle))) return state.release(), CUDA_ERROR_INVALID_HANDLE;
    RemoteCall call(wire::DestroyLink<>{state->number});
    call.in_context(contexts().find(state->context));
    return call.send();
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuLinkCreate_v2(unsigned int count, CUjit_option* options, void** values, CUlinkState* out) {
    return guarded("cuLinkCreate", [&] { return create_link({count, options, values}, out); });
}

CUresult CUDAAPI cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void* data, size_t size, const char* name,
                                  unsigned int count, CUjit_option* options, void** values) {
    return guarded("cuLinkAddData", [&]() -> CUresult {
        if (!data) return CUDA_ERROR_INVALID_VALUE;
        Image image;
        image.borrowed = {static_cast<const std::byte*>(data), size};
        return add_to_link(handle, type, image, name, {count, options, values});
    });
}

CUresult CUDAAPI cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char* path, unsigned int count,
                                  CUjit_option* options, void** values) {
    return guarded("cuLinkAddFile", [&] { return add_file_to_link(handle, type, path, {count, options, values}); });
}

CUresult CUDAAPI cuLinkComplete(CUlinkState handle, void** image, size_t* size) {
    return guarded("cuLinkComplete", [&]() -> CUresult {
        auto* link = find_link(handle);
        if (!link) return CUDA_ERROR_INVALID_HANDLE;
        if (!image) return CUDA_ERROR_INVALID_VALUE;
        TakenTurn turn(link->turn);
        if (link->image.empty())
            if (auto result = complete_link(*link); result != CUDA_SUCCESS) return result;
        *image = link->image.data();
        if (size) *size = link->image.size();
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuLinkDestroy(CUlinkState handle) {
    return guarded("cuLinkDestroy", [&] { return destroy_link(handle); });
}

CUresult CUDAAPI cuLinkCreate(unsigned int count, CUjit_option* options, void** values, CUlinkState* out) {
    return cuLinkCreate_v2(count, options, values, out);
}
CUresult CUDAAPI cuLinkAddData(CUlinkState handle, CUjitInputType type, void* data, size_t size, const char* name,
                               unsigned int count, CUjit_option* options, void** values) {
    return cuLinkAddData_v2(handle, type, data, size, name, count, options, values);
}
CUresult CUDAAPI cuLinkAddFile(CUlinkState handle, CUjitInputType type, const char* path, unsigned int count,
                               CUjit_option* options, void** values) {
    return cuLinkAddFile_v2(handle, type, path, count, options, values);
}

}  // extern "C"
