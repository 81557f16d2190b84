// Overwrites GPUs' memory: each time by a helper process of its own (`tnr-gpu-server wipe-gpu`).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "api_client/base/result.hpp"
#include "gpu_server/pool/ledger.hpp"
#include "gpu_server/supervisor/event_loop.hpp"
#include "gpu_server/supervisor/gpu_source.hpp"
#include "gpu_server/supervisor/reaper.hpp"

namespace tnr::server {

// No bytes: it could not be done, and `how` says why.
using Wiped = std::function<void(const WipeRecord& wipe, const std::string& how)>;
// `wiped` is called later, once. An Error is this host's, not the GPU's: the helper did not start.
using Wiper = std::function<Result<>(const FoundGpu& gpu, Wiped wiped)>;

Wiper make_wiper(EventLoop& loop, Reaper& reaper, const GpuSource& source);

}  // namespace tnr::server
