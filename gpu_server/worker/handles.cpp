// See handles.hpp.
#include "gpu_server/worker/handles.hpp"

#include "gpu_client/protocol/code_records.hpp"
#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {

CUresult Handles::resolve(Resolved::Context& context) {
    auto* found = contexts.find(context.number);
    if (!found) return CUDA_ERROR_INVALID_CONTEXT;
    context.handle = *found;
    return CUDA_SUCCESS;
}

CUresult Handles::resolve(Resolved::Stream& stream) {
    if (stream.number == 0) return CUDA_SUCCESS;
    if (stream.number == 1) {
        stream.handle = CU_STREAM_LEGACY;
        return CUDA_SUCCESS;
    }
    auto* found = streams.find(stream.number);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    stream.handle = found->handle;
    return CUDA_SUCCESS;
}

CUresult Handles::resolve(Resolved::Event& event) {
    auto* found = events.find(event.number);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    event.shared = *found;
    event.handle = found->get();
    return CUDA_SUCCESS;
}

CUresult Handles::resolve(Resolved::Library& library) {
    auto* found = libraries.find(library.number);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    library.handle = found->handle;
    return CUDA_SUCCESS;
}

Kernel* Handles::find_kernel(uint64_t function_number) {
    auto* library = libraries.find(function_number >> wire::function_index_bits);
    auto index = function_number & ((uint64_t{1} << wire::function_index_bits) - 1);
    return library && index < library->kernels.size() ? &library->kernels[index] : nullptr;
}

CUresult Handles::resolve(Resolved::Kernel& kernel) {
    auto* found = find_kernel(kernel.number);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    kernel.handle = found->handle;
    return CUDA_SUCCESS;
}

CUresult Handles::resolve(Resolved::Function& function) {
    auto* found = find_kernel(function.number);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    auto& known = found->functions[current];
    auto result = known ? CUDA_SUCCESS : driver().cuKernelGetFunction(&known, found->handle);
    function.handle = known;
    return result;
}

CUresult Handles::resolve(Resolved::GreenContext& green) {
    auto* found = green_contexts.find(green.number);
    if (!found) return CUDA_ERROR_INVALID_CONTEXT;
    green.handle = found->handle;
    return CUDA_SUCCESS;
}

CUresult Handles::resolve(Resolved::ResourceDescription& description) {
    auto* found = resource_descriptions.find(description.number);
    if (!found) return CUDA_ERROR_INVALID_VALUE;
    description.handle = *found;
    return CUDA_SUCCESS;
}

CUresult Handles::resolve(Resolved::Link& link) {
    auto* found = links.find(link.number);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    link.object = *found;
    return CUDA_SUCCESS;
}

CUresult Handles::resolve(Resolved::Allocation& allocation) {
    allocation.object = allocations.find(allocation.number);
    return allocation.object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Handles::resolve(Resolved::Graph& graph) {
    graph.handle = graphs.find_graph(graph.number);
    return graph.handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Handles::resolve(Resolved::GraphNode& node) {
    node.handle = graphs.find_node(node.number);
    return node.handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Handles::resolve(Resolved::GraphExec& exec) {
    auto* found = graphs.execs.find(exec.number);
    if (!found) return CUDA_ERROR_INVALID_VALUE;
    exec.handle = *found;
    return CUDA_SUCCESS;
}

CUresult Handles::resolve(Resolved::UserObject& object) {
    object.handle = user_objects.find(object.number);
    return object.handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Handles::resolve(Resolved::Array& array) {
    if (array.number == 0) return CUDA_SUCCESS;
    auto* found = arrays.find(array.number);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    array.handle = found->handle;
    return CUDA_SUCCESS;
}

CUresult Handles::resolve(Resolved::MipmappedArray& array) {
    if (array.number == 0) return CUDA_SUCCESS;
    auto* found = mipmapped_arrays.find(array.number);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    array.handle = found->handle;
    return CUDA_SUCCESS;
}

template <class References, class Thing>
static CUresult resolve_reference(References& references, NumberedHandles<Library>& libraries, Thing& reference) {
    auto* found = references.find(reference.number);
    if (!found || (found->library != 0 && !libraries.find(found->library))) return CUDA_ERROR_INVALID_HANDLE;
    reference.handle = found->handle;
    return CUDA_SUCCESS;
}

CUresult Handles::resolve(Resolved::TextureReference& reference) {
    return resolve_reference(texture_references, libraries, reference);
}

CUresult Handles::resolve(Resolved::SurfaceReference& reference) {
    return resolve_reference(surface_references, libraries, reference);
}

void Handles::forget_array(uint64_t number) {
    if (auto* array = arrays.find(number))
        for (auto plane : std::exchange(array->planes, {})) arrays.remove(plane);
    arrays.remove(number);
}

void Handles::forget_mipmapped_array(uint64_t number) {
    mipmapped_arrays.remove(number);
    arrays.remove_if([&](const Array& array) { return array.mipmapped == number; });
}

void Handles::forget_arrays_of(uint64_t context) {
    arrays.remove_if([&](const Array& array) { return array.context == context; });
    mipmapped_arrays.remove_if([&](const MipmappedArray& array) { return array.context == context; });
}

uint64_t Handles::number_of(CUevent event) {
    for (auto& [number, shared] : events)
        if (shared.get() == event) return number;
    return 0;
}

CUresult Handles::resolve(Resolved::Device& device) {
    if (device.number >= devices.size()) return CUDA_ERROR_INVALID_DEVICE;
    device.object = &devices[device.number];
    return CUDA_SUCCESS;
}

}  // namespace tnr::worker
