// See mirrors.hpp.
#include "gpu_client/cuda/mirrors.hpp"

#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/memory.hpp"

namespace tnr::cuda {

static bool same_rows(const HostRows& one, const HostRows& other) {
    return one.address == other.address && one.row_bytes == other.row_bytes && one.rows == other.rows &&
           (one.rows == 1 || one.pitch == other.pitch);
}

static bool same(const HostCopy& one, const HostCopy& other) {
    return same_rows(one.host, other.host) && one.slice_rows == other.slice_rows &&
           one.copied_rows == other.copied_rows;
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
        if (same(*other, copy)) {
            copy.context = other->context;
            copy.mirror = other->mirror;
            return CUDA_SUCCESS;
        }
    return make_mirror(context, host.row_bytes * host.rows, copy.mirror);
}

std::vector<MirroredRows> slices_of(const HostCopy& copy) {
    auto& host = copy.host;
    if (copy.slice_rows == 0) return {{host, 0}};
    std::vector<MirroredRows> slices;
    for (uint64_t row = 0; row < host.rows; row += copy.slice_rows)
        slices.push_back(
            {{host.address + row * host.pitch, host.row_bytes, copy.copied_rows, host.pitch}, row * host.row_bytes});
    return slices;
}

}  // namespace tnr::cuda
