// cuLink…: the driver here links what the client sends, and the result travels back in pieces.
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

static Answer create_link(WorkerSession& session, Call&, const wire::CreateLink& wanted) {
    if (auto room = session.handles.links.room_for(wanted.link); room != CUDA_SUCCESS) return room;
    auto link = std::make_shared<Link>();
    auto& options = link->options = JitOptions(wanted.compiler);
    link->logs.ask_for(options);
    auto result = driver().cuLinkCreate_v2(options.count(), options.ids.data(), options.values.data(), &link->state);
    if (result == CUDA_SUCCESS) session.handles.links.add(wanted.link, link);
    return result;
}

static Answer add_to_link(WorkerSession& session, Call& call, const wire::AddToLink& record) {
    auto image = session.images.take(record.image, record.total);
    auto* link = session.handles.links.find(record.link);
    if (!link) return CUDA_ERROR_INVALID_HANDLE;
    if (!image) return CUDA_ERROR_INVALID_VALUE;
    JitOptions options(record.compiler);
    std::string name(record.name);
    auto type = static_cast<CUjitInputType>(record.type);
    auto bytes = image->bytes();
    auto size = bytes.size();
    if (type == CU_JIT_INPUT_PTX && bytes.back() != std::byte{0}) ++size;  // the driver wants the NUL counted
    auto* data = const_cast<std::byte*>(bytes.data());                     // the call's signature; it does not write
    auto result = driver().cuLinkAddData_v2((*link)->state, type, data, size, name.c_str(), options.count(),
                                            options.ids.data(), options.values.data());
    call.reply((*link)->logs.said());
    return result;
}

static Answer complete_link(WorkerSession&, Call& call, const wire::CompleteLink<Resolved>& record) {
    auto& link = *record.link.object;
    auto result = CUDA_SUCCESS;
    if (link.image.empty()) {
        void* image = nullptr;
        size_t size = 0;
        result = driver().cuLinkComplete(link.state, &image, &size);
        if (result == CUDA_SUCCESS) link.image = {static_cast<const std::byte*>(image), size};
    }
    auto piece = link.image.subspan(std::min<uint64_t>(record.offset, link.image.size()));
    piece = piece.first(std::min(piece.size(), wire::linked_piece_bytes_max));
    call.reply(wire::CompleteLink<>::Reply{link.image.size(), piece, link.logs.said()});
    return result;
}

static Answer destroy_link(WorkerSession& session, Call&, const wire::DestroyLink<Resolved>& link) {
    auto result = driver().cuLinkDestroy(link.named.object->state);  // the driver writes logs until here
    session.handles.links.remove(link.named.number);
    return result;
}

void add_link_calls(HandlerTable& table) {
    table.add<create_link>();
    table.add<add_to_link>();
    table.add<complete_link>();
    table.add<destroy_link>();
}

}  // namespace tnr::worker
