// Texture and surface objects. Their values are the driver's own, as kernels get them.
#include <algorithm>

#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static CUDA_RESOURCE_DESC description_of(const wire::TextureResource<Resolved>& given) {
    CUDA_RESOURCE_DESC resource{};
    auto format = static_cast<CUarray_format>(given.format);
    resource.resType = static_cast<CUresourcetype>(given.type);
    switch (resource.resType) {
        case CU_RESOURCE_TYPE_ARRAY:
            resource.res.array.hArray = given.array.handle;
            break;
        case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
            resource.res.mipmap.hMipmappedArray = given.mipmapped.handle;
            break;
        case CU_RESOURCE_TYPE_LINEAR:
            resource.res.linear = {given.address, format, given.channels, given.width};
            break;
        case CU_RESOURCE_TYPE_PITCH2D:
            resource.res.pitch2D = {given.address, format, given.channels, given.width, given.height, given.pitch};
            break;
    }
    return resource;
}

static CUDA_TEXTURE_DESC description_of(const wire::TextureDescription& given) {
    CUDA_TEXTURE_DESC described{};
    for (size_t axis = 0; axis < 3; ++axis)
        described.addressMode[axis] = static_cast<CUaddress_mode>(given.addressing[axis]);
    described.filterMode = static_cast<CUfilter_mode>(given.filter);
    described.flags = given.flags;
    described.maxAnisotropy = given.anisotropy;
    described.mipmapFilterMode = static_cast<CUfilter_mode>(given.level_filter);
    described.mipmapLevelBias = given.level_bias;
    described.minMipmapLevelClamp = given.level_min;
    described.maxMipmapLevelClamp = given.level_max;
    std::copy(given.border.begin(), given.border.end(), described.borderColor);
    return described;
}

static CUDA_RESOURCE_VIEW_DESC description_of(const wire::TextureView& given) {
    CUDA_RESOURCE_VIEW_DESC view{};
    view.format = static_cast<CUresourceViewFormat>(given.format);
    view.width = given.width;
    view.height = given.height;
    view.depth = given.depth;
    view.firstMipmapLevel = given.first_level;
    view.lastMipmapLevel = given.last_level;
    view.firstLayer = given.first_layer;
    view.lastLayer = given.last_layer;
    return view;
}

// A driver need not look at what it is given: it is given no array but one, and no null.
static bool is_whole(const wire::TextureResource<Resolved>& given) {
    switch (static_cast<CUresourcetype>(given.type)) {
        case CU_RESOURCE_TYPE_ARRAY:
            return given.array.handle != nullptr;
        case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
            return given.mipmapped.handle != nullptr;
        case CU_RESOURCE_TYPE_LINEAR:
        case CU_RESOURCE_TYPE_PITCH2D:
            return true;
    }
    return false;
}

static Answer create_texture(WorkerSession&, Call& call, const wire::CreateTexture<Resolved>& wanted) {
    if (!driver().cuTexObjectCreate) return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_whole(wanted.resource)) return CUDA_ERROR_INVALID_VALUE;
    auto resource = description_of(wanted.resource);
    auto described = description_of(wanted.description);
    auto view = description_of(wanted.view);
    CUtexObject made = 0;
    auto result = driver().cuTexObjectCreate(&made, &resource, &described, wanted.view.given ? &view : nullptr);
    if (result == CUDA_SUCCESS) call.reply(wire::ImageObjectReply{made});
    return result;
}

static Answer create_surface(WorkerSession&, Call& call, const wire::CreateSurface<Resolved>& wanted) {
    if (!driver().cuSurfObjectCreate) return CUDA_ERROR_NOT_SUPPORTED;
    if (!wanted.array.handle) return CUDA_ERROR_INVALID_VALUE;
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = wanted.array.handle;
    CUsurfObject made = 0;
    auto result = driver().cuSurfObjectCreate(&made, &resource);
    if (result == CUDA_SUCCESS) call.reply(wire::ImageObjectReply{made});
    return result;
}

static Answer destroy_texture(WorkerSession&, Call&, const wire::DestroyTexture& wanted) {
    return driver().cuTexObjectDestroy ? driver().cuTexObjectDestroy(wanted.named) : CUDA_ERROR_NOT_SUPPORTED;
}

