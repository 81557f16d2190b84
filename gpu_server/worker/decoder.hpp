// Reads one record's payload: plain values, and the client's numbers turned into the driver's handles. An unknown
// number or a short record is remembered, and asked for once by status().
#pragma once

#include "gpu_client/protocol/wire.hpp"
#include "gpu_server/worker/handles.hpp"

namespace tnr::worker {

class Decoder {
public:
    Decoder(std::span<const std::byte> payload, Handles& handles, CUcontext current)
        : in_(payload), handles_(handles), current_(current) {}

    template <class T>
    T get() {
        return in_.get<T>();
    }
    std::span<const std::byte> raw(size_t size) { return in_.raw(size); }
    std::span<const std::byte> rest() { return in_.raw(in_.left()); }
    std::string_view string() { return in_.string(); }

    CUstream stream();
    CUevent event();
    SharedEvent shared_event();  // the same, for who needs it after the handler has returned
    CUcontext context();
    CUfunction function();  // in the current context
    CUkernel kernel();
    CUmodule module() { return missing<CUmodule>(); }  // modules travel as libraries: no generated call takes one
    CUlibrary library();

    // CUDA_SUCCESS when everything was there and nothing is left over.
    CUresult status() const {
        if (bad_handle_ != CUDA_SUCCESS) return bad_handle_;
        return in_.finished() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    void refuse(CUresult why) { bad_handle_ = why; }

private:
    template <class T>
    T missing(CUresult why = CUDA_ERROR_INVALID_HANDLE) {
        bad_handle_ = why;
        return T{};
    }

    wire::Reader in_;
    Handles& handles_;
    CUcontext current_;
    CUresult bad_handle_ = CUDA_SUCCESS;
};

// A handler written by callgen.py. Runs on the dispatcher thread and never waits for the GPU.
using GeneratedHandler = CUresult (*)(Decoder& in, wire::Writer& out);
void fill_generated_handlers(GeneratedHandler* table);  // table: wire::op_max + 1 entries

// Where generated code finds the functions.
const DriverTable& driver();

}  // namespace tnr::worker
