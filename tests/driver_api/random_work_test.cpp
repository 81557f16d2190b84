// Random work on every kind of memory, in streams and in captured graphs, against doing one thing after the other here. Each
// stream that gets work waits for the one before, by an event; so the order is known, and everything else is left to the GPU.
// TNR_RANDOM_WORK=FIRST:COUNT runs other seeds than the few of every day.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

#include "graph_host_copies.hpp"

using namespace driver_api;

namespace {

enum class MemoryKind { device, pool, pinned, mapped, registered, managed, pageable, elsewhere };
constexpr const char* kind_names[] = {"device",     "pool",    "pinned",   "mapped",
                                      "registered", "managed", "pageable", "elsewhere"};

// Runs on a thread that must not call Catch2.
void ok(CUresult result, const char* what) {
    if (result != CUDA_SUCCESS) throw std::runtime_error(what + (": " + name_of(result)));
}

struct Buffer {
    MemoryKind kind;
    Words model;
    unsigned* host = nullptr;  // null: the program cannot reach it
    CUdeviceptr device = 0;    // 0: the GPU cannot
    Words room{};

    size_t count() const { return model.size(); }
    CUdeviceptr address() const { return host ? reinterpret_cast<CUdeviceptr>(host) : device; }
    bool is_pageable() const { return kind == MemoryKind::pageable; }
    bool is_for_kernels() const { return !is_pageable() && kind != MemoryKind::elsewhere; }
};

// Some words of a buffer, in rows.
struct BufferPart {
    size_t buffer, first, pitch;
};

class RandomWork {
public:
    // Of two devices; the other one's context may be null.
    RandomWork(unsigned seed, CUcontext here, CUcontext elsewhere)
        : random_(seed), name_("seed " + std::to_string(seed)), here_(here), elsewhere_(elsewhere) {}

    void run(const Module& module, int steps) {
        ok(cu.cuCtxSetCurrent(here_), "a context");
        ok(cu.cuModuleGetFunction(&add_, module.handle, "add"), "a kernel");
        ok(cu.cuModuleGetFunction(&copy_, module.handle, "copy_ints"), "a kernel");
        for (auto& stream : streams_) ok(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "a stream");
        for (auto& event : events_) ok(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "an event");
        const int kinds = elsewhere_ ? 8 : 7;
        for (int i = 0; i < 2 * kinds; ++i) make(static_cast<MemoryKind>(i % kinds));
        for (step_ = 0; step_ < steps; ++step_) take_step();
        check_all();
        while (!buffers_.empty()) drop(0);
        for (auto event : events_) ok(cu.cuEventDestroy(event), "an event's end");
        for (auto stream : streams_) ok(cu.cuStreamDestroy(stream), "a stream's end");
    }
    std::string story(const std::string& problem) const {
        std::string all = name_ + ", step " + std::to_string(step_) + ": " + problem + "\n";
        for (auto& line : log_) all += line + "\n";
        return all;
    }

private:
    using Effect = std::function<void()>;  // on the model

    unsigned below(size_t limit) { return static_cast<unsigned>(random_() % limit); }
    template <class... Words>
    void note(Words... words) {
        std::string line = std::to_string(step_) + ":";
        ((line += " " + text(words)), ...);
        log_.push_back(line);
        if (log_.size() > 60) log_.pop_front();
    }
    static std::string text(const char* word) { return word; }
    static std::string text(size_t number) { return std::to_string(number); }
    std::string text(const BufferPart& part) const {
        return std::string(kind_names[static_cast<int>(buffers_[part.buffer]->kind)]) + "[" +
               std::to_string(part.buffer) + "]+" + std::to_string(part.first) + "/" + std::to_string(part.pitch);
    }
    CUdeviceptr at(const BufferPart& part) const { return buffers_[part.buffer]->address() + part.first * word; }

    // ---- memory

