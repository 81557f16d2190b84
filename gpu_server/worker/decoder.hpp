// Reads one record's payload: plain values, and what the client's numbers stand for. Errors stick: a short payload or
// an unknown number is remembered, and status() reports it.
#pragma once

#include "gpu_client/protocol/record.hpp"
#include "gpu_server/worker/handles.hpp"

namespace tnr::worker {

class Decoder {
public:
    Decoder(std::span<const std::byte> payload, Handles& handles) : in_(payload), handles_(handles) {}

    // Reads a whole record. Behind an open-ended one there is more to read, and then status() to ask.
    template <class Record>
    CUresult read(Record& record) {
        if (!read_field(*this, record)) return refused_ != CUDA_SUCCESS ? refused_ : CUDA_ERROR_INVALID_VALUE;
        return wire::OpenEnded<Record> ? CUDA_SUCCESS : status();
    }

    template <class T>
    T get() {
        return in_.get<T>();
    }
    std::span<const std::byte> raw(size_t size) { return in_.raw(size); }
    std::span<const std::byte> rest() { return in_.raw(in_.left()); }
    std::span<const std::byte> bytes() { return in_.bytes(); }
    std::string_view string() { return in_.string(); }
    size_t left() const { return in_.left(); }
    bool ok() const { return in_.ok() && refused_ == CUDA_SUCCESS; }

    // Reads a number and resolves it. `Thing` is one of Resolved's.
    template <class Thing>
    Thing named() {
        Thing thing;
        thing.number = in_.get<decltype(thing.number)>();
        if (auto result = handles_.resolve(thing); result != CUDA_SUCCESS) refused_ = result;
        return thing;
    }

    // CUDA_SUCCESS when everything was there and nothing is left over.
    CUresult status() const {
        if (refused_ != CUDA_SUCCESS) return refused_;
        return in_.finished() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }

private:
    wire::Reader in_;
    Handles& handles_;
    CUresult refused_ = CUDA_SUCCESS;
};

// wire::read_field() of a field that is resolved.
template <class Thing>
requires requires(Handles& handles, Thing& thing) {
    handles.resolve(thing);
}
bool read_field(Decoder& in, Thing& thing) {
    thing = in.named<Thing>();
    return in.ok();
}

// A handler written by callgen.py. Runs on the dispatcher thread and never waits for the GPU.
using GeneratedHandler = CUresult (*)(Decoder& in, wire::Writer& out);
void fill_generated_handlers(GeneratedHandler* table);  // table: wire::op_max + 1 entries

}  // namespace tnr::worker
