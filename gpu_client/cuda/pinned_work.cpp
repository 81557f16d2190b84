// See pinned_work.hpp; and what generated calls do with pinned memory where cuda.calls says `|pinned`, and what of fills
// is refused here.
#include "gpu_client/cuda/pinned_work.hpp"

#include <cstring>
#include <functional>

#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/host_functions.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/shared_memory.hpp"
#include "gpu_client/cuda/streams.hpp"

namespace tnr::cuda {

static std::byte* written_at(uint64_t address) {
    return handle_of<std::byte*>(address);
}

namespace {

// Work that waits for its stream. While it lives, copies to the GPU do not read what it writes.
class StreamWork {
public:
    StreamWork(const void* written, size_t bytes, std::vector<PinnedRange> used, std::function<void()> work)
        : used_(std::move(used)), write_(written, bytes), work_(std::move(work)) {}
    void run() { work_(); }

private:
    UsedMemory used_;  // tells all when the write has ended, too
    PendingWrite write_;
    std::function<void()> work_;
};

}  // namespace

UsedMemory::UsedMemory(std::vector<PinnedRange> ranges) : ranges_(std::move(ranges)) {
    for (auto& range : ranges_) range.in_flight->fetch_add(1);
}

UsedMemory::~UsedMemory() {
    for (auto& range : ranges_) range.in_flight->fetch_sub(1);
    for (auto* session : open_sessions()) {
        session->poke();
        session->memory_freed();
    }
}

static CUresult run_or_wait(CUstream stream, bool wait, const void* written, size_t bytes,
                            std::vector<PinnedRange> used, std::function<void()> work) {
    if (wait) {
        if (auto result = cuStreamSynchronize(stream); result != CUDA_SUCCESS) return result;
        work();
        return CUDA_SUCCESS;
    }
    StreamRef in;
    if (auto result = resolve_stream(stream, in); result != CUDA_SUCCESS) return result;
    if (is_captured(in))
        return run_in_stream(stream, std::move(work));  // at launches, when the memory must still be there
    auto later = std::make_shared<StreamWork>(written, bytes, std::move(used), std::move(work));
    return run_in_stream(stream, [later] { later->run(); });
}

static void fill_rows(const Fill& fill) {
    for (size_t row = 0; row < fill.height; ++row) {
        auto* at = written_at(fill.address + row * fill.pitch);
        if (fill.unit == 1)
            std::memset(at, static_cast<int>(fill.value), fill.width);
        else
            for (size_t i = 0; i < fill.width; ++i) std::memcpy(at + i * fill.unit, &fill.value, fill.unit);
    }
}

// What a driver refuses of a fill whatever memory it is for. The worker's would do so after the call, and a later call of
// the program would have to answer for it.
static CUresult check_fill(const Fill& fill) {
    if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
    if (fill.width > SIZE_MAX / fill.unit || fill.address % fill.unit != 0 || fill.pitch % fill.unit != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const size_t row_bytes = fill.width * fill.unit;
    if (fill.height == 1) return CUDA_SUCCESS;
    bool sound = fill.pitch >= row_bytes && fill.height - 1 <= (SIZE_MAX - row_bytes) / fill.pitch;
    return sound ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fill_pinned(const Fill& fill, CUstream stream, bool wait) {
    if (auto result = check_fill(fill); result != CUDA_SUCCESS) return result;
    if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
    const size_t bytes = extent(fill.width * fill.unit, fill.height, fill.pitch);
    const void* start = written_at(fill.address);
    PinnedRange range;
    if (!find_pinned(start, bytes, range)) return CUDA_ERROR_INVALID_VALUE;
    return run_or_wait(stream, wait, start, bytes, {range}, [fill] { fill_rows(fill); });
}

bool is_done_at_once(uint64_t to, uint64_t from, CUstream stream) {
    auto of_host = [](uint64_t address) {
        PinnedRange range;
        return !is_device_address(address) || find_pinned(handle_of<const void*>(address), 1, range);
    };
    StreamRef in;
    return of_host(to) && of_host(from) && resolve_stream(stream, in) == CUDA_SUCCESS && !is_captured(in);
}

// Runs after the stream's earlier work. Memory that is not pinned may be gone by then, so the call waits.
CUresult copy_on_host(HostRows to, HostRows from, CUstream stream, bool wait) {
    StreamRef in;
    if (auto result = resolve_stream(stream, in); result != CUDA_SUCCESS) return result;
    if (from.row_bytes == 0 || from.rows == 0) return CUDA_SUCCESS;
    if (!to.address || !from.address) return CUDA_ERROR_INVALID_VALUE;
    const uint64_t written = extent(to.row_bytes, to.rows, to.pitch);
    const uint64_t read = extent(from.row_bytes, from.rows, from.pitch);
    if (is_pinned_in_part(to.address, written) || is_pinned_in_part(from.address, read))
        return CUDA_ERROR_INVALID_VALUE;
    PinnedRange range_to, range_from;
    bool pinned = find_pinned(to.address, written, range_to) && find_pinned(from.address, read, range_from);
    bool waits = wait || (!pinned && !is_captured(in));
    return run_or_wait(stream, waits, to.address, written, {range_to, range_from}, [to, from] {
        for (uint64_t row = 0; row < from.rows; ++row)
            std::memmove(to.address + row * to.pitch, from.address + row * from.pitch, from.row_bytes);
    });
}

CUresult finish_shared(uint64_t address, CUstream stream) {
    SharedMemory shared;
    Allocation allocation;
    const bool waits = (anything_shared() && find_shared(address, shared)) ||
                       (any_sync_memops && find_allocation(address, allocation) && allocation.sync_memops);
    return waits ? cuStreamSynchronize(stream) : CUDA_SUCCESS;
}

void note_cuMemsetD8_v2(CUdeviceptr address, unsigned char, size_t) {
    (void)finish_shared(address, nullptr);
}
void note_cuMemsetD16_v2(CUdeviceptr address, unsigned short, size_t) {
    (void)finish_shared(address, nullptr);
}
void note_cuMemsetD32_v2(CUdeviceptr address, unsigned, size_t) {
    (void)finish_shared(address, nullptr);
}
void note_cuMemsetD2D8_v2(CUdeviceptr address, size_t, unsigned char, size_t, size_t) {
    (void)finish_shared(address, nullptr);
}
void note_cuMemsetD2D16_v2(CUdeviceptr address, size_t, unsigned short, size_t, size_t) {
    (void)finish_shared(address, nullptr);
}
void note_cuMemsetD2D32_v2(CUdeviceptr address, size_t, unsigned, size_t, size_t) {
    (void)finish_shared(address, nullptr);
}

CUresult check_cuMemsetD2D8_v2(CUdeviceptr address, size_t pitch, unsigned char, size_t width, size_t height) {
    return check_fill({address, 0, 1, width, height, pitch});
}
CUresult check_cuMemsetD2D16_v2(CUdeviceptr address, size_t pitch, unsigned short, size_t width, size_t height) {
    return check_fill({address, 0, 2, width, height, pitch});
}
CUresult check_cuMemsetD2D32_v2(CUdeviceptr address, size_t pitch, unsigned, size_t width, size_t height) {
    return check_fill({address, 0, 4, width, height, pitch});
}
CUresult check_cuMemsetD2D8Async(CUdeviceptr address, size_t pitch, unsigned char, size_t width, size_t height,
                                 CUstream) {
    return check_fill({address, 0, 1, width, height, pitch});
}
CUresult check_cuMemsetD2D16Async(CUdeviceptr address, size_t pitch, unsigned short, size_t width, size_t height,
                                  CUstream) {
    return check_fill({address, 0, 2, width, height, pitch});
}
CUresult check_cuMemsetD2D32Async(CUdeviceptr address, size_t pitch, unsigned, size_t width, size_t height, CUstream) {
    return check_fill({address, 0, 4, width, height, pitch});
}

CUresult pinned_cuMemsetD8_v2(CUdeviceptr address, unsigned char value, size_t count) {
    return fill_pinned({address, value, 1, count}, nullptr, true);
}
CUresult pinned_cuMemsetD16_v2(CUdeviceptr address, unsigned short value, size_t count) {
    return fill_pinned({address, value, 2, count}, nullptr, true);
}
CUresult pinned_cuMemsetD32_v2(CUdeviceptr address, unsigned value, size_t count) {
    return fill_pinned({address, value, 4, count}, nullptr, true);
}
CUresult pinned_cuMemsetD2D8_v2(CUdeviceptr address, size_t pitch, unsigned char value, size_t width, size_t height) {
    return fill_pinned({address, value, 1, width, height, pitch}, nullptr, true);
}
CUresult pinned_cuMemsetD2D16_v2(CUdeviceptr address, size_t pitch, unsigned short value, size_t width, size_t height) {
    return fill_pinned({address, value, 2, width, height, pitch}, nullptr, true);
}
CUresult pinned_cuMemsetD2D32_v2(CUdeviceptr address, size_t pitch, unsigned value, size_t width, size_t height) {
    return fill_pinned({address, value, 4, width, height, pitch}, nullptr, true);
}
CUresult pinned_cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
    return fill_pinned({address, value, 1, count}, stream, false);
}
CUresult pinned_cuMemsetD16Async(CUdeviceptr address, unsigned short value, size_t count, CUstream stream) {
    return fill_pinned({address, value, 2, count}, stream, false);
}
CUresult pinned_cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t count, CUstream stream) {
    return fill_pinned({address, value, 4, count}, stream, false);
}
CUresult pinned_cuMemsetD2D8Async(CUdeviceptr address, size_t pitch, unsigned char value, size_t width, size_t height,
                                  CUstream stream) {
    return fill_pinned({address, value, 1, width, height, pitch}, stream, false);
}
CUresult pinned_cuMemsetD2D16Async(CUdeviceptr address, size_t pitch, unsigned short value, size_t width, size_t height,
                                   CUstream stream) {
    return fill_pinned({address, value, 2, width, height, pitch}, stream, false);
}
CUresult pinned_cuMemsetD2D32Async(CUdeviceptr address, size_t pitch, unsigned value, size_t width, size_t height,
                                   CUstream stream) {
    return fill_pinned({address, value, 4, width, height, pitch}, stream, false);
}

}  // namespace tnr::cuda
