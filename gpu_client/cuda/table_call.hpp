// A call whose arguments come from the program: handles and addresses are checked, and our numbers for them are sent.
// The code that callgen.py generates is built on this.
#pragma once

#include <optional>
#include <type_traits>

#include "gpu_client/cuda/graph_objects.hpp"
#include "gpu_client/cuda/other_devices.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/texture_references.hpp"

namespace tnr::cuda {

class TableCall : public RemoteCall {
public:
    using RemoteCall::RemoteCall;

    void handle(CUstream stream);
    // Graphs are no context's.
    template <class Handle>
    void handle(Handle given) {
        if constexpr (std::is_same_v<Handle, CUgraphExec>) in_any_context();
        uint64_t number = 0;
        if (auto result = number_of(given, number); result != CUDA_SUCCESS) refuse(result);
        put(number);
    }
    void handle(CUgraph given);
    void handle(CUgraphNode given);
    // Inside arrays and structs, where null stands for nothing.
    template <class Handle>
    void handle_or_null(Handle given) {
        if (given)
            handle(given);
        else
            put(uint64_t{0});
    }
    void put_flag(bool flag) { put(static_cast<uint8_t>(flag)); }
    void put_count(uint64_t count);
    // After send(): values of the answer. A handle's number becomes the handle.
    uint64_t out_count();
    template <class Handle>
    void out_handle(Handle* to) {
        uint64_t number = 0;
        out(&number);
        *to = nullptr;
        if (number != 0) find_numbered(session(), number, named_, *to);
    }
    const NamedGraph& named() const { return named_; }
    void ordinal(CUdevice device);  // the session counts devices before CUDA_VISIBLE_DEVICES
    // A device address with `bytes` of memory behind it.
    void device(CUdeviceptr address, uint64_t bytes);
    // The same for work that the memory's own device does, in the order of the stream that is named next.
    void any_device(CUdeviceptr address, uint64_t bytes);
    void in_null_stream();  // works there, and the program waits for it
    void aligned(CUdeviceptr address, uint64_t unit) {
        if (address % unit != 0) refuse(CUDA_ERROR_INVALID_VALUE);
    }
    CUresult send();

private:
    std::optional<CUdeviceptr> anywhere_;
    bool uses_shared_ = false;  // memory that the program has, too
    Detour detour_;
    NamedGraph named_;
};

// The handle that a call makes: forgotten again unless the call has succeeded.
template <class Handle>
class Minted {
public:
    Minted() { mint(handle_); }
    ~Minted() {
        if (handle_) forget(handle_);
    }
    Minted(const Minted&) = delete;
    Minted& operator=(const Minted&) = delete;

    uint64_t number() const {
        uint64_t number = 0;
        (void)number_of(handle_, number);
        return number;
    }
    Handle keep(const TableCall& call) {
        made(handle_, call.named());
        return std::exchange(handle_, nullptr);
    }

private:
    Handle handle_ = nullptr;
};

// True for memory that the current context's device may not use but another of ours may.
bool is_elsewhere(CUdeviceptr address);

}  // namespace tnr::cuda
