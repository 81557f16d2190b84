// See mirrors.hpp.
#include "gpu_client/cuda/mirrors.hpp"

#include "gpu_client/cuda/device_memory.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/guarded.hpp"

namespace tnr::cuda {

CUresult make_mirror(const Context& context, uint64_t bytes, std::shared_ptr<const uint64_t>& mirror) {
    auto& memory = *find_device(context.device)->memory;
    uint64_t address = 0;
    if (auto result = memory.allocate(context, bytes, 0, 0, address); result != CUDA_SUCCESS) return result;
    Allocation made;
    if (!memory.find(address, made)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;  // meanwhile, by another thread
    mirror = std::shared_ptr<const uint64_t>(new uint64_t(address), [&memory, id = made.id](const uint64_t* last) {
        // With its context it is gone before that, and another context's memory may lie there.
        (void)memory.release(*last, 0, id);
        delete last;
    });
    return CUDA_SUCCESS;
}

CUresult refuse_mirrors() {
    return static_cast<CUresult>(
        unsupported("a copy from or to host memory that is not pinned, in a graph that kernels launch or run"));
}

CUresult refuse_late_sharing(const HostCopies& copies) {
    if (!any_shared(copies)) return CUDA_SUCCESS;
    return static_cast<CUresult>(
        unsupported("changing a graph's instance that copies from or to pinned memory which kernels got later"));
}

CUresult give_mirror(const Context& context, HostCopy& copy, const HostCopy* same) {
    copy.context = same ? same->context : context.handle;
    if (!same) return make_mirror(context, copy.host.row_bytes * copy.host.rows, copy.mirror);
    copy.mirror = same->mirror;
    copy.joined = same->joined;
    return CUDA_SUCCESS;
}

}  // namespace tnr::cuda
