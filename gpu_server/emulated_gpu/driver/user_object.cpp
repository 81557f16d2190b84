// See user_object.hpp.
#include "gpu_server/emulated_gpu/driver/user_object.hpp"

#include <algorithm>
#include <climits>

#include "gpu_server/emulated_gpu/driver/graph.hpp"

namespace tnr::emulated {

void UserObject::release(uint64_t count) {
    uint64_t before = references_;
    do {
        if (before < count) return;
    } while (!references_.compare_exchange_weak(before, before - count));
    if (count == 0 || before != count) return;
    driver().registry.remove(handle());
    run_on_pool([function = destroy_, data = data_] { call_program_function(function, data); });
}

std::shared_ptr<UserReferences> UserReferences::clone() const {
    object_->retain(count_);
    return std::make_shared<UserReferences>(object_, count_);
}

void UserReferences::release(uint64_t count) {
    count = std::min(count, count_);
    count_ -= count;
    object_->release(count);
}

}  // namespace tnr::emulated

using namespace tnr::emulated;

namespace {

template <class Call>
CUresult on_user_object(CUuserObject handle, unsigned count, Call&& call) {
    return with_graphs([&]() -> CUresult {
        auto object = find<UserObject>(handle);
        if (!object || count == 0 || count > INT_MAX) return CUDA_ERROR_INVALID_VALUE;
        return call(object);
    });
}

using ObjectPointer = std::shared_ptr<UserObject>;

}  // namespace

CUresult cuUserObjectCreate(CUuserObject* out, void* data, CUhostFn destroy, unsigned count, unsigned flags) {
    return initialized([&]() -> CUresult {
        if (!out || !destroy || count == 0 || count > INT_MAX || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
            return CUDA_ERROR_INVALID_VALUE;
        *out = driver().registry.add(std::make_shared<UserObject>(data, destroy, count))->as<CUuserObject>();
        return CUDA_SUCCESS;
    });
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned count) {
    return on_user_object(handle, count, [&](const ObjectPointer& object) -> CUresult {
        object->retain(count);
        return CUDA_SUCCESS;
    });
}

// What is gone already, nobody need release: undefined, too, and programs expect that it is taken.
CUresult cuUserObjectRelease(CUuserObject handle, unsigned count) {
    return with_graphs([&]() -> CUresult {
        if (!handle || count == 0 || count > INT_MAX) return CUDA_ERROR_INVALID_VALUE;
        if (auto object = find<UserObject>(handle)) object->release(count);
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count, unsigned flags) {
    return on_user_object(handle, count, [&](const ObjectPointer& object) -> CUresult {
        auto graph = find<Graph>(graph_handle);
        if (!graph || (flags & ~unsigned{CU_GRAPH_USER_OBJECT_MOVE})) return CUDA_ERROR_INVALID_VALUE;
        if (!(flags & CU_GRAPH_USER_OBJECT_MOVE)) object->retain(count);
        graph->keep(object, count);
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count) {
    return on_user_object(handle, count, [&](const ObjectPointer& object) -> CUresult {
        auto graph = find<Graph>(graph_handle);
        return graph && graph->let_go(*object, count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}
