// Launching graphs: one small record, unless launches need something of the program (graph_needs.hpp).
#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/copies.hpp"
#include "gpu_client/cuda/device_memory.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/graph_objects.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_functions.hpp"
#include "gpu_client/cuda/memory_info.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/shared_pages.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "gpu_client/protocol/graph_records.hpp"

namespace tnr::cuda {

namespace {

// Between the mirror and the program's memory. What is shared by now is the GPU's business: for the program, pages that the
// GPU has are none to write to.
CUresult copy_mirror(const HostCopy& copy, CUstream stream, bool wait = false) {
    auto result = CUDA_SUCCESS;
    for_each_slice(copy, [&](const HostRows& host, uint64_t offset) {
        if (result != CUDA_SUCCESS) return;
        const DeviceRows mirror{*copy.mirror + offset, mirror_pitch(copy)}, shared{shared_address(host), host.pitch};
        if (shared.address == 0)
            result = copy.to_device ? copy_lasting_to_device(mirror, host, stream)
                                    : copy_from_device(host, mirror, stream, wait);
        else
            result = copy_on_device(copy.to_device ? mirror : shared, copy.to_device ? shared : mirror, host.row_bytes,
                                    host.rows, stream, wait);
    });
    return result;
}

// For other threads of the program: none of the events is complete while this lives.
class HeldEvents {
public:
    explicit HeldEvents(const GraphNeeds& needs) {
        if (!needs.holds_events) return;
        for (auto handle : needs.recorded)
            if (auto* event = find_event(handle_of<CUevent>(handle))) ++event->held, held_.push_back(handle);
    }
    ~HeldEvents() {
        for (auto handle : held_) {
            auto* event = find_event(handle_of<CUevent>(handle));
            if (!event) continue;
            --event->held;
            event->held.notify_all();
        }
    }
    HeldEvents(const HeldEvents&) = delete;
    HeldEvents& operator=(const HeldEvents&) = delete;

private:
    std::vector<uint64_t> held_;
};

// Memory that an earlier launch has yet to write is read when it has: copy_lasting_to_device() sees to that.
CUresult launch_with_needs(const GraphNeeds& needs, Context& context, CUstream stream,
                           const std::function<CUresult()>& submit_launch, uint64_t& functions) {
    for (auto& copy : needs.copies) {
        if (!copy->to_device || copy->disabled) continue;
        if (auto result = copy_mirror(*copy, stream); result != CUDA_SUCCESS) return result;
    }
    functions = expect_functions(*context.session.load(), needs);
    const HeldEvents held(needs);
    if (auto result = submit_launch(); result != CUDA_SUCCESS) return result;
    for (auto& copy : needs.copies) {
        if (copy->to_device || copy->seen_by_function || copy->disabled) continue;
        if (auto result = copy_mirror(*copy, stream, needs.holds_events); result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

void note_taken(const wire::GraphMemoryChanges& changes, const ClientSession& session) {
    for (auto& change : changes)
        for (auto* device : devices())
            if (device->session.load() == &session && device->number == change.device)
                device->memory->graphs_took(change.taken, change.granted);
}

// The memory is the driver's to find: it gets what we keep and do not use, if it needs that.
CUresult launch_that_allocates(const wire::LaunchGraph<>& record, const Context& context, const StreamRef& stream) {
    auto launch = [&] {
        RemoteCall call(record, wire::CallWay::sync);
        call.use(stream);
        auto result = call.send();
        wire::LaunchGraph<>::Reply reply;
        if (call.has_answer() && call.read(reply)) note_taken(reply.changes, call.session());
        return result;
    };
    driver_took_memory();
    auto result = launch();
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
    find_device(context.device)->memory->trim_after_work();
    return launch();
}

CUresult launch_graph(CUgraphExec handle, CUstream in) {
    auto* exec = find_graph_exec(handle);
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    StreamRef stream;
    if (auto result = resolve_stream(in, stream); result != CUDA_SUCCESS) return result;
    Context* context = nullptr;
    if (auto result = context_of_stream(stream, context); result != CUDA_SUCCESS) return result;
    if (auto result = refuse_work(stream); result != CUDA_SUCCESS) return result;
    if (auto result = refuse_in_capture(stream); result != CUDA_SUCCESS) return result;
    const wire::LaunchGraph<> record{exec->number, stream.number};
    auto needs = exec->has_needs ? needs_of(handle) : nullptr;
    auto submit_launch = [&]() -> CUresult {
        GpuTurn turn;
        turn.begin(*context, stream);
        if (needs && needs->allocates) return launch_that_allocates(record, *context, stream);
        return submit(record.op, *context, stream, {wire::packed(record)});
    };
    uint64_t functions = 0;
    auto result = needs ? launch_with_needs(*needs, *context, in, submit_launch, functions) : submit_launch();
    functions_submitted(*context, stream, functions);  // events, too, may make the graph come after some
    return result;
}

}  // namespace

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" CUresult CUDAAPI cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    return guarded("cuGraphLaunch", [&] { return launch_graph(exec, stream); });
}