static Answer destroy_surface(WorkerSession&, Call&, const wire::DestroySurface& wanted) {
    return driver().cuSurfObjectDestroy ? driver().cuSurfObjectDestroy(wanted.named) : CUDA_ERROR_NOT_SUPPORTED;
}

// ---- references ----

// The module that the library is in the current context.
template <class Record, class Get, class References, class Handle>
static CUresult get_reference(const Record& wanted, Get get, References& references, Handle made) {
    if (!get || !driver().cuLibraryGetModule) return CUDA_ERROR_NOT_SUPPORTED;
    CUmodule module = nullptr;
    auto result = driver().cuLibraryGetModule(&module, wanted.library.handle);
    if (result == CUDA_SUCCESS) result = get(&made, module, std::string(wanted.name).c_str());
    if (result != CUDA_SUCCESS) return result;
    bool added = references.add(wanted.reference, {made, wanted.library.number});
    return added ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static Answer get_texture_reference(WorkerSession& session, Call&, const wire::GetTextureReference<Resolved>& wanted) {
    return get_reference(wanted, driver().cuModuleGetTexRef, session.handles.texture_references, CUtexref{});
}

static Answer get_surface_reference(WorkerSession& session, Call&, const wire::GetSurfaceReference<Resolved>& wanted) {
    return get_reference(wanted, driver().cuModuleGetSurfRef, session.handles.surface_references, CUsurfref{});
}

static Answer create_reference(WorkerSession& session, Call&, const wire::CreateTextureReference& wanted) {
    if (!driver().cuTexRefCreate) return CUDA_ERROR_NOT_SUPPORTED;
    auto& references = session.handles.texture_references;
    if (auto room = references.room_for(wanted.named); room != CUDA_SUCCESS) return room;
    CUtexref made = nullptr;
    auto result = driver().cuTexRefCreate(&made);
    if (result == CUDA_SUCCESS) references.add(wanted.named, {made, 0});
    return result;
}

static Answer destroy_reference(WorkerSession& session, Call&, const wire::DestroyTextureReference<Resolved>& wanted) {
    if (!driver().cuTexRefDestroy) return CUDA_ERROR_NOT_SUPPORTED;
    session.handles.texture_references.remove(wanted.named.number);
    return driver().cuTexRefDestroy(wanted.named.handle);
}

static Answer set_address(WorkerSession&, Call& call, const wire::SetReferenceAddress<Resolved>& wanted) {
    if (!driver().cuTexRefSetAddress_v2) return CUDA_ERROR_NOT_SUPPORTED;
    size_t offset = 0;
    auto result = driver().cuTexRefSetAddress_v2(&offset, wanted.reference.handle, wanted.address, wanted.bytes);
    if (result == CUDA_SUCCESS) call.reply(wire::SetReferenceAddress<>::Reply{offset});
    return result;
}

static Answer set_border(WorkerSession&, Call&, const wire::SetReferenceBorder<Resolved>& wanted) {
    if (!driver().cuTexRefSetBorderColor) return CUDA_ERROR_NOT_SUPPORTED;
    auto color = wanted.color;
    return driver().cuTexRefSetBorderColor(wanted.reference.handle, color.data());
}

static Answer get_border(WorkerSession&, Call& call, const wire::GetReferenceBorder<Resolved>& wanted) {
    if (!driver().cuTexRefGetBorderColor) return CUDA_ERROR_NOT_SUPPORTED;
    wire::GetReferenceBorder<>::Reply reply;
    auto result = driver().cuTexRefGetBorderColor(reply.color.data(), wanted.named.handle);
    if (result == CUDA_SUCCESS) call.reply(reply);
    return result;
}

void add_texture_calls(HandlerTable& table) {
    table.add<get_texture_reference>();
    table.add<get_surface_reference>();
    table.add<create_reference>();
    table.add<destroy_reference>();
    table.add<set_address>();
    table.add<set_border>();
    table.add<get_border>();
    table.add<create_texture>();
    table.add<create_surface>();
    table.add<destroy_texture>();
    table.add<destroy_surface>();
}

}  // namespace tnr::worker
