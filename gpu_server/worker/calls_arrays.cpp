// Arrays and mipmapped arrays. The client says what each is charged, which is no less than its texels; the driver alone knows
// what it takes.
#include "gpu_client/protocol/array_charge.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/memory_grants.hpp"

namespace tnr::worker {

// Number 0 means none.
static bool is_number(uint64_t number) {
    return number != 0 && number < wire::first_number_of_worker;
}

// False: no shape that a client of ours asks for.
static bool find_charge(const wire::ArrayShape& shape, unsigned levels, uint64_t& bytes) {
    const auto described = shape.described();
    if (!wire::is_array_shape(described) || !wire::is_known_array(described)) return false;
    bytes = std::max(shape.charged_bytes, wire::array_charge(described, levels));
    return true;
}

static Answer create_array(WorkerSession& session, Call& call, const wire::CreateArray<Resolved>& wanted) {
    if (!driver().cuArray3DCreate_v2 || !driver().cuArrayDestroy) return CUDA_ERROR_NOT_SUPPORTED;
    uint64_t bytes = 0;
    if (!is_number(wanted.array) || !find_charge(wanted.shape, 1, bytes)) return CUDA_ERROR_INVALID_VALUE;
    auto make = [&session, number = wanted.array, described = wanted.shape.described(),
                 device = wanted.device.object->handle,
                 context = session.current_number()](std::shared_ptr<Physical> charged) {
        CUarray made = nullptr;
        auto result = driver().cuArray3DCreate_v2(&made, &described);
        if (result != CUDA_SUCCESS) return result;
        std::shared_ptr<TiledArray> tiled;
        if (wire::is_tiled(described)) result = learn_tiles(made, described, device, tiled);
        if (result == CUDA_SUCCESS &&
            session.handles.arrays.add(number, {made, context, 0, std::move(charged), std::move(tiled)}))
            return CUDA_SUCCESS;
        driver().cuArrayDestroy(made);
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    };
    return with_memory(session, call, wanted.device, bytes, make);
}

static Answer create_mipmapped(WorkerSession& session, Call& call, const wire::CreateMipmappedArray<Resolved>& wanted) {
    if (!driver().cuMipmappedArrayCreate || !driver().cuMipmappedArrayDestroy) return CUDA_ERROR_NOT_SUPPORTED;
    uint64_t bytes = 0;
    if (!is_number(wanted.array) || !find_charge(wanted.shape, wanted.levels, bytes)) return CUDA_ERROR_INVALID_VALUE;
    auto make = [&session, number = wanted.array, described = wanted.shape.described(), levels = wanted.levels,
                 device = wanted.device.object->handle,
                 context = session.current_number()](std::shared_ptr<Physical> charged) {
        CUmipmappedArray made = nullptr;
        auto result = driver().cuMipmappedArrayCreate(&made, &described, levels);
        if (result != CUDA_SUCCESS) return result;
        std::shared_ptr<TiledArray> tiled;
        if (wire::is_tiled(described)) result = learn_tiles(made, described, levels, device, tiled);
        if (result == CUDA_SUCCESS &&
            session.handles.mipmapped_arrays.add(number, {made, context, std::move(charged), std::move(tiled)}))
            return CUDA_SUCCESS;
        driver().cuMipmappedArrayDestroy(made);
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    };
    return with_memory(session, call, wanted.device, bytes, make);
}

// Of another, with which it goes.
static bool is_part(const Array& array) {
    return array.mipmapped != 0 || array.is_plane;
}

static Answer get_level(WorkerSession& session, Call&, const wire::GetArrayLevel<Resolved>& wanted) {
    if (!driver().cuMipmappedArrayGetLevel) return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_number(wanted.array)) return CUDA_ERROR_INVALID_VALUE;
    CUarray level = nullptr;
    auto result = driver().cuMipmappedArrayGetLevel(&level, wanted.of.handle, wanted.level);
    if (result != CUDA_SUCCESS) return result;
    auto context = session.handles.mipmapped_arrays.find(wanted.of.number)->context;
    bool added = session.handles.arrays.add(wanted.array, {level, context, wanted.of.number});
    return added ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static Answer get_plane(WorkerSession& session, Call& call, const wire::GetArrayPlane<Resolved>& wanted) {
    if (!driver().cuArrayGetPlane || !driver().cuArray3DGetDescriptor_v2) return CUDA_ERROR_NOT_SUPPORTED;
    auto* whole = session.handles.arrays.find(wanted.of.number);
    if (!is_number(wanted.array) || !whole || is_part(*whole)) return CUDA_ERROR_INVALID_VALUE;
    CUarray plane = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR described{};
    auto result = driver().cuArrayGetPlane(&plane, whole->handle, wanted.plane);
    if (result == CUDA_SUCCESS) result = driver().cuArray3DGetDescriptor_v2(&described, plane);
    if (result != CUDA_SUCCESS) return result;
    whole->planes.push_back(wanted.array);
    if (!session.handles.arrays.add(wanted.array, {plane, whole->context, 0, nullptr, nullptr, true}))
        return whole->planes.pop_back(), CUDA_ERROR_INVALID_VALUE;
    call.reply(wire::shape_of(described, 0));
    return CUDA_SUCCESS;
}

// The driver may wait for the GPU's work on it.
static Answer destroy_array(WorkerSession& session, Call& call, const wire::DestroyArray<Resolved>& wanted) {
    auto* found = session.handles.arrays.find(wanted.named.number);
    if (!found || is_part(*found)) return CUDA_ERROR_INVALID_HANDLE;
    return session.run_aside(call, [&session, array = wanted.named] {
        auto result = driver().cuArrayDestroy(array.handle);
        session.handles.forget_array(array.number);
        return result;
    });
}

static Answer destroy_mipmapped(WorkerSession& session, Call& call,
                                const wire::DestroyMipmappedArray<Resolved>& wanted) {
    if (!wanted.named.handle) return CUDA_ERROR_INVALID_HANDLE;
    return session.run_aside(call, [&session, array = wanted.named] {
        auto result = driver().cuMipmappedArrayDestroy(array.handle);
        session.handles.forget_mipmapped_array(array.number);
        return result;
    });
}

template <class Ask, class Array>
static Answer requirements(Call& call, Ask ask, const Array& array, const Resolved::Device& device) {
    if (!ask) return CUDA_ERROR_NOT_SUPPORTED;
    CUDA_ARRAY_MEMORY_REQUIREMENTS found{};
    auto result = ask(&found, array.handle, device.object->handle);
    if (result == CUDA_SUCCESS) call.reply(wire::ArrayRequirements{found.size, found.alignment});
    return result;
}

static Answer array_requirements(WorkerSession&, Call& call, const wire::GetArrayRequirements<Resolved>& wanted) {
    return requirements(call, driver().cuArrayGetMemoryRequirements, wanted.array, wanted.device);
}

static Answer mipmap_requirements(WorkerSession&, Call& call, const wire::GetMipmapRequirements<Resolved>& wanted) {
    return requirements(call, driver().cuMipmappedArrayGetMemoryRequirements, wanted.array, wanted.device);
}

void add_array_calls(HandlerTable& table) {
    table.add<create_array>();
    table.add<create_mipmapped>();
    table.add<get_level>();
    table.add<get_plane>();
    table.add<destroy_array>();
    table.add<destroy_mipmapped>();
    table.add<array_requirements>();
    table.add<mipmap_requirements>();
}

}  // namespace tnr::worker
