// Opening one device's memory to another. Only its own device may access what is mapped with cuMemMap until
// cuMemSetAccess says otherwise, so peer access between contexts is applied to every mapping, present and future.
#pragma once

#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

// Lets `to` access what is mapped for the client on `device`. Each opening needs a closing of its own.
CUresult open_memory(WorkerSession& session, uint32_t device, uint32_t to);
// Nothing that still uses the memory may be running on `to`.
CUresult close_memory(WorkerSession& session, uint32_t device, uint32_t to);

}  // namespace tnr::worker
