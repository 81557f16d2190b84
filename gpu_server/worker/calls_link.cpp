// cuLink…: the driver here links what the client sends, and the result travels back in pieces.
#include "cuda_calls.hpp"
#include "gpu_client/protocol/custom_calls.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/jit_options.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

struct Link {
    CUlinkState state = nullptr;
    JitOptions options;
    JitLogs logs;
    std::span<const std::byte> image;  // the driver's, once complete
};

static Answer create_link(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto link = std::make_shared<Link>();
    auto& options = link->options;
    options.read(call.in);
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    link->logs.ask_for(options);
    auto result = driver().cuLinkCreate_v2(options.count(), options.ids.data(), options.values.data(), &link->state);
    if (result != CUDA_SUCCESS || session.handles.links.add(number, link)) return result;
    driver().cuLinkDestroy(link->state);
    return CUDA_ERROR_INVALID_VALUE;
}

static Answer add_to_link(WorkerSession& session, Call& call) {
    auto* link = session.handles.links.find(call.in.get<uint64_t>());
    auto number = call.in.get<uint64_t>();
    auto total = call.in.get<uint64_t>();
    auto type = static_cast<CUjitInputType>(call.in.get<uint32_t>());
    std::string name(call.in.string());
    JitOptions options;
    options.read(call.in);
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    auto image = session.images.take(number, total);
    if (!link) return CUDA_ERROR_INVALID_HANDLE;
    if (!image) return CUDA_ERROR_INVALID_VALUE;
    auto bytes = image->bytes();
    auto size = bytes.size();
    if (type == CU_JIT_INPUT_PTX && bytes.back() != std::byte{0}) ++size;  // the driver wants the NUL counted
    auto* data = const_cast<std::byte*>(bytes.data());                     // the call's signature; it does not write
    auto result = driver().cuLinkAddData_v2((*link)->state, type, data, size, name.c_str(), options.count(),
                                            options.ids.data(), options.values.data());
    wire::Writer out(call.outputs);
    (*link)->logs.write(out);
    return result;
}

static Answer complete_link(WorkerSession& session, Call& call) {
    auto* found = session.handles.links.find(call.in.get<uint64_t>());
    auto offset = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    auto& link = **found;
    auto result = CUDA_SUCCESS;
    if (link.image.empty()) {
        void* image = nullptr;
        size_t size = 0;
        result = driver().cuLinkComplete(link.state, &image, &size);
        if (result == CUDA_SUCCESS) link.image = {static_cast<const std::byte*>(image), size};
    }
    auto piece = link.image.subspan(std::min<uint64_t>(offset, link.image.size()));
    piece = piece.first(std::min(piece.size(), wire::linked_piece_bytes_max));
    wire::Writer out(call.outputs);
    out.put(uint64_t{link.image.size()});
    out.put(static_cast<uint32_t>(piece.size()));
    out.put_raw(piece.data(), piece.size());
    link.logs.write(out);
    return result;
}

static Answer destroy_link(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto* link = session.handles.links.find(number);
    if (!link) return CUDA_ERROR_INVALID_HANDLE;
    auto state = (*link)->state;
    auto result = driver().cuLinkDestroy(state);  // the driver writes logs until here
    session.handles.links.remove(number);
    return result;
}

void add_link_calls(std::vector<Handler>& table) {
    table[wire::op_cuLinkCreate_v2] = create_link;
    table[wire::op_cuLinkAddData_v2] = add_to_link;
    table[wire::op_cuLinkComplete] = complete_link;
    table[wire::op_cuLinkDestroy] = destroy_link;
}

}  // namespace tnr::worker
