// Green contexts and what they are made of.
#include <bit>

#include "gpu_client/protocol/green_records.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

uint64_t DeviceResources::number_of(const CUdevResource& resource) {
    auto content = std::bit_cast<Content>(resource);
    if (auto found = numbers_.find(content); found != numbers_.end()) return found->second;
    if (all_.size() >= device_resources_max) return 0;
    all_.push_back(resource);
    return numbers_[content] = all_.size();
}

const CUdevResource* DeviceResources::find(uint64_t number) const {
    return number >= 1 && number <= all_.size() ? &all_[number - 1] : nullptr;
}

// What is left of a split may be nothing.
static CUresult tell(WorkerSession& session, const CUdevResource& resource, wire::DeviceResource& told) {
    if (resource.type == CU_DEV_RESOURCE_TYPE_INVALID) return CUDA_SUCCESS;
    static_assert(sizeof resource._oversize == sizeof told.told);
    told.number = session.handles.device_resources.number_of(resource);
    told.type = resource.type;
    std::memcpy(told.told.data(), resource._oversize, sizeof resource._oversize);
    return told.number != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

template <class Ask>
static Answer ask(WorkerSession& session, Call& call, Ask ask_driver) {
    CUdevResource resource{};
    if (auto result = ask_driver(&resource); result != CUDA_SUCCESS) return result;
    wire::ResourceReply reply;
    auto result = tell(session, resource, reply.resource);
    if (result == CUDA_SUCCESS) call.reply(reply);
    return result;
}

static Answer get_of_device(WorkerSession& session, Call& call, const wire::GetDeviceResource<Resolved>& wanted) {
    if (!driver().cuDeviceGetDevResource) return CUDA_ERROR_NOT_SUPPORTED;
    return ask(session, call, [&](CUdevResource* out) {
        return driver().cuDeviceGetDevResource(wanted.of.object->handle, out,
                                               static_cast<CUdevResourceType>(wanted.type));
    });
}

static Answer get_of_context(WorkerSession& session, Call& call, const wire::GetContextResource<Resolved>& wanted) {
    if (!driver().cuCtxGetDevResource) return CUDA_ERROR_NOT_SUPPORTED;
    return ask(session, call, [&](CUdevResource* out) {
        return driver().cuCtxGetDevResource(wanted.of.handle, out, static_cast<CUdevResourceType>(wanted.type));
    });
}

static Answer get_of_green(WorkerSession& session, Call& call, const wire::GetGreenResource<Resolved>& wanted) {
    if (!driver().cuGreenCtxGetDevResource) return CUDA_ERROR_NOT_SUPPORTED;
    return ask(session, call, [&](CUdevResource* out) {
        return driver().cuGreenCtxGetDevResource(wanted.of.handle, out, static_cast<CUdevResourceType>(wanted.type));
    });
}

static Answer split(WorkerSession& session, Call& call, const wire::SplitResource<Resolved>& wanted) {
    if (!driver().cuDevSmResourceSplitByCount) return CUDA_ERROR_NOT_SUPPORTED;
    auto* input = session.handles.device_resources.find(wanted.input);
    if (!input) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (wanted.groups > wire::resource_groups_max) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUdevResource> groups(wanted.counts ? 0 : wanted.groups);
    if (!wanted.counts && groups.empty()) return CUDA_ERROR_INVALID_VALUE;
    CUdevResource from = *input, remaining{};  // a copy: what is told of groups may move the book's
    unsigned count = wanted.groups;
    auto result =
        driver().cuDevSmResourceSplitByCount(wanted.counts ? nullptr : groups.data(), &count, &from,
                                             wanted.counts ? nullptr : &remaining, wanted.flags, wanted.least);
    if (result != CUDA_SUCCESS) return result;
    wire::SplitResource<>::Reply reply{count, {}, {}};
    if (!wanted.counts) reply.groups.resize(std::min<size_t>(count, groups.size()));
    for (size_t i = 0; i < reply.groups.size() && result == CUDA_SUCCESS; ++i)
        result = tell(session, groups[i], reply.groups[i]);
    if (result == CUDA_SUCCESS) result = tell(session, remaining, reply.remaining);
    if (result == CUDA_SUCCESS) call.reply(reply);
    return result;
}

static Answer describe(WorkerSession& session, Call&, const wire::DescribeResources<Resolved>& wanted) {
    if (!driver().cuDevResourceGenerateDesc) return CUDA_ERROR_NOT_SUPPORTED;
    std::vector<CUdevResource> resources;
    for (uint64_t number : wanted.resources) {
        auto* resource = session.handles.device_resources.find(number);
        if (!resource) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        resources.push_back(*resource);
    }
    auto& descriptions = session.handles.resource_descriptions;
    if (auto room = descriptions.room_for(wanted.description); room != CUDA_SUCCESS) return room;
    CUdevResourceDesc made = nullptr;
    auto result = driver().cuDevResourceGenerateDesc(&made, resources.data(), static_cast<unsigned>(resources.size()));
    if (result == CUDA_SUCCESS) descriptions.add(wanted.description, made);
    return result;
}

static Answer create(WorkerSession& session, Call&, const wire::CreateGreenContext<Resolved>& wanted) {
    if (!driver().cuGreenCtxCreate) return CUDA_ERROR_NOT_SUPPORTED;
    if (auto room = session.handles.green_contexts.room_for(wanted.green); room != CUDA_SUCCESS) return room;
    GreenContext made{nullptr, wanted.device.number};
    auto result =
        driver().cuGreenCtxCreate(&made.handle, wanted.description.handle, wanted.device.object->handle, wanted.flags);
    if (result == CUDA_SUCCESS) session.handles.green_contexts.add(wanted.green, made);
    return result;
}

static Answer destroy(WorkerSession& session, Call& call, const wire::DestroyGreenContext<Resolved>& green) {
    session.handles.green_contexts.remove(green.named.number);
    return session.run_aside(call, [handle = green.named.handle] { return driver().cuGreenCtxDestroy(handle); });
}

static Answer create_green_stream(WorkerSession& session, Call&, const wire::CreateGreenStream<Resolved>& wanted) {
    if (!driver().cuGreenCtxStreamCreate) return CUDA_ERROR_NOT_SUPPORTED;
    if (wanted.stream < wire::first_minted_stream) return CUDA_ERROR_INVALID_VALUE;
    if (auto room = session.handles.streams.room_for(wanted.stream); room != CUDA_SUCCESS) return room;
    Stream stream{nullptr, session.current_number()};
    auto result =
        driver().cuGreenCtxStreamCreate(&stream.handle, wanted.green.handle, CU_STREAM_NON_BLOCKING, wanted.priority);
    session.shared_copies.forget(wanted.stream);
    if (result == CUDA_SUCCESS) session.handles.streams.add(wanted.stream, stream);
    return result;
}

void add_green_context_calls(HandlerTable& table) {
    table.add<get_of_device>();
    table.add<get_of_context>();
    table.add<get_of_green>();
    table.add<split>();
    table.add<describe>();
    table.add<create>();
    table.add<destroy>();
    table.add<create_green_stream>();
}

}  // namespace tnr::worker
