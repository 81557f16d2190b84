#include "gpu_server/emulated_gpu/driver/operation.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "gpu_server/emulated_gpu/driver/array.hpp"
#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/module.hpp"
#include "gpu_server/emulated_gpu/driver/print.hpp"
#include "gpu_server/emulated_gpu/driver/updatable_node.hpp"
#include "gpu_server/emulated_gpu/ptx/plain_access.hpp"

namespace tnr::emulated {
namespace {

void copy_row(uint64_t destination, uint64_t source, size_t bytes) {
    ptx::plain_move(pointer(destination), pointer(source), bytes);
}

bool is_sparse(const ArrayPlace& place) {
    return place.array && place.array->level().tiles;
}

// One side of a box: where byte `x` of a row is, and how many from there on lie beside each other, at most `bytes`.
struct BoxSide {
    const ArrayPlace& place;
    uint64_t address;
    size_t pitch, slice;

    std::byte* at(size_t x, size_t y, size_t z, uint64_t& bytes) const {
        if (!is_sparse(place)) return static_cast<std::byte*>(pointer(address + z * slice + y * pitch + x));
        uint64_t there = 0;
        auto* found = place.array->level().at(place.x_bytes + x, place.y + y, place.z + z, there);
        bytes = std::min(bytes, there);
        return found;
    }
};

// What is nowhere is zero, and what is written there is lost.
void copy_tiles(const Copy& copy) {
    const BoxSide to{copy.destination_array, copy.destination, copy.destination_pitch, copy.destination_slice};
    const BoxSide from{copy.source_array, copy.source, copy.source_pitch, copy.source_slice};
    for (size_t z = 0; z < copy.depth; ++z)
        for (size_t y = 0; y < copy.height; ++y)
            for (size_t x = 0; x < copy.width;) {
                uint64_t bytes = copy.width - x;
                auto* destination = to.at(x, y, z, bytes);
                auto* source = from.at(x, y, z, bytes);
                if (destination && source) ptx::plain_move(destination, source, bytes);
                if (destination && !source) std::memset(destination, 0, bytes);
                x += bytes;
            }
}

}  // namespace

void perform(Context& context, const Copy& copy) {
    if (context.faulted()) return;
    if (is_sparse(copy.destination_array) || is_sparse(copy.source_array)) return copy_tiles(copy);
    for (size_t z = 0; z < copy.depth; ++z)
        for (size_t y = 0; y < copy.height; ++y)
            copy_row(copy.destination + z * copy.destination_slice + y * copy.destination_pitch,
                     copy.source + z * copy.source_slice + y * copy.source_pitch, copy.width);
}

namespace {

// What one core fills faster than a thread begins to help it.
constexpr size_t filled_alone_bytes = size_t{32} << 20;

// As copies of a block, which is fast also where nothing is optimised. The block lies beside the memory: what a kernel of
// another stream does to a part of that meanwhile must not get into the rest.
template <class T>
void fill_part(T* part, unsigned value, size_t count) {
    std::array<T, (size_t{16} << 10) / sizeof(T)> block;
    std::fill_n(block.begin(), std::min(block.size(), count), static_cast<T>(value));
    for (size_t done = 0; done < count; done += block.size())
        ptx::plain_move(part + done, block.data(), std::min(block.size(), count - done) * sizeof(T));
}

// A large one on all cores: 2 GiB, as a wipe fills them twice, take two cores half of one's time.
template <class T>
void fill_row(uint64_t address, unsigned value, size_t count) {
    T* row = static_cast<T*>(pointer(address));
    const size_t parts = count * sizeof(T) < filled_alone_bytes ? 1 : std::max(1u, std::thread::hardware_concurrency());
    const size_t share = count / parts;
    std::vector<std::thread> helpers;
    try {
        while (helpers.size() + 1 < parts)
            helpers.emplace_back(fill_part<T>, row + helpers.size() * share, value, share);
    } catch (const std::system_error&) {
        // The process has all the threads that it may have.
    }
    fill_part(row + helpers.size() * share, value, count - helpers.size() * share);
    for (auto& helper : helpers) helper.join();
}

}  // namespace

void perform(Context& context, const Fill& fill) {
    if (context.faulted()) return;
    for (size_t y = 0; y < fill.height; ++y) {
        uint64_t row = fill.destination + y * fill.pitch;
        if (fill.element == 1)
            fill_row<uint8_t>(row, fill.value, fill.width);
        else if (fill.element == 2)
            fill_row<uint16_t>(row, fill.value, fill.width);
        else
            fill_row<uint32_t>(row, fill.value, fill.width);
    }
}

namespace {

CUresult code_of(ptx::Outcome outcome) {
    switch (outcome) {
        case ptx::Outcome::done:
        case ptx::Outcome::cancelled:
            return CUDA_SUCCESS;
        case ptx::Outcome::illegal_address:
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        case ptx::Outcome::misaligned_address:
            return CUDA_ERROR_MISALIGNED_ADDRESS;
        case ptx::Outcome::deadlock:  // a GPU would hang until its watchdog says this
            return CUDA_ERROR_LAUNCH_TIMEOUT;
        case ptx::Outcome::trap:
            return CUDA_ERROR_LAUNCH_FAILED;
        case ptx::Outcome::assert_failed:
            return CUDA_ERROR_ASSERT;
        case ptx::Outcome::illegal_instruction:
            return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    }
    return CUDA_ERROR_UNKNOWN;
}

}  // namespace

namespace {

// CUDA's runtime has the driver's numbers for attributes and for these errors.
class KernelDevice : public ptx::DeviceAround {
public:
    explicit KernelDevice(const Device& device) : device_(device) {}
    int32_t number() const override { return device_.ordinal; }
    int32_t count(int32_t& count) const override { return cuDeviceGetCount(&count); }
    int32_t attribute(int32_t attribute, int32_t device, int32_t& value) const override {
        return cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), device);
    }

private:
    const Device& device_;
};