    void make(MemoryKind kind) {
        auto made = std::make_unique<Buffer>();
        made->kind = kind;
        const size_t most = below(10) == 0 ? 200'000 : 20'000;
        made->model.resize(below(5) == 0 ? 1 + below(16) : 300 + below(most));
        for (auto& one : made->model) one = random_();
        const size_t bytes = made->count() * word;
        auto* host = reinterpret_cast<void**>(&made->host);
        switch (kind) {
            case MemoryKind::device:
                ok(cu.cuMemAlloc(&made->device, bytes), "device memory");
                break;
            case MemoryKind::elsewhere:
                ok(cu.cuCtxSetCurrent(elsewhere_), "the other context");
                ok(cu.cuMemAlloc(&made->device, bytes), "memory of the other device");
                ok(cu.cuCtxSetCurrent(here_), "a context");
                break;
            case MemoryKind::pool:
                ok(cu.cuMemAllocAsync(&made->device, bytes, streams_[0]), "a pool's memory");
                ok(cu.cuStreamSynchronize(streams_[0]), "a wait");
                break;
            case MemoryKind::pinned:
                ok(cu.cuMemHostAlloc(host, bytes, 0), "pinned memory");
                break;
            case MemoryKind::mapped:
                ok(cu.cuMemHostAlloc(host, bytes, CU_MEMHOSTALLOC_DEVICEMAP), "mapped memory");
                break;
            case MemoryKind::managed: {
                ok(cu.cuMemAllocManaged(&made->device, bytes, CU_MEM_ATTACH_GLOBAL), "managed memory");
                made->host = reinterpret_cast<unsigned*>(made->device);
                break;
            }
            case MemoryKind::registered:
            case MemoryKind::pageable:
                made->room.resize(made->count() + 2'100);
                made->host = made->room.data() + below(1'000);
        }
        if (kind == MemoryKind::registered)
            ok(cu.cuMemHostRegister(made->host, bytes, CU_MEMHOSTREGISTER_DEVICEMAP), "registered memory");
        if (kind == MemoryKind::registered || kind == MemoryKind::mapped)
            ok(cu.cuMemHostGetDevicePointer(&made->device, made->host, 0), "a device pointer");
        if (made->host)
            std::copy(made->model.begin(), made->model.end(), made->host);
        else
            ok(cu.cuMemcpyHtoD(made->device, made->model.data(), bytes), "the first content");
        buffers_.push_back(std::move(made));
    }
    void drop(size_t index) {
        auto& gone = *buffers_[index];
        if (gone.kind == MemoryKind::pinned || gone.kind == MemoryKind::mapped)
            ok(cu.cuMemFreeHost(gone.host), "pinned memory's end");
        else if (gone.kind == MemoryKind::registered)
            ok(cu.cuMemHostUnregister(gone.host), "registered memory's end");
        else if (gone.kind == MemoryKind::pool)
            ok(cu.cuMemFreeAsync(gone.device, streams_[0]), "a pool's memory's end");
        else if (gone.kind != MemoryKind::pageable)
            ok(cu.cuMemFree(gone.device), "memory's end");
        buffers_.erase(buffers_.begin() + static_cast<ptrdiff_t>(index));
    }
    template <class Suits>
    size_t any_buffer(Suits&& suits) {
        while (true)
            if (size_t index = below(buffers_.size()); suits(*buffers_[index])) return index;
    }

    // ---- order

    CUstream next_stream() {
        auto stream = streams_[below(4)];
        if (last_ && last_ != stream) chain(last_, stream);
        return last_ = stream;
    }
    void chain(CUstream before, CUstream after) {
        auto event = events_[below(3)];
        ok(cu.cuEventRecord(event, before), "a record");
        ok(cu.cuStreamWaitEvent(after, event, 0), "an event's wait");
    }
    void wait() {
        if (!last_) return;
        auto event = events_[below(3)];
        switch (below(3)) {
            case 0:
                ok(cu.cuStreamSynchronize(last_), "a wait");
                break;
            case 1:
                ok(cu.cuEventRecord(event, last_), "a record");
                ok(cu.cuEventSynchronize(event), "a wait for an event");
                break;
            default:
                auto result = CUDA_ERROR_NOT_READY;
                while ((result = cu.cuStreamQuery(last_)) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
                ok(result, "a query");
        }
        note("waits");
        last_ = nullptr;
    }

    // ---- what is checked

    void check(size_t index, const char* when) {
        auto& buffer = *buffers_[index];
        Words there = buffer.host ? Words(buffer.host, buffer.host + buffer.count()) : Words(buffer.count());
        if (!buffer.host) ok(cu.cuMemcpyDtoH(there.data(), buffer.device, buffer.count() * word), "a look");
        if (there == buffer.model) return;
        const auto differ = std::mismatch(there.begin(), there.end(), buffer.model.begin());
        throw std::runtime_error("wrong " + std::string(when) + ": " +
                                 text(BufferPart{index, static_cast<size_t>(differ.first - there.begin()), 0}) +
                                 " of " + std::to_string(buffer.count()) + ", " + std::to_string(*differ.first) +
                                 " for " + std::to_string(*differ.second));
    }
    void check_all() {
        wait();
        for (size_t i = 0; i < buffers_.size(); ++i) check(i, "after a wait");
    }

    // ---- work

    // In the stream's order, but for what a call with memory that is not pinned does at once.
    Effect work(bool captured) {
        auto reachable = [&](const Buffer& buffer) { return !captured || !buffer.is_pageable(); };
        switch (below(8)) {
            case 0:
                return fill(any_buffer(&RandomWork::is_filled), next_stream());
            case 1:
                return add(any_buffer(&RandomWork::is_used_by_kernels), next_stream());
            case 2:
                return call(any_buffer([](auto& one) {
                                return one.host && one.kind != MemoryKind::managed && !one.is_pageable();
                            }),
                            next_stream());
            case 3: {
                const size_t to = any_buffer(&RandomWork::is_used_by_kernels),
                             from = any_buffer(&RandomWork::is_used_by_kernels);
                return to == from ? Effect([] {}) : copy_by_kernel(to, from, next_stream());
            }
            default: {
                const size_t to = any_buffer(reachable), from = any_buffer(reachable);
                return to == from ? Effect([] {}) : copy(to, from, captured);
            }
        }
    }
    static bool is_used_by_kernels(const Buffer& buffer) { return buffer.is_for_kernels(); }
    static bool is_filled(const Buffer& buffer) {
        return buffer.is_for_kernels() && buffer.kind != MemoryKind::registered;
    }

    // By a device's address, or what the program calls it.
    CUdeviceptr for_kernels(const Buffer& buffer) {
        return buffer.device != 0 && below(2) == 0 ? buffer.device : buffer.address();
    }
    Effect fill(size_t index, CUstream stream) {
        auto& buffer = *buffers_[index];
        const size_t first = below(buffer.count()), count = 1 + below(buffer.count() - first);
        const unsigned value = below(1'000);
        note("fill", BufferPart{index, first, 0}, count, value);
        ok(cu.cuMemsetD32Async(buffer.address() + first * word, value, count, stream), "a fill");
        return [this, index, first, count, value] { std::fill_n(&buffers_[index]->model[first], count, value); };
    }
    Effect add(size_t index, CUstream stream) {
        auto& buffer = *buffers_[index];
        const int count = static_cast<int>(1 + below(std::min<size_t>(buffer.count(), 2'000)));
        const int amount = static_cast<int>(1 + below(100));
        note("add", BufferPart{index, 0, 0}, static_cast<size_t>(count), static_cast<size_t>(amount));
        ok(launch_shaped(add_, 1, 64, 0, stream, for_kernels(buffer), count, amount), "a launch");
        return [this, index, count, amount] {
            for (int i = 0; i < count; ++i)
                buffers_[index]->model[static_cast<size_t>(i)] += static_cast<unsigned>(amount);
        };
    }
    Effect copy_by_kernel(size_t to, size_t from, CUstream stream) {
        auto &target = *buffers_[to], &source = *buffers_[from];
        const int count = static_cast<int>(1 + below(std::min<size_t>({target.count(), source.count(), 2'000})));
        note("kernel copies", BufferPart{to, 0, 0}, "<-", BufferPart{from, 0, 0}, static_cast<size_t>(count));
        ok(launch_shaped(copy_, 1, 64, 0, stream, for_kernels(source), for_kernels(target), count), "a launch");
        return
            [this, to, from, count] { std::copy_n(buffers_[from]->model.begin(), count, buffers_[to]->model.begin()); };
    }
    Effect call(size_t index, CUstream stream) {
        auto& buffer = *buffers_[index];
        const size_t first = below(buffer.count()), count = 1 + below(buffer.count() - first);
        const unsigned amount = 1 + below(100);
        note("function", BufferPart{index, first, 0}, count, amount);
        const std::chrono::microseconds takes{below(4) == 0 ? below(1'500) : 0};
        functions_.push_back(
            std::make_unique<std::function<void()>>([host = buffer.host + first, count, amount, takes] {
                std::this_thread::sleep_for(takes);
                for (size_t i = 0; i < count; ++i) host[i] += amount;
            }));
        ok(cu.cuLaunchHostFunc(stream, call_function, functions_.back().get()), "a function");
        return [this, index, first, count, amount] {
            for (size_t i = 0; i < count; ++i) buffers_[index]->model[first + i] += amount;
        };
    }
    Effect copy(size_t to, size_t from, bool captured) {
        auto &target = *buffers_[to], &source = *buffers_[from];
        const size_t most = std::min(target.count(), source.count());
        const bool in_rows = below(3) == 0 && most > 20;
        const size_t width = 1 + below(in_rows ? most / 8 : most), rows = in_rows ? 1 + below(4) : 1;
        BufferPart there{to, 0, width + below(width)}, here{from, 0, width + below(width)};
        auto span = [&](const BufferPart& part) { return (rows - 1) * part.pitch + width; };
        there.first = below(target.count() - span(there) + 1), here.first = below(source.count() - span(here) + 1);
        note(in_rows ? "rows" : "copy", there, "<-", here, width, rows);
        CUDA_MEMCPY2D box{};
        box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
        set_pageable(target, box.dstMemoryType), set_pageable(source, box.srcMemoryType);
        box.dstDevice = at(there), box.dstHost = reinterpret_cast<void*>(at(there)), box.dstPitch = there.pitch * word;
        box.srcDevice = at(here), box.srcHost = reinterpret_cast<void*>(at(here)), box.srcPitch = here.pitch * word;
        box.WidthInBytes = width * word, box.Height = rows;
        if (!captured && below(5) == 0) {  // done when it returns, unless both sides are the GPU's
            wait();
            if (in_rows)
                ok(cu.cuMemcpy2D(&box), "a copy of rows that waits");
            else
                ok(cu.cuMemcpy(at(there), at(here), width * word), "a copy that waits");
            if (!is_of_host(target) && !is_of_host(source)) ok(cu.cuStreamSynchronize(nullptr), "a wait");
        } else if (auto stream = next_stream(); in_rows) {
            ok(cu.cuMemcpy2DAsync(&box, stream), "a copy of rows");
        } else {
            ok(cu.cuMemcpyAsync(at(there), at(here), width * word, stream), "a copy");
        }
        return [this, there, here, width, rows] {
            for (size_t row = 0; row < rows; ++row)
                std::copy_n(&buffers_[here.buffer]->model[here.first + row * here.pitch], width,
                            &buffers_[there.buffer]->model[there.first + row * there.pitch]);
        };
    }
    static void set_pageable(const Buffer& buffer, CUmemorytype& type) {
        if (buffer.is_pageable()) type = CU_MEMORYTYPE_HOST;
    }
    static bool is_of_host(const Buffer& buffer) { return buffer.host && buffer.kind != MemoryKind::managed; }

    void write_here() {
        wait();
        const auto index = any_buffer([](auto& one) { return one.host != nullptr; });
        auto& buffer = *buffers_[index];
        const size_t first = below(buffer.count()), count = 1 + below(buffer.count() - first);
        for (size_t i = first; i < first + count; ++i) buffer.host[i] = buffer.model[i] = random_();
        note("program writes", BufferPart{index, first, 0}, count);
    }

    void launch_graph() {
        wait();
        const auto origin = last_ = streams_[below(4)];
        ok(cu.cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "a capture's begin");
        std::vector<Effect> effects(1 + below(10));
        for (auto& effect : effects) effect = work(true);
        if (last_ != origin) chain(last_, origin);
        for (auto stream : streams_) {
            auto status = CU_STREAM_CAPTURE_STATUS_NONE;
            ok(cu.cuStreamIsCapturing(stream, &status), "a question");
            if (stream != origin && status == CU_STREAM_CAPTURE_STATUS_ACTIVE) chain(stream, origin);
        }
        last_ = nullptr;
        CUgraph graph = nullptr;
        CUgraphExec exec = nullptr;
        ok(cu.cuStreamEndCapture(origin, &graph), "a capture's end");
        const auto made = cu.cuGraphInstantiate(&exec, graph, 0);
        ok(cu.cuGraphDestroy(graph), "a graph's end");
        if (made == CUDA_ERROR_NOT_SUPPORTED) return;  // gpu_client/README.md says which
        ok(made, "an instance");
        for (auto launches = 1 + below(4); launches > 0; --launches) {
            ok(cu.cuGraphLaunch(exec, next_stream()), "a graph's launch");
            note("launch");
            for (auto& effect : effects) effect();
            if (below(3) == 0) write_here();
        }
        if (below(2) == 0) wait();
        ok(cu.cuGraphExecDestroy(exec), "an instance's end");
    }

    void take_step() {
        const auto what = below(20);
        if (what < 12) return work(false)();
        if (what < 14) return write_here();
        if (what < 17) return launch_graph();
        if (what == 17) return check_all();
        wait();
        if (what != 18) return check(below(buffers_.size()), "after a wait");
        const size_t index = below(buffers_.size());
        const auto kind = buffers_[index]->kind;
        note("anew", BufferPart{index, 0, 0});
        drop(index);
        make(kind);
    }

    std::mt19937 random_;
    std::string name_;
    CUcontext here_, elsewhere_;
    int step_ = 0;
    std::deque<std::string> log_;
    std::vector<std::unique_ptr<Buffer>> buffers_;
    std::vector<std::unique_ptr<std::function<void()>>> functions_;
    CUfunction add_ = nullptr, copy_ = nullptr;
    std::array<CUstream, 4> streams_{};
    std::array<CUevent, 3> events_{};
    CUstream last_ = nullptr;  // that got work; null: nothing is under way
};

// ThreadSanitizer knows nothing of pages that threads take from each other, nor that the ends of registered memory are looked
// at while another thread may be writing beside what matters.
#ifdef TNR_THREAD_SANITIZER
constexpr bool one_after_the_other = true;
#else
constexpr bool one_after_the_other = false;
#endif

// Empty: it went well.
std::string run_work(RandomWork&& world, const Module& module) {
    try {
        world.run(module, 150);
        return {};
    } catch (const std::exception& problem) {
        return world.story(problem.what());
    }
}

// Of a second device, where there is one.
class OtherContext {
public:
    OtherContext() {
        int count = 0;
        CU_OK(cu.cuDeviceGetCount(&count));
        if (count > 1) CU_OK(cu.cuDevicePrimaryCtxRetain(&handle, 1));
    }
    ~OtherContext() {
        if (handle) cu.cuDevicePrimaryCtxRelease(1);
    }
    OtherContext(const OtherContext&) = delete;
    OtherContext& operator=(const OtherContext&) = delete;

    CUcontext handle = nullptr;
};

void run_random_work(const Gpu& gpu, const OtherContext& other, const Module& module, unsigned count) {
    unsigned first = 1;
    if (const char* asked = std::getenv("TNR_RANDOM_WORK")) REQUIRE(std::sscanf(asked, "%u:%u", &first, &count) == 2);
    for (unsigned seed = first; seed < first + count; seed += 2) {
        std::string together;
        std::thread beside([&] { together = run_work({seed + 1, gpu.context, other.handle}, module); });
        if (one_after_the_other) beside.join();
        const auto alone = run_work({seed, gpu.context, other.handle}, module);
        if (beside.joinable()) beside.join();
        INFO(alone << together);
        REQUIRE((alone.empty() && together.empty()));
    }
}

}  // namespace

TEST_CASE("random work on every kind of memory does what it does one by one",
          "[copy][graph][pinned][managed][random]") {
    Gpu gpu;
    const OtherContext other;
    const Module module;
    run_random_work(gpu, other, module, 10);
}

// Not with ThreadSanitizer, to which it is a race that pages are looked at while the GPU may be writing them.
#ifndef TNR_THREAD_SANITIZER
namespace {

// Kernels of a stream of their own, one after the other, each longer than a program waits for a page that it touches: so
// pages are used by both sides at once.
class KernelsBeside {
public:
    KernelsBeside(const Module& module, CUcontext context) : spin_(module.function("spin")) {
        run_once(spin_, out_.address, 1);
        thread_ = std::thread([this, context] {
            result_ = cu.cuCtxSetCurrent(context);
            while (result_ == CUDA_SUCCESS && !ended_) {
                result_ = launch_shaped(spin_, 1, 32, 0, stream_.handle, out_.address, 20'000);
                if (result_ == CUDA_SUCCESS) result_ = cu.cuStreamSynchronize(stream_);
            }
        });
    }
    ~KernelsBeside() { (void)end(); }
    KernelsBeside(const KernelsBeside&) = delete;
    KernelsBeside& operator=(const KernelsBeside&) = delete;
    CUresult end() {
        ended_ = true;
        if (thread_.joinable()) thread_.join();
        return result_;
    }

private:
    Stream stream_{CU_STREAM_NON_BLOCKING};
    Memory out_{32 * sizeof(unsigned)};
    CUfunction spin_;
    std::atomic<CUresult> result_{CUDA_SUCCESS};
    std::atomic<bool> ended_{false};
    std::thread thread_;
};

}  // namespace

TEST_CASE("random work beside kernels that take their time", "[copy][graph][pinned][managed][random]") {
    Gpu gpu;
    const OtherContext other;
    const Module module;
    KernelsBeside kernels(module, gpu.context);
    run_random_work(gpu, other, module, 6);
    CU_OK(kernels.end());
}
#endif
