// Kernel launches, all variants as one record.
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

// Attributes whose value starts with the number of an event.
static bool names_an_event(uint32_t id) {
    return id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT || id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
}

static bool translate_event(WorkerSession& session, CUlaunchAttribute& attribute) {
    uint64_t number = 0;
    std::memcpy(&number, &attribute.value, sizeof number);
    auto* event = session.handles.events.find(number);
    if (!event) return false;
    auto handle = event->get();
    std::memcpy(&attribute.value, &handle, sizeof(void*));  // a handle is a pointer
    return true;
}

static CUresult read_attributes(WorkerSession& session, Call& call, uint32_t count, CUlaunchAttribute* attributes) {
    for (uint32_t i = 0; i < count; ++i) {
        wire::LaunchAttribute record;
        if (!wire::read_field(call.in, record)) return CUDA_ERROR_INVALID_VALUE;
        attributes[i] = {};
        attributes[i].id = static_cast<CUlaunchAttributeID>(record.id);
        static_assert(sizeof record.value == sizeof attributes[i].value);
        std::memcpy(&attributes[i].value, record.value.data(), sizeof record.value);
        if (names_an_event(record.id) && !translate_event(session, attributes[i])) return CUDA_ERROR_INVALID_HANDLE;
    }
    return CUDA_SUCCESS;
}

static Answer launch(WorkerSession& session, Call& call, const wire::Launch<Resolved>& record) {
    bool sound =
        record.attributes <= wire::launch_attributes_max && record.parameter_bytes <= wire::parameter_bytes_max;
    if (!sound) return CUDA_ERROR_INVALID_VALUE;
    CUlaunchAttribute attributes[wire::launch_attributes_max + 1];
    auto count = record.attributes;
    if (auto status = read_attributes(session, call, count, attributes); status != CUDA_SUCCESS) return status;
    auto parameters = call.in.raw(record.parameter_bytes);
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;

    if (record.flags & wire::launch_cooperative) {
        auto& attribute = attributes[count++];
        attribute = {};
        attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attribute.value.cooperative = 1;
    }
    CUlaunchConfig config{};
    config.gridDimX = record.grid[0], config.gridDimY = record.grid[1], config.gridDimZ = record.grid[2];
    config.blockDimX = record.block[0], config.blockDimY = record.block[1], config.blockDimZ = record.block[2];
    config.sharedMemBytes = record.shared_bytes;
    config.hStream = record.stream.handle;
    config.attrs = attributes;
    config.numAttrs = count;

    size_t bytes = parameters.size();
    // The driver's interface is not const-correct; it only reads.
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte*>(parameters.data()),
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    Profiler::Launch profiled(session.profiler, {record.kernel.number, record.stream.number, session.current_number()},
                              record.stream.handle, session.current());
    // A CUkernel may stand for a function in launches: the driver finds the context's own.
    return profiled.launched(driver().cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(record.kernel.handle),
                                                       nullptr, bytes > 0 ? extra : nullptr));
}

using AskAboutClusters = CUresult (*)(int*, CUfunction, const CUlaunchConfig*);

static Answer ask(Call& call, const wire::ActiveClusters<Resolved>& record, AskAboutClusters driver_call) {
    if (!driver_call) return CUDA_ERROR_NOT_SUPPORTED;
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {record.cluster[0], record.cluster[1], record.cluster[2]};
    CUlaunchConfig config{};
    config.gridDimX = record.grid[0], config.gridDimY = record.grid[1], config.gridDimZ = record.grid[2];
    config.blockDimX = record.block[0], config.blockDimY = record.block[1], config.blockDimZ = record.block[2];
    config.sharedMemBytes = record.shared_bytes;
    config.attrs = &attribute;
    config.numAttrs = record.cluster[0] || record.cluster[1] || record.cluster[2];
    int value = 0;
    auto result = driver_call(&value, reinterpret_cast<CUfunction>(record.kernel.handle), &config);
    call.reply(wire::ActiveClusters<>::Reply{value});
    return result;
}

static Answer active_clusters(WorkerSession&, Call& call, const wire::ActiveClusters<Resolved>& record) {
    return ask(call, record, driver().cuOccupancyMaxActiveClusters);
}

static Answer potential_cluster_size(WorkerSession&, Call& call, const wire::PotentialClusterSize<Resolved>& record) {
    return ask(call, {record.kernel, record.grid, record.block, record.cluster, record.shared_bytes},
               driver().cuOccupancyMaxPotentialClusterSize);
}

void add_launch_calls(HandlerTable& table) {
    table.add<launch>();
    table.add<active_clusters>();
    table.add<potential_cluster_size>();
}

}  // namespace tnr::worker
