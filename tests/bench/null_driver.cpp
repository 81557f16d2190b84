// A libcuda.so.1 whose GPU costs nothing: `tnr-gpu-server serve --driver` takes it, so that a benchmark's figures are the
// remoting's own. Behind it is the emulated driver, which keeps contexts, memory and code; what programs do a million
// times is answered here, at once:
//
//   launches           are dropped
//   copies and sets    up to `copied_bytes_max` are done before the call returns, larger ones are left out: a GPU's DMA
//                      engines cost the CPU nothing
//   events, streams    have completed, unless a host function is on its way before them in the same stream
//   host functions     run in order, on a thread per stream
//
// Handles are not checked, and the legacy stream does not wait for others. A cubin with the mark "BENCH" behind its ELF
// identification (rows_code.cpp makes it) stands for a big library's code: one empty kernel is loaded in its place.
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr size_t copied_bytes_max = size_t{64} << 10;
// By the call that waits, which the server uses to see whether memory was wiped.
constexpr size_t read_back_max = size_t{1} << 20;

constexpr char empty_kernel[] = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry nothing(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) { ret; }
)";

// Two copies of 256 MiB fit; all of it is overwritten after every claim.
__attribute__((constructor)) void configure() {
    setenv("TNR_EMULATED_GPUS", "h100:4", 0);
    setenv("TNR_EMULATED_MEMORY_MIB", "640", 0);
}

template <class Function>
Function* emulated(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
// Looked up once. The name is what cuda.h's macros make of it.
#define NAME_OF(function) #function
#define EMULATED(function)                                                    \
    ([]() -> decltype(&function) {                                            \
        static auto* found = emulated<decltype(function)>(NAME_OF(function)); \
        return found;                                                         \
    }())

// The host functions of one stream, in order.
class Queue {
public:
    uint64_t put(std::function<void()> run) {
        std::lock_guard lock(mutex_);
        waiting_.push_back(std::move(run));
        if (!std::exchange(has_thread_, true)) std::thread([this] { serve(); }).detach();
        changed_.notify_all();
        return ++submitted_;
    }
    uint64_t last() {
        std::lock_guard lock(mutex_);
        return submitted_;
    }
    bool passed(uint64_t ticket) {
        std::lock_guard lock(mutex_);
        return completed_ >= ticket;
    }
    void wait(uint64_t ticket) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return completed_ >= ticket; });
    }

private:
    void serve();

    std::mutex mutex_;  // guards everything below
    std::condition_variable changed_;
    std::deque<std::function<void()>> waiting_;
    uint64_t submitted_ = 0, completed_ = 0;
    bool has_thread_ = false;
};

struct Mark {
    Queue* queue;
    uint64_t ticket;
};

// What is not done yet. As long as nothing is, nobody takes a lock. Never destroyed: threads use it to the end.
struct Pending {
    std::atomic<int64_t> functions{0};
    std::atomic<size_t> marked{0};                      // events in `marks`
    std::mutex mutex;                                   // guards what follows; a Queue's own may be taken inside
    std::map<CUstream, std::unique_ptr<Queue>> queues;  // never shrinks: a few streams have host functions
    std::map<CUevent, Mark> marks;                      // events that were recorded behind a host function
};
Pending& pending() {
    static auto* all = new Pending;
    return *all;
}

void Queue::serve() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [&] { return !waiting_.empty(); });
        auto run = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        run();
        run = nullptr;
        lock.lock();
        ++completed_;
        pending().functions.fetch_sub(1);
        changed_.notify_all();
    }
}

CUstream key_of(CUstream stream) {
    return stream == CU_STREAM_LEGACY ? nullptr : stream;
}

// Null when nothing of the stream is on its way.
Mark end_of(CUstream stream) {
    auto& all = pending();
    if (all.functions == 0) return {};
    std::lock_guard lock(all.mutex);
    auto found = all.queues.find(key_of(stream));
    if (found == all.queues.end()) return {};
    Mark mark{found->second.get(), found->second->last()};
    return mark.queue->passed(mark.ticket) ? Mark{} : mark;
}

CUresult put(CUstream stream, std::function<void()> run) {
    auto& all = pending();
    std::lock_guard lock(all.mutex);
    auto& queue = all.queues[key_of(stream)];
    if (!queue) queue = std::make_unique<Queue>();
    all.functions.fetch_add(1);
    queue->put(std::move(run));
    return CUDA_SUCCESS;
}

Mark mark_of(CUevent event) {
    auto& all = pending();
    if (all.marked == 0) return {};
    std::lock_guard lock(all.mutex);
    auto found = all.marks.find(event);
    if (found == all.marks.end()) return {};
    if (!found->second.queue->passed(found->second.ticket)) return found->second;
    all.marks.erase(found);
    all.marked = all.marks.size();
    return {};
}

void set_mark(CUevent event, Mark mark) {
    auto& all = pending();
    if (!mark.queue && all.marked == 0) return;
    std::lock_guard lock(all.mutex);
    if (mark.queue)
        all.marks[event] = mark;
    else
        all.marks.erase(event);
    all.marked = all.marks.size();
}

