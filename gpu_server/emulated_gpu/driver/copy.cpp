// What all copies have in common: checks, and when a call may return.
#include "gpu_server/emulated_gpu/driver/copy.hpp"

#include <cstring>

#include "gpu_server/emulated_gpu/driver/array.hpp"
#include "gpu_server/emulated_gpu/driver/capture.hpp"

namespace tnr::emulated {
namespace {

// Pageable sources up to this size are copied aside, so that the call can return at once; CUDA does so
// for 64 KiB. Larger ones are copied before the call returns.
constexpr size_t staging_bytes_max = 64 << 10;

bool span_of(size_t width, size_t height, size_t depth, size_t pitch, size_t slice, uint64_t& bytes) {
    uint64_t rows = 0, slices = 0;
    return !__builtin_mul_overflow(height - 1, pitch, &rows) && !__builtin_mul_overflow(depth - 1, slice, &slices) &&
           !__builtin_add_overflow(rows, slices, &bytes) && !__builtin_add_overflow(bytes, width, &bytes);
}

// A side of which only the driver knows what it is: what it does not know is ordinary memory.
Side resolve(Side side, uint64_t address) {
    if (side != Side::either) return side;
    return known(address) ? Side::device : Side::host;
}

bool pinned(uint64_t address, uint64_t bytes) {
    return driver().addresses.covers(address, bytes);
}

// All of the program's memory is of one allocation, or registered, or nothing of it is.
bool is_host_whole(uint64_t address, uint64_t bytes) {
    auto& known = driver().addresses;
    auto first = known.find(address);
    if (first && first->type == MemoryType::host) return bytes <= first->end() - address;
    return !known.overlaps(address, bytes) || known.covers(address, bytes);
}

uint64_t destination_span(const Copy& copy) {
    uint64_t bytes = 0;
    span_of(copy.width, copy.height, copy.depth, copy.destination_pitch, copy.destination_slice, bytes);
    return bytes;
}

uint64_t source_span(const Copy& copy) {
    uint64_t bytes = 0;
    span_of(copy.width, copy.height, copy.depth, copy.source_pitch, copy.source_slice, bytes);
    return bytes;
}

bool lasting_destination(const Copy& copy) {
    return copy.destination_array.array || pinned(copy.destination, destination_span(copy));
}

// Is the memory of each side something that may still be used after the call has returned?
bool lasting(const Copy& copy) {
    return lasting_destination(copy) && (copy.source_array.array || pinned(copy.source, source_span(copy)));
}

// The same copy from memory of our own, which lives as long as the work.
CUresult copy_staged(Stream& stream, const Copy& copy) {
    auto bytes = std::make_shared<std::vector<std::byte>>(copy.width * copy.height * copy.depth);
    Copy staged = copy;
    staged.source = number(bytes->data());
    staged.source_pitch = copy.width;
    staged.source_slice = copy.width * copy.height;
    for (size_t z = 0; z < copy.depth; ++z)
        for (size_t y = 0; y < copy.height; ++y)
            std::memcpy(bytes->data() + z * staged.source_slice + y * staged.source_pitch,
                        pointer(copy.source + z * copy.source_slice + y * copy.source_pitch), copy.width);
    Context& context = stream.context;
    context.submit(stream, [&context, staged, bytes] { perform(context, staged); });
    return CUDA_SUCCESS;
}

// Between this context's device and another one, memory of a pool needs the pool's access. Memory of cuMemAlloc does not.
bool reaches(Context& context, const Copy& copy) {
    auto to = driver().addresses.find(copy.destination), from = driver().addresses.find(copy.source);
    if (!to || !from || to->type != MemoryType::device || from->type != MemoryType::device) return true;
    if (to->device == from->device) return true;
    auto may = [&](const Allocation& end) { return !end.owner || accessible(context, end); };
    bool involved = context.device.ordinal == to->device || context.device.ordinal == from->device;
    return !involved || (may(*to) && may(*from));
}

}  // namespace

Copy line(uint64_t destination, uint64_t source, size_t bytes) {
    Copy copy;
    copy.destination = destination;
    copy.source = source;
    copy.width = bytes;
    return copy;
}

CUresult check_copy(Context& context, const Copy& copy, Side destination, Side source) {
    if (copy.empty()) return CUDA_SUCCESS;
    uint64_t to = 0, from = 0;
    if (!span_of(copy.width, copy.height, copy.depth, copy.destination_pitch, copy.destination_slice, to) ||
        !span_of(copy.width, copy.height, copy.depth, copy.source_pitch, copy.source_slice, from))
        return CUDA_ERROR_INVALID_VALUE;
    if (!copy.destination || !copy.source) return CUDA_ERROR_INVALID_VALUE;
    auto sound = [&](Side side, uint64_t address, uint64_t bytes) {
        const Side found = resolve(side, address);
        if (found == Side::host) return is_host_whole(address, bytes);
        if (found != Side::device) return true;
        return copy.of_peers ? driver().addresses.covers(address, bytes) : usable(context, address, bytes);
    };
    bool both = sound(destination, copy.destination, to) && sound(source, copy.source, from) &&
                (copy.of_peers || reaches(context, copy));
    return both ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_fill(Context& context, const Fill& fill) {
    uint64_t bytes = 0, width = 0;
    if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
    if (fill.destination % fill.element || fill.pitch % fill.element) return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_mul_overflow(fill.width, fill.element, &width)) return CUDA_ERROR_INVALID_VALUE;
    if (fill.height > 1 && fill.pitch < width) return CUDA_ERROR_INVALID_VALUE;
    if (!span_of(width, fill.height, 1, fill.pitch, 0, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return usable(context, fill.destination, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Those that are not the copy's own, if it is between two devices. Memory that no context owns counts for the primary one.
static std::vector<Context*> other_contexts(Context& current, const Copy& copy) {
    if (copy.destination_array.array || copy.source_array.array) return {};
    auto to = driver().addresses.find(copy.destination), from = driver().addresses.find(copy.source);
    if (!to || !from || to->device == from->device) return {};
    std::vector<Context*> others;
    for (auto& end : {*to, *from}) {
        auto* one = end.context ? end.context : driver().devices[static_cast<size_t>(end.device)]->primary;
        if (one != &current && one->alive()) others.push_back(one);
    }
    return others;
}

// As NVIDIA's guide has it, a copy between two devices is in the default stream of both.
static CUresult copy_on_devices(Context& context, Stream& stream, const Copy& copy) {
    const auto others = other_contexts(context, copy);
    std::vector<Point> before;
    for (auto* other : others) before.push_back(other->submit(*other->stream(nullptr), [] {}));
    if (!before.empty())
        context.submit(
            stream, [] {}, std::move(before));
    if (CUresult error = enqueue(stream, copy)) return error;
    for (auto* other : others) other->submit(*other->stream(nullptr), [] {}, {stream.queue->last()});
    return CUDA_SUCCESS;
}

CUresult copy_now(Context& context, CUstream handle, const Copy& copy, Side destination, Side source) {
    auto stream = context.stream(handle);
    if (CUresult error = refuse_wait(*stream)) return error;
    if (CUresult error = check_copy(context, copy, destination, source)) return error;
    if (copy.empty()) return CUDA_SUCCESS;
    auto left_to_device = [](const ArrayPlace& place, uint64_t address) {
        if (place.array) return true;
        auto found = driver().addresses.find(address);
        return found && !found->is_host() && !found->sync_memops;
    };
    if (left_to_device(copy.destination_array, copy.destination) && left_to_device(copy.source_array, copy.source))
        return copy_on_devices(context, *stream, copy);
    return enqueue_and_wait(*stream, copy);
}

static bool is_of_host(const ArrayPlace& place, uint64_t address) {
    auto found = driver().addresses.find(address);
    return !place.array && (!found || found->is_host());
}

CUresult copy_later(CUstream handle, const Copy& copy, Side destination, Side source) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (CUresult error = check_copy(stream.context, copy, destination, source)) return error;
        if (copy.empty()) return CUDA_SUCCESS;
        if (is_capturing(stream)) return enqueue(stream, copy);
        // CUDA's pages say: from host to host, also what is called asynchronous is done when it returns.
        const bool named_so = destination != Side::device && source != Side::device;
        if (named_so && is_of_host(copy.destination_array, copy.destination) &&
            is_of_host(copy.source_array, copy.source))
            return enqueue_and_wait(stream, copy);
        if (lasting(copy))
            return stream.role == Stream::Role::legacy ? copy_on_devices(stream.context, stream, copy)
                                                       : enqueue(stream, copy);
        bool small = copy.height == 1 && copy.depth == 1 && copy.width <= staging_bytes_max;
        if (small && !copy.source_array.array && lasting_destination(copy)) return copy_staged(stream, copy);
        return enqueue_and_wait(stream, copy);
    });
}

CUresult copy_from_present(CUstream handle, const Copy& copy, Side destination, Side source) {
    if (!is_of_host(copy.source_array, copy.source)) return copy_later(handle, copy, destination, source);
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (is_capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // no launch could read it again
        if (CUresult error = check_copy(stream.context, copy, destination, source)) return error;
        if (lasting_destination(copy)) return copy_staged(stream, copy);
        return enqueue_and_wait(stream, copy);
    });
}

CUresult fill(CUstream handle, const Fill& fill, bool now) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (CUresult error = check_fill(stream.context, fill)) return error;
        if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
        auto found = driver().addresses.find(fill.destination);
        bool waits = now && found && (found->is_host() || found->sync_memops);
        return waits ? enqueue_and_wait(stream, fill) : enqueue(stream, fill);
    });
}

