// Reads one record's payload: plain values, and what the client's numbers stand for. Errors stick: a short payload or
// an unknown number is remembered, and status() reports it.
#pragma once

#include "gpu_client/protocol/record.hpp"
#include "gpu_server/worker/handles.hpp"

namespace tnr::worker {

class Decoder {
public:
    // `ends`: the call gives something up, and may also do so with what is spoilt.
    Decoder(std::span<const std::byte> payload, Handles& handles, bool ends = false)
        : in_(payload), handles_(handles), ends_(ends) {}

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
        resolve(thing);
        return thing;
    }
    // The same inside arrays and structs, where 0 stands for nothing.
    template <class Thing>
    Thing named_or_null() {
        Thing thing;
        thing.number = in_.get<decltype(thing.number)>();
        if (thing.number != 0) resolve(thing);
        return thing;
    }
    // Of an array: no more than can be there.
    uint32_t count() {
        auto count = in_.get<uint32_t>();
        if (count > wire::list_items_max || count > in_.left()) {
            refused_ = CUDA_ERROR_INVALID_VALUE;
            return 0;
        }
        return count;
    }

    Handles& handles() { return handles_; }
    // Whether enter() would take that number for a Handle, or else what the call returns.
    template <class Handle>
    CUresult room_for(uint64_t number) const {
        if (number >= wire::first_number_of_worker) return CUDA_ERROR_INVALID_VALUE;
        return handles_.graphs.room_for(number, Handle{});
    }
    // Enters what the call has made under the client's number. False if that is taken.
    template <class Handle>
    bool enter(uint64_t number, Handle handle) {
        return number < wire::first_number_of_worker && handles_.graphs.enter(number, handle, named_);
    }
    // The number that stands for what the call has found.
    uint64_t number_of(CUevent event) { return handles_.number_of(event); }
    template <class Handle>
    uint64_t number_of(Handle handle) {
        return handles_.graphs.number_of(handle, named_);
    }
    const NamedGraph& named_graph() const { return named_; }

    // CUDA_SUCCESS when everything was there and nothing is left over.
    CUresult status() const {
        if (refused_ != CUDA_SUCCESS) return refused_;
        return in_.finished() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }

private:
    template <class Thing>
    void resolve(Thing& thing) {
        if (auto result = handles_.resolve(thing); result != CUDA_SUCCESS) refused_ = result;
        if constexpr (std::is_same_v<Thing, Resolved::Graph> || std::is_same_v<Thing, Resolved::GraphExec>)
            if (auto why = handles_.graphs.spoilt(thing.number); why != CUDA_SUCCESS && !ends_) refused_ = why;
        if constexpr (std::is_same_v<Thing, Resolved::GraphExec>) named_.exec = thing.number;
        if constexpr (std::is_same_v<Thing, Resolved::Graph>) handles_.graphs.name(named_, thing.number, 0);
        if constexpr (std::is_same_v<Thing, Resolved::GraphNode>) {
            named_.of_nodes = true;
            handles_.graphs.name(named_, 0, thing.number);
        }
    }

    wire::Reader in_;
    Handles& handles_;
    bool ends_;
    NamedGraph named_;
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