CUresult copy(void* to, const void* from, size_t bytes) {
    if (bytes <= copied_bytes_max) std::memcpy(to, from, bytes);
    return CUDA_SUCCESS;
}
void* host(CUdeviceptr address) {  // the emulated driver's device addresses are the process's own
    return reinterpret_cast<void*>(address);
}

template <class Word>
CUresult fill(CUdeviceptr address, Word word, size_t count) {
    if (count * sizeof word <= copied_bytes_max) std::fill_n(static_cast<Word*>(host(address)), count, word);
    return CUDA_SUCCESS;
}

CUresult copy_2d(const CUDA_MEMCPY2D& copy) {
    auto* from =
        static_cast<const std::byte*>(copy.srcMemoryType == CU_MEMORYTYPE_HOST ? copy.srcHost : host(copy.srcDevice));
    auto* to = static_cast<std::byte*>(copy.dstMemoryType == CU_MEMORYTYPE_HOST ? copy.dstHost : host(copy.dstDevice));
    if (copy.WidthInBytes * copy.Height > copied_bytes_max) return CUDA_SUCCESS;
    for (size_t row = 0; row < copy.Height; ++row)
        std::memcpy(to + (copy.dstY + row) * copy.dstPitch + copy.dstXInBytes,
                    from + (copy.srcY + row) * copy.srcPitch + copy.srcXInBytes, copy.WidthInBytes);
    return CUDA_SUCCESS;
}

// What is loaded for `image`.
const void* code_for(const void* image) {
    auto* bytes = static_cast<const char*>(image);
    bool stands_for_a_library =
        bytes && std::memcmp(bytes, "\177ELF", 4) == 0 && std::memcmp(bytes + 9, "BENCH", 5) == 0;
    return stands_for_a_library ? empty_kernel : image;
}

}  // namespace

EXPORT CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               CUstream, void**, void**) {
    return CUDA_SUCCESS;
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig*, CUfunction, void**, void**) {
    return CUDA_SUCCESS;
}
// Graphs themselves are the emulated driver's: what is captured there is what costs it nothing here.
EXPORT CUresult cuGraphLaunch(CUgraphExec, CUstream) {
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
    return copy(host(to), from, bytes);
}
EXPORT CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
    if (bytes <= read_back_max) std::memcpy(to, host(from), bytes);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream) {
    return copy(host(to), from, bytes);
}
EXPORT CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream) {
    return copy(to, host(from), bytes);
}
EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
    return copy(host(to), host(from), bytes);
}
EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
    return copy(host(to), host(from), bytes);
}
EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream) {
    return copy_2d(*copy);
}
EXPORT CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char word, size_t count, CUstream) {
    return fill(address, word, count);
}
EXPORT CUresult cuMemsetD32Async(CUdeviceptr address, unsigned word, size_t count, CUstream) {
    return fill(address, word, count);
}

EXPORT CUresult cuEventCreate(CUevent* event, unsigned) {
    static std::atomic<uintptr_t> last{0};
    *event = reinterpret_cast<CUevent>((last.fetch_add(1) + 1) * 16);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuEventDestroy_v2(CUevent event) {
    set_mark(event, {});
    return CUDA_SUCCESS;
}
EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
    set_mark(event, end_of(stream));
    return CUDA_SUCCESS;
}
EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) {
    return cuEventRecord(event, stream);
}
EXPORT CUresult cuEventQuery(CUevent event) {
    return mark_of(event).queue ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
EXPORT CUresult cuEventSynchronize(CUevent event) {
    if (auto mark = mark_of(event); mark.queue) mark.queue->wait(mark.ticket);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent, CUevent) {
    *milliseconds = 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamQuery(CUstream stream) {
    return end_of(stream).queue ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
EXPORT CUresult cuStreamSynchronize(CUstream stream) {
    if (auto mark = end_of(stream); mark.queue) mark.queue->wait(mark.ticket);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
    auto mark = mark_of(event);
    return mark.queue ? put(stream, [mark] { mark.queue->wait(mark.ticket); }) : CUDA_SUCCESS;
}
EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
    return put(stream, [=] { function(data); });
}
// The emulated driver's own work (sets of whole allocations, when a GPU is wiped) is waited for, too.
EXPORT CUresult cuCtxSynchronize() {
    auto& all = pending();
    if (all.functions != 0) {
        std::map<Queue*, uint64_t> ends;
        {
            std::lock_guard lock(all.mutex);
            for (auto& [stream, queue] : all.queues) ends[queue.get()] = queue->last();
        }
        for (auto& [queue, ticket] : ends) queue->wait(ticket);
    }
    return EMULATED(cuCtxSynchronize)();
}

EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    return EMULATED(cuModuleLoadData)(module, code_for(image));
}
EXPORT CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option* options, void** values,
                                  unsigned count, CUlibraryOption* library_options, void** library_values,
                                  unsigned library_count) {
    return EMULATED(cuLibraryLoadData)(library, code_for(image), options, values, count, library_options,
                                       library_values, library_count);
}