// How many blocks the device holds, whatever registers and shared memory they take: those are estimates.
uint64_t resident_blocks_of(const GpuType& type, const ptx::Dim3& block) {
    auto threads = uint64_t{block.x} * block.y * block.z;
    auto each = std::min<uint64_t>(blocks_per_multiprocessor, threads_per_multiprocessor / threads);
    return each * static_cast<uint64_t>(type.multiprocessors);
}

}  // namespace

void perform(Context& context, const KernelLaunch& launch, ptx::GraphAround* graph) {
    if (context.faulted()) return;
    KernelMemory memory(context, launch.bound.get());
    Module& module = *launch.function->module();
    ptx::Launch run;
    run.module = module.code.get();
    run.kernel = launch.function->kernel().index;
    run.global_addresses = module.global_addresses;
    run.grid = launch.grid;
    run.block = launch.block;
    run.dynamic_shared_bytes = launch.dynamic_shared_bytes;
    run.parameters = launch.parameters;
    run.cooperative = launch.cooperative;
    run.resident_blocks = resident_blocks_of(*context.device.type, launch.block);
    run.clock_khz = static_cast<uint32_t>(context.device.type->clock_khz);
    run.cluster = launch.cluster;
    run.memory = &memory;
    run.heap = {context.id, context.limits[CU_LIMIT_MALLOC_HEAP_SIZE]};
    run.print = [](void*, std::string_view text) { buffer_print(text); };
    run.set_condition = set_condition;
    run.update_node = update_node;
    run.graph = graph;
    KernelDevice device(context.device);
    run.device = &device;
    run.cancelled = context.cancelled();
    ptx::Report report = ptx::run(run);
    CUresult code = code_of(report.outcome);
    if (code == CUDA_SUCCESS) return;
    log_debug(report.detail);
    set_last_error(report.detail);
    context.fail(code);
}

constinit thread_local bool in_program_function = false;

void perform(Context& context, const HostCall& call) {
    if (context.faulted()) return;
    flush_print();
    call_program_function(call.function, call.data);
}

namespace {

void perform_any(Context& context, const Operation& operation) {
    std::visit([&](const auto& work) { perform(context, work); }, operation);
}

}  // namespace

CUresult enqueue(Stream& stream, Operation operation) {
    bool captured = false;
    if (CUresult error = capture(stream, operation, captured)) return error;
    if (captured) return CUDA_SUCCESS;
    stream.context.submit(
        stream, [&context = stream.context, operation = std::move(operation)] { perform_any(context, operation); });
    return CUDA_SUCCESS;
}

CUresult enqueue_and_wait(Stream& stream, Operation operation) {
    if (CUresult error = refuse_wait(stream)) return error;
    stream.context.run(stream, [&] { perform_any(stream.context, operation); });
    flush_print();
    return stream.context.status();
}

}  // namespace tnr::emulated
