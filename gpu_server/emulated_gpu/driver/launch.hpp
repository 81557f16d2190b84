// A launch, checked and with its parameters copied.
#pragma once

#include "gpu_server/emulated_gpu/driver/operation.hpp"

namespace tnr::emulated {

struct LaunchRequest {
    CUfunction function = nullptr;
    ptx::Dim3 grid, block;
    unsigned dynamic_shared_bytes = 0;
    bool cooperative = false;
    void** parameters = nullptr;  // one pointer per parameter, or
    void** extra = nullptr;       // the CU_LAUNCH_PARAM_* list with one buffer
    std::vector<CUlaunchAttribute> attributes = {};
    ptx::Dim3 cluster = {0, 0, 0};  // as a launch attribute asks; all zero: it does not
    std::shared_ptr<UpdatableNode> updatable = nullptr;
};

// Blocks of a cluster: what the kernel was compiled for, else what the request asks for, else one. The two must not differ.
CUresult choose_cluster(const LaunchRequest& request, const Function& function, ptx::Dim3& cluster);

CUresult prepare_launch(Context& context, const LaunchRequest& request, KernelLaunch& launch);

}  // namespace tnr::emulated
