// cuLink…: the driver here links what the client sends, and the result travels back in pieces.
#include "cuda_calls.hpp"
#include "gpu_client/protocol/custom_calls.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

// What the driver has to say about one link; longer logs are cut by the driver.
static constexpr size_t link_log_bytes_max = 8192;

// Options of the driver's compiler: the client's, of which only numbers travel.
struct JitOptions {
    std::vector<CUjit_option> ids;
    std::vector<void*> values;

    void add(CUjit_option id, void* value) {
        ids.push_back(id);
        values.push_back(value);
    }
    void read(Decoder& in) {
        auto count = in.get<uint32_t>();
        if (count > wire::jit_options_max) return in.refuse(CUDA_ERROR_INVALID_VALUE);
        for (uint32_t i = 0; i < count; ++i) {
            auto id = in.get<uint32_t>();
            auto value = in.get<uint64_t>();
            if (wire::is_plain_jit_option(id)) add(static_cast<CUjit_option>(id), reinterpret_cast<void*>(value));
        }
    }
    unsigned count() const { return static_cast<unsigned>(ids.size()); }
};

struct Link {
    CUlinkState state = nullptr;
    JitOptions options;
    std::string errors = std::string(link_log_bytes_max, '\0'), information = std::string(link_log_bytes_max, '\0');
    std::span<const std::byte> image;  // the driver's, once complete

    void write_logs(wire::Writer& out) const {
        out.put_string(errors.c_str());
        out.put_string(information.c_str());
    }
};

static Answer create_link(Session& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto link = std::make_shared<Link>();
    auto& options = link->options;
    options.read(call.in);
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    options.add(CU_JIT_ERROR_LOG_BUFFER, link->errors.data());
    options.add(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, reinterpret_cast<void*>(link_log_bytes_max));
    options.add(CU_JIT_INFO_LOG_BUFFER, link->information.data());
    options.add(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, reinterpret_cast<void*>(link_log_bytes_max));
    auto result = driver().cuLinkCreate_v2(options.count(), options.ids.data(), options.values.data(), &link->state);
    if (result != CUDA_SUCCESS || session.handles.links.add(number, link)) return result;
    driver().cuLinkDestroy(link->state);
    return CUDA_ERROR_INVALID_VALUE;
}

static Answer add_to_link(Session& session, Call& call) {
    auto* link = session.handles.links.find(call.in.get<uint64_t>());
    auto number = call.in.get<uint64_t>();
    auto total = call.in.get<uint64_t>();
    auto type = static_cast<CUjitInputType>(call.in.get<uint32_t>());
    std::string name(call.in.string());
    JitOptions options;
    options.read(call.in);
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    auto image = std::move(session.images[number]);
    session.images.erase(number);
    if (!link) return CUDA_ERROR_INVALID_HANDLE;
    if (image.empty() || image.size() != total) return CUDA_ERROR_INVALID_VALUE;
    auto size = image.size();
    if (type == CU_JIT_INPUT_PTX && image.back() != std::byte{0}) ++size;  // the driver wants the NUL counted
    image.resize(size + 16);
    auto result = driver().cuLinkAddData_v2((*link)->state, type, image.data(), size, name.c_str(), options.count(),
                                            options.ids.data(), options.values.data());
    wire::Writer out(call.outputs);
    (*link)->write_logs(out);
    return result;
}

static Answer complete_link(Session& session, Call& call) {
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
    link.write_logs(out);
    return result;
}

static Answer destroy_link(Session& session, Call& call) {
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
