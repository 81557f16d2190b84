// See mirrors.hpp.
#include "gpu_client/cuda/mirrors.hpp"

#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/memory.hpp"

namespace tnr::cuda {

CUresult make_mirror(const Context& context, uint64_t bytes, std::shared_ptr<const uint64_t>& mirror) {
    uint64_t address = 0;
    auto result = find_device(context.device)->memory->allocate(context, bytes, 0, 0, address);
    if (result == CUDA_SUCCESS)
        mirror = std::shared_ptr<const uint64_t>(new uint64_t(address), [](const uint64_t* last) {
            (void)free_memory(*last);  // with its context it is gone anyway
            delete last;
        });
    return result;
}

CUresult refuse_mirrors() {
    return static_cast<CUresult>(
        unsupported("a copy from or to host memory that is not pinned, in a graph that kernels launch or run"));
}

CUresult give_mirror(const Context& context, HostCopy& copy, const HostCopy* same) {
    copy.context = same ? same->context : context.handle;
    if (!same) return make_mirror(context, copy.host.row_bytes * copy.host.rows, copy.mirror);
    copy.mirror = same->mirror;
    copy.joined = same->joined;
    return CUDA_SUCCESS;
}

}  // namespace tnr::cuda
