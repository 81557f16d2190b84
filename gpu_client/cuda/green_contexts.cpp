// See green_contexts.hpp.
#include "gpu_client/cuda/green_contexts.hpp"

#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/thread_state.hpp"
#include "gpu_client/protocol/green_records.hpp"

namespace tnr::cuda {

GreenContexts& green_contexts() {
    static auto* one = new GreenContexts;
    return *one;
}
static ConvertedContexts& converted_contexts() {
    static auto* one = new ConvertedContexts;
    return *one;
}
ResourceDescriptions& resource_descriptions() {
    static auto* one = new ResourceDescriptions;
    return *one;
}

GreenContext* green_context_behind(CUcontext handle) {
    auto* converted = converted_contexts().find(value_of(handle));
    return converted ? green_contexts().find(converted->green) : nullptr;
}

uint64_t context_behind_converted(uint64_t handle) {
    auto* green = green_context_behind(handle_of<CUcontext>(handle));
    return green ? green->context : handle;
}

GreenContext* current_green_context() {
    uint64_t handle = current_context_as_set();
    bool converted = kind_of_handle(handle) == HandleKind::converted_context;
    return converted ? green_context_behind(handle_of<CUcontext>(handle)) : nullptr;
}

static uint64_t next_green_id() {
    static std::atomic<uint64_t> last{uint64_t{1} << 32};  // never an ordinary context's
    return ++last;
}

GreenContext& enter_green_context(const Device& device) {
    GreenContext* made = nullptr;
    green_contexts().create([&](GreenContext& green, uint64_t index, uint64_t handle) {
        green.number = index + 1;
        green.handle = handle;
        green.id = next_green_id();
        green.context = device.primary_context;
        green.device = device.ordinal;
        green.converted = 0;
        made = &green;
    });
    made->converted =
        converted_contexts().create([&](ConvertedContext& one, uint64_t, uint64_t) { one.green = made->handle; });
    return *made;
}

bool forget_green_context(const GreenContext& green) {
    converted_contexts().destroy(green.converted);
    return green_contexts().destroy(green.handle);
}

void forget_green_contexts_of(const Context& context) {
    auto* open = context.session.load();
    green_contexts().each([&](GreenContext& green, uint64_t) {
        if (green.context != context.handle) return;
        if (open) open->append(context.number, wire::DestroyGreenContext<>{green.number});
        forget_green_context(green);
    });
}

}  // namespace tnr::cuda
