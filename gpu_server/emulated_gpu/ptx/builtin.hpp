// The functions that device code calls and no module defines: printf, assert, malloc, free, setting the condition of a
// graph's node, launching graphs, and those of node_updates.hpp and device_runtime.hpp.
#pragma once

#include "gpu_server/emulated_gpu/ptx/machine.hpp"

namespace tnr::ptx {

Builtin builtin_named(std::string_view function);
// What the device runtime of CUDA 11 is made of: functions of NVIDIA's driver.
inline bool is_of_old_device_runtime(std::string_view function) {
    return function.starts_with("cnp") || function.starts_with("__cuda_syscall_");
}
// Whether a call's arguments are as long as the builtin reads and writes.
bool builtin_fits(const Call& call);
void call_builtin(Warp& warp, const Call& call);

// Device printf: `arguments` are as the compiler stores them, each aligned to its size. `read_string`
// fetches what %s points to; it gives false for a bad pointer.
class PrintSource {
public:
    virtual ~PrintSource() = default;
    virtual bool read(uint64_t address, void* to, uint32_t bytes) = 0;
};
// False when a pointer was bad.
bool format_print(PrintSource& source, uint64_t format, uint64_t arguments, std::string& out);

// What device malloc hands out: host memory that lives until end(), as the CUDA heap lives as long as the context.
class DeviceHeap {
public:
    static DeviceHeap& instance();
    // What it is for: a kernel's free() leaves parameters of launches alone.
    enum class Use { of_kernel, parameters };
    uint64_t allocate(uint64_t bytes, const Heap& heap);  // 0: the heap is full
    uint64_t allocate_parameters(uint64_t bytes);         // 0: too many launches are waiting
    void release(uint64_t address, Use use = Use::of_kernel);
    void end(uint64_t owner);  // releases all of that heap
    Memory::Range range_of(uint64_t address);
    uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

private:
    struct State;
    DeviceHeap();
    ~DeviceHeap();
    std::unique_ptr<State> state_;
    std::atomic<uint64_t> generation_{0};
};

// In the heap of the warp's launch; 0: it is full.
inline uint64_t allocate_in_heap(Warp& w, uint64_t bytes) {
    return DeviceHeap::instance().allocate(bytes, w.block->grid->launch->heap);
}

}  // namespace tnr::ptx
