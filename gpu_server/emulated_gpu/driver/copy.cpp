// What all copies have in common: checks, and when a call may return.
#include "gpu_server/emulated_gpu/driver/copy.hpp"

#include <cstring>

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

// Is the memory of each side something that may still be used after the call has returned?
bool lasting(const Copy& copy) {
    return pinned(copy.destination, destination_span(copy)) && pinned(copy.source, source_span(copy));
}

// The same copy from memory of our own, which lives as long as the work.
CUresult copy_staged(Stream& stream, const Copy& copy) {
    auto bytes = std::make_shared<std::vector<std::byte>>(copy.width);
    std::memcpy(bytes->data(), pointer(copy.source), copy.width);
    Copy staged = copy;
    staged.source = number(bytes->data());
    Context& context = stream.context;
    context.submit(stream, [&context, staged, bytes] { perform(context, staged); });
    return CUDA_SUCCESS;
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
    if (resolve(destination, copy.destination) == Side::device && !usable(context, copy.destination, to))
        return CUDA_ERROR_INVALID_VALUE;
    if (resolve(source, copy.source) == Side::device && !usable(context, copy.source, from))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
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

CUresult copy_now(Context& context, CUstream handle, const Copy& copy, Side destination, Side source) {
    auto stream = context.stream(handle);
    if (CUresult error = refuse_wait(*stream)) return error;
    if (CUresult error = check_copy(context, copy, destination, source)) return error;
    if (copy.empty()) return CUDA_SUCCESS;
    auto on_device = [](uint64_t address) {
        auto found = driver().addresses.find(address);
        return found && !found->is_host();
    };
    if (on_device(copy.destination) && on_device(copy.source)) return enqueue(*stream, copy);
    return enqueue_and_wait(*stream, copy);
}

CUresult copy_later(CUstream handle, const Copy& copy, Side destination, Side source) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (CUresult error = check_copy(stream.context, copy, destination, source)) return error;
        if (copy.empty()) return CUDA_SUCCESS;
        if (lasting(copy) || is_capturing(stream)) return enqueue(stream, copy);
        bool small = copy.height == 1 && copy.depth == 1 && copy.width <= staging_bytes_max;
        if (small && pinned(copy.destination, destination_span(copy))) return copy_staged(stream, copy);
        return enqueue_and_wait(stream, copy);
    });
}

CUresult fill(CUstream handle, const Fill& fill, bool now) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (CUresult error = check_fill(stream.context, fill)) return error;
        if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
        auto found = driver().addresses.find(fill.destination);
        return now && found && found->is_host() ? enqueue_and_wait(stream, fill) : enqueue(stream, fill);
    });
}

namespace {

// One side of CUDA_MEMCPY2D or 3D: which member holds the address depends on the memory type.
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
            return CUDA_ERROR_NOT_SUPPORTED;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

// A pitch of 0 means rows without gaps.
bool settle_pitch(size_t& pitch, size_t width, size_t rows) {
    if (pitch == 0) pitch = width;
    return rows <= 1 || pitch >= width;
}

}  // namespace

CUresult box_of(const CUDA_MEMCPY2D& given, Copy& copy, Side& destination, Side& source) {
    CUDA_MEMCPY3D box{};
    box.srcXInBytes = given.srcXInBytes;
    box.srcY = given.srcY;
    box.srcMemoryType = given.srcMemoryType;
    box.srcHost = given.srcHost;
    box.srcDevice = given.srcDevice;
    box.srcPitch = given.srcPitch;
    box.dstXInBytes = given.dstXInBytes;
    box.dstY = given.dstY;
    box.dstMemoryType = given.dstMemoryType;
    box.dstHost = given.dstHost;
    box.dstDevice = given.dstDevice;
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
    size_t rows = copy.height * copy.depth;
    if (!settle_pitch(copy.source_pitch, given.srcXInBytes + copy.width, rows) ||
        !settle_pitch(copy.destination_pitch, given.dstXInBytes + copy.width, rows))
        return CUDA_ERROR_INVALID_VALUE;
    size_t source_rows = given.srcHeight ? given.srcHeight : copy.height;
    size_t destination_rows = given.dstHeight ? given.dstHeight : copy.height;
    if (copy.depth > 1 && (source_rows < copy.height || destination_rows < copy.height))
        return CUDA_ERROR_INVALID_VALUE;
    copy.source_slice = copy.source_pitch * source_rows;
    copy.destination_slice = copy.destination_pitch * destination_rows;
    copy.source += given.srcZ * copy.source_slice + given.srcY * copy.source_pitch + given.srcXInBytes;
    copy.destination += given.dstZ * copy.destination_slice + given.dstY * copy.destination_pitch + given.dstXInBytes;
    return CUDA_SUCCESS;
}

}  // namespace tnr::emulated
