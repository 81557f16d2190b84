// See mirrors.hpp.
#include "gpu_client/cuda/mirrors.hpp"

#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/memory.hpp"

namespace tnr::cuda {

static bool same(const HostRows& one, const HostRows& other) {
    return one.address == other.address && one.row_bytes == other.row_bytes && one.rows == other.rows &&
           (one.rows == 1 || one.pitch == other.pitch);
}

bool overlap(const HostRows& one, const HostRows& other) {
    return one.address < other.address + extent(other.row_bytes, other.rows, other.pitch) &&
           other.address < one.address + extent(one.row_bytes, one.rows, one.pitch);
}

static CUresult make_mirror(const Context& context, uint64_t bytes, std::shared_ptr<const uint64_t>& mirror) {
    uint64_t address = 0;
    auto result = find_device(context.device)->memory->allocate(context, bytes, 0, 0, address);
    if (result == CUDA_SUCCESS)
        mirror = std::shared_ptr<const uint64_t>(new uint64_t(address), [](const uint64_t* last) {
            (void)free_memory(*last, 0);  // with its context it is gone anyway
            delete last;
        });
    return result;
}

CUresult mirror_copy(const Context& context, const HostRows& host, bool to_device, const GraphNeeds& before,
                     HostCopy& copy) {
    copy.to_device = to_device;
    copy.host = host;
    copy.context = context.handle;
    for (auto& other : before.copies)
        if (same(other->host, host)) {
            copy.context = other->context;
            copy.mirror = other->mirror;
            return CUDA_SUCCESS;
        }
    return make_mirror(context, host.row_bytes * host.rows, copy.mirror);
}

}  // namespace tnr::cuda
