// What a builtin function reads of its call and answers. builtin_fits() has checked that it is there.
#pragma once

#include <cstring>

#include "gpu_server/emulated_gpu/ptx/machine.hpp"

namespace tnr::ptx {

inline std::byte* frame_bytes(Warp& w, uint32_t lane, const ByteRange& range) {
    return w.local + lane * w.local_stride + w.frame->local_base + range.offset;
}

template <class T>
T argument(Warp& w, uint32_t lane, const Call& call, size_t index) {
    T value;
    std::memcpy(&value, frame_bytes(w, lane, call.arguments[index]), sizeof value);
    return value;
}

template <class T>
void result(Warp& w, uint32_t lane, const Call& call, T value) {
    if (!call.results.empty()) std::memcpy(frame_bytes(w, lane, call.results[0]), &value, sizeof value);
}

}  // namespace tnr::ptx
