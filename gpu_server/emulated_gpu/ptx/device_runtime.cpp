// See device_runtime.hpp.
#include "gpu_server/emulated_gpu/ptx/device_runtime.hpp"

#include <algorithm>
#include <map>

#include "gpu_server/emulated_gpu/ptx/access.hpp"
#include "gpu_server/emulated_gpu/ptx/builtin_call.hpp"

namespace tnr::ptx {
namespace {

struct Named {
    std::string_view name;
    Builtin builtin;
};
constexpr Named names[] = {
    {"GetParameterBufferV2", Builtin::child_parameters},
    {"LaunchDeviceV2", Builtin::child_launch},
    {"LaunchDeviceV2_ptsz", Builtin::child_launch},
    {"StreamCreateWithFlags", Builtin::child_stream},
    {"StreamDestroy", Builtin::child_stream_end},
    {"EventCreateWithFlags", Builtin::child_stream},
    {"EventDestroy", Builtin::child_stream_end},
    {"EventRecord", Builtin::child_event_record},
    {"EventRecord_ptsz", Builtin::child_event_record},
    {"StreamWaitEvent", Builtin::child_event_wait},
    {"StreamWaitEvent_ptsz", Builtin::child_event_wait},
    {"Malloc", Builtin::child_malloc},
    {"Free", Builtin::child_free},
    {"MemcpyAsync", Builtin::child_copy},
    {"MemcpyAsync_ptsz", Builtin::child_copy},
    {"MemsetAsync", Builtin::child_fill},
    {"MemsetAsync_ptsz", Builtin::child_fill},
    {"Memcpy2DAsync", Builtin::child_copy_rows},
    {"Memcpy2DAsync_ptsz", Builtin::child_copy_rows},
    {"Memset2DAsync", Builtin::child_fill_rows},
    {"Memset2DAsync_ptsz", Builtin::child_fill_rows},
    {"GetDevice", Builtin::child_device},
    {"GetDeviceCount", Builtin::child_device_count},
    {"DeviceGetAttribute", Builtin::child_device_attribute},
    {"GetLastError", Builtin::child_last_error},
    {"PeekAtLastError", Builtin::child_peek_error},
    {"GetErrorName", Builtin::child_error_name},
    {"GetErrorString", Builtin::child_error_text},
};

// What kernels can get of the functions here, as cudart calls it.
struct KnownError {
    int32_t number;
    std::string_view name, text;
};
constexpr KnownError errors[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {12, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {65, "cudaErrorLaunchMaxDepthExceeded", "launch would exceed maximum depth of nested launches"},
    {69, "cudaErrorLaunchPendingCountExceeded", "launch would exceed maximum number of pending launches"},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
};
constexpr KnownError unknown = {-1, "unrecognized error code", "unrecognized error code"};
constexpr int32_t error_value = 1, error_memory = 2, error_configuration = 9, error_pitch = 12, error_device = 101;

uint64_t thread_number(const Warp& w, uint32_t lane) {
    auto& at = w.block->id;
    auto& grid = w.block->grid->launch->grid;
    uint64_t block = (uint64_t{at.z} * grid.y + at.y) * grid.x + at.x;
    return block * w.block->threads + w.index * warp_lanes + lane;
}

void answer(Warp& w, uint32_t lane, const Call& call, int32_t error) {
    if (error != 0) w.block->grid->children.note(thread_number(w, lane), error);
    result(w, lane, call, error);
}

template <class T>
bool write_result(Warp& w, uint32_t lane, uint64_t to, T value) {
    auto* at = generic_pointer(w, lane, to, sizeof value, true);
    if (!at) return memory_fault(w, to, lane, sizeof value, "write", false), false;
    std::memcpy(at, &value, sizeof value);
    return true;
}

// cudaGetParameterBufferV2(kernel, grid, block, bytes of shared memory)
void prepare(Warp& w, uint32_t lane, const Call& call) {
    ChildGrid child;
    child.grid = argument<Dim3>(w, lane, call, 1);
    child.block = argument<Dim3>(w, lane, call, 2);
    child.dynamic_shared_bytes = argument<uint32_t>(w, lane, call, 3);
    auto& grid = *w.block->grid;
    auto at = grid.children.prepare(*grid.launch, argument<uint64_t>(w, lane, call, 0), std::move(child));
    if (at == 0) grid.children.note(thread_number(w, lane), error_configuration);
    result(w, lane, call, at);
}

// cudaMalloc(&pointer, bytes)
void allocate(Warp& w, uint32_t lane, const Call& call) {
    auto address = allocate_in_heap(w, argument<uint64_t>(w, lane, call, 1));
    if (write_result(w, lane, argument<uint64_t>(w, lane, call, 0), address))
        answer(w, lane, call, address != 0 ? 0 : error_memory);
}

// cudaStreamCreateWithFlags(&stream, flags), cudaEventCreateWithFlags(&event, flags). All streams of a grid are alike
// (child_grids.hpp), and so are its events.
void make_stream(Warp& w, uint32_t lane, const Call& call) {
    constexpr uint64_t any_stream = 0x1000;
    if (write_result(w, lane, argument<uint64_t>(w, lane, call, 0), any_stream)) answer(w, lane, call, 0);
}

// cudaEventRecord(event, stream), cudaStreamWaitEvent(stream, event, flags). What is launched keeps its order anyhow;
// the streams for what nothing waits for take no events.
void order(Warp& w, uint32_t lane, const Call& call) {
    constexpr uint64_t tail_stream = 3, forgotten_stream = 4;
    auto stream = argument<uint64_t>(w, lane, call, call.builtin == Builtin::child_event_record ? 1 : 0);
    answer(w, lane, call, stream == tail_stream || stream == forgotten_stream ? error_value : 0);
}

void start(Warp& w, uint32_t lane, const Call& call, const Transfer& wanted, uint64_t stream) {
    // Neither the block's nor the thread's own memory is there when it happens.
    bool own = (wanted.to & window_mask) != 0 || (wanted.from.value_or(0) & window_mask) != 0;
    bool narrow = wanted.rows > 1 && (wanted.to_pitch < wanted.bytes || wanted.from_pitch < wanted.bytes);
    bool nothing = wanted.bytes == 0 || wanted.rows == 0;
    auto& children = w.block->grid->children;
    answer(w, lane, call, own ? error_value : narrow ? error_pitch : nothing ? 0 : children.add(wanted, stream));
}

// cudaMemcpyAsync(to, from, bytes, kind, stream), cudaMemsetAsync(to, value, bytes, stream)
void transfer(Warp& w, uint32_t lane, const Call& call) {
    bool copies = call.builtin == Builtin::child_copy;
    Transfer wanted;
    wanted.to = argument<uint64_t>(w, lane, call, 0);
    wanted.bytes = argument<uint64_t>(w, lane, call, 2);
    if (copies)
        wanted.from = argument<uint64_t>(w, lane, call, 1);
    else
        wanted.value = static_cast<uint8_t>(argument<int32_t>(w, lane, call, 1));
    start(w, lane, call, wanted, argument<uint64_t>(w, lane, call, copies ? 4 : 3));
}

// cudaMemcpy2DAsync(to, its pitch, from, its pitch, bytes, rows, kind, stream)
void copy_rows(Warp& w, uint32_t lane, const Call& call) {
    auto word = [&](size_t index) { return argument<uint64_t>(w, lane, call, index); };
    Transfer wanted;
    wanted.to = word(0), wanted.to_pitch = word(1);
    wanted.from = word(2), wanted.from_pitch = word(3);
    wanted.bytes = word(4), wanted.rows = word(5);
    start(w, lane, call, wanted, word(7));
}

// cudaMemset2DAsync(to, pitch, value, bytes, rows, stream)
void fill_rows(Warp& w, uint32_t lane, const Call& call) {
    auto word = [&](size_t index) { return argument<uint64_t>(w, lane, call, index); };
    Transfer wanted;
    wanted.to = word(0), wanted.to_pitch = wanted.from_pitch = word(1);
    wanted.value = static_cast<uint8_t>(argument<int32_t>(w, lane, call, 2));
    wanted.bytes = word(3), wanted.rows = word(4);
    start(w, lane, call, wanted, word(5));
}

// cudaGetDevice(&number), cudaGetDeviceCount(&count), cudaDeviceGetAttribute(&value, attribute, device)
void ask_device(Warp& w, uint32_t lane, const Call& call) {
    auto* device = w.block->grid->launch->device;
    if (!device) return answer(w, lane, call, error_device);
    int32_t value = 0, error = 0;
    if (call.builtin == Builtin::child_device)
        value = device->number();
    else if (call.builtin == Builtin::child_device_count)
        error = device->count(value);
    else
        error = device->attribute(argument<int32_t>(w, lane, call, 1), argument<int32_t>(w, lane, call, 2), value);
    if (error != 0 || write_result(w, lane, argument<uint64_t>(w, lane, call, 0), value)) answer(w, lane, call, error);
}

// In the device heap, once for each text, and never given back.
uint64_t address_of(std::string_view text) {
    static Mutex mutex;
    static auto& addresses = *new std::map<std::string_view, uint64_t>;  // kernels may run while the process ends
    LockGuard lock(mutex);
    auto& address = addresses[text];
    if (address == 0) address = DeviceHeap::instance().allocate_parameters(text.size() + 1);
    if (address != 0) *std::copy(text.begin(), text.end(), reinterpret_cast<char*>(address)) = 0;
    return address;
}

const KnownError& error_numbered(int32_t number) {
    for (auto& error : errors)
        if (error.number == number) return error;
    return unknown;
}

}  // namespace

Builtin device_runtime_named(std::string_view name) {
    for (auto& known : names)
        if (known.name == name) return known.builtin;
    return Builtin::none;
}

void call_device_runtime(Warp& w, uint32_t lane, const Call& call) {
    auto& children = w.block->grid->children;
    switch (call.builtin) {
        case Builtin::child_parameters:
            return prepare(w, lane, call);
        case Builtin::child_launch: {
            auto parameters = argument<uint64_t>(w, lane, call, 0), stream = argument<uint64_t>(w, lane, call, 1);
            return answer(w, lane, call, children.launch(parameters, stream));
        }
        case Builtin::child_stream:
            return make_stream(w, lane, call);
        case Builtin::child_stream_end:
            return answer(w, lane, call, 0);
        case Builtin::child_event_record:
        case Builtin::child_event_wait:
            return order(w, lane, call);
        case Builtin::child_malloc:
            return allocate(w, lane, call);
        case Builtin::child_free:
            DeviceHeap::instance().release(argument<uint64_t>(w, lane, call, 0));
            return answer(w, lane, call, 0);
        case Builtin::child_copy:
        case Builtin::child_fill:
            return transfer(w, lane, call);
        case Builtin::child_copy_rows:
            return copy_rows(w, lane, call);
        case Builtin::child_fill_rows:
            return fill_rows(w, lane, call);
        case Builtin::child_device:
        case Builtin::child_device_count:
        case Builtin::child_device_attribute:
            return ask_device(w, lane, call);
        case Builtin::child_last_error:
        case Builtin::child_peek_error: {
            bool forget = call.builtin == Builtin::child_last_error;
            return result(w, lane, call, children.last_error(thread_number(w, lane), forget));
        }
        case Builtin::child_error_name:
            return result(w, lane, call, address_of(error_numbered(argument<int32_t>(w, lane, call, 0)).name));
        case Builtin::child_error_text:
            return result(w, lane, call, address_of(error_numbered(argument<int32_t>(w, lane, call, 0)).text));
        default:
            return;
    }
}

}  // namespace tnr::ptx
