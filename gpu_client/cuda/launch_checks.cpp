// See launch_checks.hpp.
#include "gpu_client/cuda/launch_checks.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "gpu_client/cuda/host_memory.hpp"

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

CUresult check_shape(const wire::Launch<>& launch, bool cooperative, const Device& device, const Function& function) {
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
        return cooperative ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult check_cluster(const CUlaunchConfig& config, const Function& function) {
    auto& kernel = *function.info.load();
    auto attribute = [&](int id) {
        return static_cast<uint32_t>(id) < kernel.attribute_count ? static_cast<uint32_t>(kernel.attributes[id].load())
                                                                  : 0;
    };
    uint32_t size[3] = {};
    bool asked = false, fixed = false;
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        if (config.attrs[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
        auto& wanted = config.attrs[i].value.clusterDim;
        size[0] = wanted.x, size[1] = wanted.y, size[2] = wanted.z;
        asked = true;
    }
    if (!asked && !attribute(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET)) return CUDA_SUCCESS;
    for (int i = 0; i < 3; ++i) {
        uint32_t required = attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i);
        if (!required) continue;
        if (asked && size[i] != required) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        size[i] = required;
        fixed = true;
    }
    if (!asked && !fixed) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    // What every GPU with clusters has; more than that each kernel must be allowed, and the GPU may have less.
    constexpr uint64_t portable = 8, not_portable = 16;
    uint64_t most = attribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) ? not_portable : portable;
    uint64_t blocks = uint64_t{size[0]} * size[1] * size[2];
    bool whole =
        blocks && config.gridDimX % size[0] == 0 && config.gridDimY % size[1] == 0 && config.gridDimZ % size[2] == 0;
    return whole && blocks <= most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

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
    // Each parameter must begin in it. Of the last, the end may be missing: NCCL gives of its 4 KiB what it has filled in.
    size_t least = kernel.parameters.empty() ? 0 : kernel.parameters.back().offset + size_t{1};
    bool fits = parameters.bytes >= least && parameters.bytes <= wire::parameter_bytes_max;
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

void Parameters::pack() {
    if (buffer == packed || bytes == 0) return;
    std::memcpy(packed, buffer, bytes);
    buffer = packed;
}

// Memory that cannot be mapped stays where it is: maybe the kernel only passes the number on. Where the GPU has no room
// for it, the launch says so: the kernel would fault.
static CUresult put_gpu_address(Context& context, uint64_t address, size_t offset, Parameters& parameters) {
    uint64_t device = 0;
    auto result = find_elsewhere(context, address, device);
    if (result != CUDA_SUCCESS) return result == CUDA_ERROR_OUT_OF_MEMORY ? result : CUDA_SUCCESS;
    parameters.pack();
    std::memcpy(parameters.packed + offset, &device, sizeof device);
    return CUDA_SUCCESS;
}

// What the upper halves of all addresses in a span have in common.
struct AddressPrefix {
    explicit AddressPrefix(const AddressSpan& span)
        : mask(~uint32_t{0} << std::bit_width(static_cast<uint32_t>((span.first ^ (span.behind - 1)) >> 32))),
          bits(static_cast<uint32_t>(span.first >> 32) & mask) {}
    uint32_t mask, bits;
};

// False if no word of the block can be an address in the span. A processor looks at several words at a time here: large
// structs take four times as long word by word.
constexpr size_t address_block_bytes = 512;
static bool may_hold_address(const std::byte* block, const AddressPrefix& prefix) {
    using Halves [[gnu::vector_size(16)]] = uint32_t;  // of two words
    auto hits_at = [&](size_t at) {
        Halves halves;
        std::memcpy(&halves, block + at, sizeof halves);
        return Halves((halves & prefix.mask) == prefix.bits);
    };
    Halves hits{};
    for (size_t at = 0; at < address_block_bytes; at += 64)
        hits |= hits_at(at) | hits_at(at + 16) | hits_at(at + 32) | hits_at(at + 48);
    return (hits[1] | hits[3]) != 0;
}

// A parameter may be a struct: each of its words that is aligned as an address would be may be one.
static CUresult put_gpu_addresses(Context& context, const KernelInfo& kernel, Parameters& parameters) {
    const auto elsewhere = addresses_elsewhere();
    if (elsewhere.first >= elsewhere.behind) return CUDA_SUCCESS;
    const AddressPrefix prefix(elsewhere);
    constexpr size_t word = sizeof(uint64_t);
    for (auto [offset, size] : kernel.parameters) {
        const size_t end = std::min(size_t{offset} + size, parameters.bytes);
        size_t at = (offset + word - 1) / word * word, next_block = at;
        while (at + word <= end) {
            const auto* from = static_cast<const std::byte*>(parameters.buffer) + at;
            if (at == next_block && at + address_block_bytes <= end) {
                next_block += address_block_bytes;
                if (!may_hold_address(from, prefix)) {
                    at = next_block;
                    continue;
                }
            }
            uint64_t address = 0;
            std::memcpy(&address, from, word);
            if (address >= elsewhere.first && address < elsewhere.behind)
                if (auto result = put_gpu_address(context, address, at, parameters); result != CUDA_SUCCESS)
                    return result;
            at += word;
        }
    }
    return CUDA_SUCCESS;
}

CUresult collect_parameters(Context& context, const KernelInfo& kernel, void** list, void** extra,
                            Parameters& parameters) {
    if (list && extra) return CUDA_ERROR_INVALID_VALUE;
    auto result = extra ? from_extra(extra, kernel, parameters) : from_list(list, kernel, parameters);
    return result == CUDA_SUCCESS ? put_gpu_addresses(context, kernel, parameters) : result;
}

}  // namespace tnr::cuda