namespace {

// One side of CUDA_MEMCPY2D or 3D: which member holds the address depends on the memory type. An array's is found by
// place_in_array().
CUresult side_of(CUmemorytype type, const void* host, CUdeviceptr device, uint64_t& address, Side& side) {
    switch (type) {
        case CU_MEMORYTYPE_HOST:
            address = number(host);
            side = Side::host;
            return CUDA_SUCCESS;
        case CU_MEMORYTYPE_DEVICE:
            address = device;
            side = Side::device;
            return CUDA_SUCCESS;
        case CU_MEMORYTYPE_UNIFIED:
            address = device;
            side = Side::either;
            return CUDA_SUCCESS;
        case CU_MEMORYTYPE_ARRAY:
            side = Side::array;
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult place_in_array(CUarray handle, const Copy& copy, ArrayPlace& place, uint64_t& address, size_t& pitch,
                        size_t& slice) {
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    place.array = find<Array>(handle);
    if (!place.array) return CUDA_ERROR_INVALID_HANDLE;
    if (!place.array->planes.empty()) return CUDA_ERROR_INVALID_VALUE;
    auto& level = place.array->level();
    auto& image = place.array->image;
    const size_t row = size_t{image.units(level.width)} * image.unit_bytes();
    auto within = [](size_t at, size_t count, size_t size) { return at <= size && count <= size - at; };
    bool sound = within(place.x_bytes, copy.width, row) && within(place.y, copy.height, image.units(level.height)) &&
                 within(place.z, copy.depth, level.depth);
    if (!sound) return CUDA_ERROR_INVALID_VALUE;
    pitch = level.row_bytes;
    slice = level.slice_bytes;
    address = level.texels + place.z * slice + place.y * pitch + place.x_bytes;
    if (level.tiles) address = number(level.tiles);  // something, until it is looked up tile by tile
    return CUDA_SUCCESS;
}

// A pitch of 0 means rows without gaps.
bool settle_pitch(size_t& pitch, size_t width, size_t rows) {
    if (pitch == 0) pitch = width;
    return rows <= 1 || pitch >= width;
}

CUresult place_in_memory(size_t x, size_t y, size_t z, size_t slice_rows, const Copy& copy, Side side,
                         uint64_t& address, size_t& pitch, size_t& slice) {
    if (!settle_pitch(pitch, x + copy.width, copy.height * copy.depth)) return CUDA_ERROR_INVALID_VALUE;
    const bool short_slices = slice_rows < copy.height || slice_rows - copy.height < y;
    if (copy.depth > 1 && slice_rows != 0 && short_slices) return CUDA_ERROR_INVALID_VALUE;
    slice = pitch * (slice_rows != 0 ? slice_rows : copy.height);
    // What is pinned ends where it does, also for who names it as the host's.
    const bool has_end = side == Side::host && !copy.empty() && known(address);
    address += z * slice + y * pitch + x;
    uint64_t bytes = 0;
    bool whole =
        !has_end || (span_of(copy.width, copy.height, copy.depth, pitch, slice, bytes) && pinned(address, bytes));
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult box_of(const CUDA_MEMCPY2D& given, Copy& copy, Side& destination, Side& source) {
    CUDA_MEMCPY3D box{};
    box.srcXInBytes = given.srcXInBytes;
    box.srcY = given.srcY;
    box.srcMemoryType = given.srcMemoryType;
    box.srcHost = given.srcHost;
    box.srcDevice = given.srcDevice;
    box.srcArray = given.srcArray;
    box.srcPitch = given.srcPitch;
    box.dstXInBytes = given.dstXInBytes;
    box.dstY = given.dstY;
    box.dstMemoryType = given.dstMemoryType;
    box.dstHost = given.dstHost;
    box.dstDevice = given.dstDevice;
    box.dstArray = given.dstArray;
    box.dstPitch = given.dstPitch;
    box.WidthInBytes = given.WidthInBytes;
    box.Height = given.Height;
    box.Depth = 1;
    return box_of(box, copy, destination, source);
}

CUresult box_of(const CUDA_MEMCPY3D& given, Copy& copy, Side& destination, Side& source) {
    if (CUresult error = side_of(given.srcMemoryType, given.srcHost, given.srcDevice, copy.source, source))
        return error;
    if (CUresult error = side_of(given.dstMemoryType, given.dstHost, given.dstDevice, copy.destination, destination))
        return error;
    copy.width = given.WidthInBytes;
    copy.height = given.Height;
    copy.depth = given.Depth;
    copy.source_pitch = given.srcPitch;
    copy.destination_pitch = given.dstPitch;
    if (given.srcLOD || given.dstLOD) return CUDA_ERROR_INVALID_VALUE;
    if (source == Side::array) {
        copy.source_array = {nullptr, given.srcXInBytes, given.srcY, given.srcZ};
        if (CUresult error = place_in_array(given.srcArray, copy, copy.source_array, copy.source, copy.source_pitch,
                                            copy.source_slice))
            return error;
    } else if (CUresult error = place_in_memory(given.srcXInBytes, given.srcY, given.srcZ, given.srcHeight, copy,
                                                source, copy.source, copy.source_pitch, copy.source_slice)) {
        return error;
    }
    if (destination == Side::array) {
        copy.destination_array = {nullptr, given.dstXInBytes, given.dstY, given.dstZ};
        return place_in_array(given.dstArray, copy, copy.destination_array, copy.destination, copy.destination_pitch,
                              copy.destination_slice);
    }
    return place_in_memory(given.dstXInBytes, given.dstY, given.dstZ, given.dstHeight, copy, destination,
                           copy.destination, copy.destination_pitch, copy.destination_slice);
}

CUresult array_line(CUarray handle, size_t offset, size_t bytes, uint64_t& address, ArrayPlace& place) {
    Copy line;
    line.width = bytes;
    place.x_bytes = offset;
    return place_in_array(handle, line, place, address, line.source_pitch, line.source_slice);
}

}  // namespace tnr::emulated
