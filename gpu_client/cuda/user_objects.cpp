// See user_objects.hpp; and printing graphs.
#include "gpu_client/cuda/user_objects.hpp"

#include <fstream>

#include "gpu_client/cuda/graph_objects.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_functions.hpp"
#include "gpu_client/cuda/table_call.hpp"
#include "gpu_client/protocol/graph_records.hpp"

namespace tnr::cuda {

void user_object_gone(uint64_t number) {
    auto* found = user_objects().at(number - 1);
    if (!found || found->number != number) return;
    auto gone = *found;
    user_objects().destroy(gone.handle);
    run_on_host_thread_soon([gone] { gone.destroy(gone.object); });
}

static CUresult create_object(CUuserObject* out, void* object, CUhostFn destroy, unsigned references, unsigned flags) {
    if (!out || !destroy || references == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t number = 0;
    auto handle = user_objects().create([&](UserObject& made, uint64_t index, uint64_t value) {
        number = index + 1;
        made = {number, value, destroy, object};
    });
    RemoteCall call(wire::CreateUserObject{number, references});
    call.in_any_context();
    ClientSession* session = nullptr;
    auto result = call.open(session);
    if (result == CUDA_SUCCESS) {
        session->expect_news(+1);  // that it is gone
        result = call.send();
        if (result != CUDA_SUCCESS) session->expect_news(-1);
    }
    if (result == CUDA_SUCCESS)
        *out = handle_of<CUuserObject>(handle);
    else
        user_objects().destroy(handle);
    return result;
}

// An object that is gone is left alone: CUDA leaves it undefined to release it once more, and programs expect NVIDIA's
// driver to take it. The worker's driver is not asked, which no longer has it.
static CUresult release_object(CUuserObject handle, unsigned references) {
    if (!handle || references == 0) return CUDA_ERROR_INVALID_VALUE;
    auto* object = user_objects().find(value_of(handle));
    if (!object) return CUDA_SUCCESS;
    RemoteCall call(wire::ReleaseUserObject{object->number, references});
    call.in_any_context();
    return call.send();
}

static CUresult print_graph(CUgraph graph, const char* path, unsigned flags) {
    if (!path) return CUDA_ERROR_INVALID_VALUE;
    TableCall call(wire::PrintGraph<>::op, wire::PrintGraph<>::way);
    call.handle(graph);
    call.put(uint32_t{flags});
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::PrintGraph<>::Reply reply;
    if (auto result = call.take(reply); result != CUDA_SUCCESS) return result;
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(reply.text.data()), static_cast<std::streamsize>(reply.text.size()));
    return file.flush() ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuUserObjectCreate(CUuserObject* out, void* object, CUhostFn destroy, unsigned int references,
                                    unsigned int flags) {
    return guarded("cuUserObjectCreate", [&] { return create_object(out, object, destroy, references, flags); });
}
CUresult CUDAAPI cuUserObjectRelease(CUuserObject object, unsigned int count) {
    return guarded("cuUserObjectRelease", [&] { return release_object(object, count); });
}
CUresult CUDAAPI cuGraphDebugDotPrint(CUgraph graph, const char* path, unsigned int flags) {
    return guarded("cuGraphDebugDotPrint", [&] { return print_graph(graph, path, flags); });
}

}  // extern "C"
