// What several files of handlers do with memory: opening it to other devices, borrowing it, mapping multicast objects.
//
// Opening one device's memory to another. Only its own device may access what is mapped with cuMemMap until
// cuMemSetAccess says otherwise, so peer access between contexts is applied to every mapping, present and future.
#pragma once

#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

// Lets `to` access what is mapped for the client on `device`. Each opening needs a closing of its own.
CUresult open_memory(WorkerSession& session, uint32_t device, uint32_t to);
// Nothing that still uses the memory may be running on `to`.
CUresult close_memory(WorkerSession& session, uint32_t device, uint32_t to);

// cuMemMap of a multicast object: answers when all devices are in its team.
Answer map_multicast(WorkerSession& session, const Call& call, const wire::MapAllocation<Resolved>& wanted);

// The driver's handle for what another process has lent. Waits for the supervisor.
CUresult borrow_handle(WorkerSession& session, const wire::ThingName& name, Exchange::Kind kind,
                       BorrowedMemory& borrowed, CUmemGenericAllocationHandle& handle);

}  // namespace tnr::worker
