// Opening one device's memory to another. What is mapped with cuMemMap is its own device's alone until cuMemSetAccess
// says otherwise, so peer access between contexts has to be carried over to every mapping, those of today and of later.
#pragma once

#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

// What is mapped for the client on `device` may be used by `to`. Each opening needs a closing of its own.
CUresult open_memory(WorkerSession& session, uint32_t device, uint32_t to);
// Nothing of `to` may be running that still uses it.
CUresult close_memory(WorkerSession& session, uint32_t device, uint32_t to);

}  // namespace tnr::worker
