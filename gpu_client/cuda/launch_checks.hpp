// What is checked of a kernel's launch before it leaves, and its parameters in one piece.
#pragma once

#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/objects.hpp"
#include "gpu_client/protocol/call_records.hpp"

namespace tnr::cuda {

CUresult check_shape(const wire::Launch<>& launch, bool cooperative, const Device& device, const Function& function);
// The grid must consist of whole clusters, of the size that the kernel was compiled for or the launch asks for.
CUresult check_cluster(const CUlaunchConfig& config, const Function& function);

// Parameters as one buffer: copied now, since the program may reuse its memory when we return.
struct Parameters {
    const void* buffer = nullptr;
    size_t bytes = 0;
    std::byte packed[wire::parameter_bytes_max];

    // Out of the program's own memory, unless they are already.
    void pack();
};
// From kernelParams (`list`) or `extra`, as cuLaunchKernel() has them. Addresses are unified, so a kernel may be given one
// of any pinned memory: where that is a parameter by itself, it becomes the address that the GPU has for the memory.
CUresult collect_parameters(Context& context, const KernelInfo& kernel, void** list, void** extra,
                            Parameters& parameters);

}  // namespace tnr::cuda
