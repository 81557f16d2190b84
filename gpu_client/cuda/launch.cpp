// Launching kernels: the call that everything else exists for. It is sent and never waited for; what can be checked
// here is refused at once, as the driver does.
#include <cstring>

#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/profile.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/streams.hpp"

namespace tnr::cuda {

// CUDA_ERROR_INVALID_VALUE, as the driver API has it. But the runtime passes a launch's result on as it is, and its
// programs expect cudaErrorInvalidConfiguration (9), which is no CUresult. The runtime's kernels are known by how it
// loads its code.
static CUresult bad_shape(const Function& function) {
    auto* library = libraries().find(function.library);
    constexpr auto invalid_configuration = static_cast<CUresult>(9);
    return library && library->of_runtime ? invalid_configuration : CUDA_ERROR_INVALID_VALUE;
}

// The most threads of a block that the multiprocessor has registers for. A warp is given them in units of 256, and the
// four parts of the multiprocessor have equal shares.
static uint64_t threads_by_registers(const KernelInfo& kernel, const Device& device) {
    constexpr uint64_t warp_threads = 32, unit = 256, parts = 4;
    auto each = static_cast<uint64_t>(std::max(1, kernel.attributes[CU_FUNC_ATTRIBUTE_NUM_REGS].load()));
    auto all = static_cast<uint64_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK));
    uint64_t of_a_warp = (each * warp_threads + unit - 1) / unit * unit;
    return all / of_a_warp / parts * parts * warp_threads;
}

static CUresult check_shape(const wire::Launch<>& launch, const Device& device, const Function& function) {
    auto& kernel = *function.info.load();
    uint64_t threads = 1;
    for (int i = 0; i < 3; ++i) {
        auto block_max = static_cast<uint32_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i));
        auto grid_max = static_cast<uint32_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i));
        if (launch.block[i] == 0 || launch.block[i] > block_max) return bad_shape(function);
        if (launch.grid[i] == 0 || launch.grid[i] > grid_max) return bad_shape(function);
        threads *= launch.block[i];
    }
    if (threads > static_cast<uint64_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)))
        return bad_shape(function);
    auto known = [&](int attribute) { return static_cast<uint32_t>(attribute) < kernel.attribute_count; };
    if (known(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) &&
        threads > static_cast<uint64_t>(kernel.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK].load())) {
        // Either it was compiled for fewer (.maxntid, .reqntid), or it uses too many registers for so many.
        return threads <= threads_by_registers(kernel, device) ? CUDA_ERROR_INVALID_VALUE
                                                               : CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    if (known(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) &&
        launch.shared_bytes >
            static_cast<uint32_t>(kernel.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES].load()))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

// Parameters as one buffer: copied now, since the program may reuse its memory when we return.
struct Parameters {
    const void* buffer = nullptr;
    size_t bytes = 0;
    std::byte packed[wire::parameter_bytes_max];
};

static CUresult from_extra(void** extra, const KernelInfo& kernel, Parameters& parameters) {
    for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        void* value = extra[i + 1];
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            parameters.buffer = value;
        } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            if (!value) return CUDA_ERROR_INVALID_VALUE;
            parameters.bytes = *static_cast<size_t*>(value);
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    bool fits = parameters.bytes >= kernel.parameter_bytes && parameters.bytes <= wire::parameter_bytes_max;
    return fits && (parameters.buffer || parameters.bytes == 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult from_list(void** list, const KernelInfo& kernel, Parameters& parameters) {
    if (!list && !kernel.parameters.empty()) return CUDA_ERROR_INVALID_VALUE;
    parameters.buffer = parameters.packed;
    parameters.bytes = std::min<size_t>(kernel.parameter_bytes, wire::parameter_bytes_max);
    size_t end = 0;
    for (size_t i = 0; i < kernel.parameters.size(); ++i) {
        auto [offset, size] = kernel.parameters[i];
        if (!list[i] || size_t{offset} + size > parameters.bytes) return CUDA_ERROR_INVALID_VALUE;
        if (offset > end) std::memset(parameters.packed + end, 0, offset - end);  // nothing of our stack travels
        std::memcpy(parameters.packed + offset, list[i], size);
        end = std::max<size_t>(end, size_t{offset} + size);
    }
    return CUDA_SUCCESS;
}

// Attributes that name an event carry its number.
static CUresult make_attribute(const CUlaunchAttribute& attribute, wire::LaunchAttribute& record) {
    record.id = static_cast<uint32_t>(attribute.id);
    static_assert(sizeof record.value == sizeof attribute.value);
    std::memcpy(record.value.data(), &attribute.value, sizeof record.value);
    CUevent named = nullptr;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) named = attribute.value.programmaticEvent.event;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
        named = attribute.value.launchCompletionEvent.event;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) return CUDA_ERROR_NOT_SUPPORTED;
    if (named) {
        auto* event = find_event(named);
        if (!event) return CUDA_ERROR_INVALID_HANDLE;
        std::memcpy(record.value.data(), &event->number, sizeof event->number);
    }
    return CUDA_SUCCESS;
}

