// See arrays.hpp.
#include "gpu_client/cuda/arrays.hpp"

#include "gpu_client/cuda/device_memory.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/virtual_memory.hpp"

namespace tnr::cuda {

Arrays& arrays() {
    static auto* all = new Arrays;
    return *all;
}
MipmappedArrays& mipmapped_arrays() {
    static auto* all = new MipmappedArrays;
    return *all;
}

void return_array_grant(const Context& context, uint64_t bytes) {
    if (auto* device = find_device(context.device); device && bytes != 0) device->memory->return_grant(bytes);
}

void forget_parts(const std::vector<uint64_t>& handles) {
    for (auto handle : handles) arrays().destroy(handle);
}

void forget_tiles(const std::shared_ptr<Tiled>& tiled) {
    if (!tiled) return;
    Freed freed;
    {
        LockGuard lock(mappings().mutex);
        tiled->gone = true;
        auto memory = std::move(tiled->book).all();
        drop_tiles(memory, freed);
    }
    (void)send_changes(freed);
}

void forget_arrays_of(const Context& context) {
    arrays().each([&](Array& array, uint64_t handle) {
        if (array.context != context.handle) return;
        return_array_grant(context, array.charged_bytes);
        forget_tiles(array.tiled);
        arrays().destroy(handle);
    });
    mipmapped_arrays().each([&](MipmappedArray& array, uint64_t handle) {
        if (array.context != context.handle) return;
        return_array_grant(context, array.charged_bytes);
        forget_tiles(array.tiled);
        forget_parts(array.levels);
        mipmapped_arrays().destroy(handle);
    });
}

}  // namespace tnr::cuda