static bool is_cooperative(const CUlaunchConfig& config, uint32_t flags) {
    bool wanted = (flags & wire::launch_cooperative) != 0;
    for (unsigned i = 0; i < config.numAttrs; ++i)
        if (config.attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) wanted |= config.attrs[i].value.cooperative != 0;
    return wanted;
}

// All blocks must be on the GPU at once. The driver is asked how many fit once per shape; the answer is remembered.
static CUresult check_cooperative(CUfunction function, const CUlaunchConfig& config, const Device& device) {
    int fit = 0;
    auto threads = static_cast<int>(config.blockDimX * config.blockDimY * config.blockDimZ);
    auto result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&fit, function, threads, config.sharedMemBytes);
    if (result != CUDA_SUCCESS) return result;
    auto room =
        static_cast<uint64_t>(fit) * static_cast<uint64_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    uint64_t blocks = uint64_t{config.gridDimX} * config.gridDimY * config.gridDimZ;
    return blocks <= room ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

static CUresult launch(CUfunction handle, const CUlaunchConfig& config, uint32_t flags, void** list, void** extra) {
    auto* function = find_function(handle);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    auto& kernel = *function->info.load();
    if (list && extra) return CUDA_ERROR_INVALID_VALUE;
    if (config.numAttrs > wire::launch_attributes_max || (config.numAttrs > 0 && !config.attrs))
        return CUDA_ERROR_INVALID_VALUE;
    StreamRef stream;
    if (auto result = resolve_stream(config.hStream, stream); result != CUDA_SUCCESS) return result;
    Context* context = nullptr;
    if (auto result = context_of_stream(stream, context); result != CUDA_SUCCESS) return result;

    wire::Launch<> record{function->number,
                          stream.number,
                          {config.gridDimX, config.gridDimY, config.gridDimZ},
                          {config.blockDimX, config.blockDimY, config.blockDimZ},
                          config.sharedMemBytes,
                          flags,
                          config.numAttrs,
                          0};
    auto& device = *find_device(context->device);
    if (auto result = check_shape(record, device, *function); result != CUDA_SUCCESS) return result;
    if (is_cooperative(config, flags))
        if (auto result = check_cooperative(handle, config, device); result != CUDA_SUCCESS) return result;
    wire::LaunchAttribute attributes[wire::launch_attributes_max];
    for (unsigned i = 0; i < config.numAttrs; ++i)
        if (auto result = make_attribute(config.attrs[i], attributes[i]); result != CUDA_SUCCESS) return result;
    Parameters parameters;
    auto collected = extra ? from_extra(extra, kernel, parameters) : from_list(list, kernel, parameters);
    if (collected != CUDA_SUCCESS) return collected;
    record.parameter_bytes = static_cast<uint32_t>(parameters.bytes);

    if (profiling()) profile_kernel(function->number, kernel.name);
    return submit(record.op, *context, stream,
                  {wire::packed(record),
                   std::as_bytes(std::span(attributes, config.numAttrs)),
                   {static_cast<const std::byte*>(parameters.buffer), parameters.bytes}});
}

}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                unsigned int shared_bytes, CUstream stream, void** parameters, void** extra) {
    return guarded("cuLaunchKernel", [&] {
        CUlaunchConfig config{grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, nullptr, 0};
        return launch(function, config, 0, parameters, extra);
    });
}

CUresult CUDAAPI cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                           unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                           unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                           void** parameters) {
    return guarded("cuLaunchCooperativeKernel", [&] {
        CUlaunchConfig config{grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, nullptr, 0};
        return launch(function, config, wire::launch_cooperative, parameters, nullptr);
    });
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
    return guarded("cuLaunchKernelEx", [&]() -> CUresult {
        if (!config) return CUDA_ERROR_INVALID_VALUE;
        return launch(function, *config, 0, parameters, extra);
    });
}

}  // extern "C"
