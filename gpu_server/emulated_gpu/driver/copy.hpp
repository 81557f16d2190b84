// The copies and fills of the API, checked and brought into the form that streams perform.
#pragma once

#include "gpu_server/emulated_gpu/driver/operation.hpp"

namespace tnr::emulated {

// Which side of a copy is what, as the called function says. `array`: what box_of() has checked.
enum class Side { device, host, either, array };

// Fails unless every byte that lies in device memory is there.
CUresult check_copy(Context& context, const Copy& copy, Side destination, Side source);
CUresult check_fill(Context& context, const Fill& fill);

Copy line(uint64_t destination, uint64_t source, size_t bytes);

// The structures of cuda.h. A side that is an array must lie within it.
CUresult box_of(const CUDA_MEMCPY2D& given, Copy& copy, Side& destination, Side& source);
CUresult box_of(const CUDA_MEMCPY3D& given, Copy& copy, Side& destination, Side& source);

// One line in an array, `offset` bytes from the beginning of its first row.
CUresult array_line(CUarray handle, size_t offset, size_t bytes, uint64_t& address, ArrayPlace& place);

// Synchronous: returns when it is done, except between device addresses, where CUDA promises no more than
// the order in the stream.
CUresult copy_now(Context& context, CUstream stream, const Copy& copy, Side destination, Side source);
// Asynchronous: may keep pageable memory only as long as the call lasts.
CUresult copy_later(CUstream stream, const Copy& copy, Side destination, Side source);
// The same for a source that is the caller's only until the call returns: the host's memory is read at once.
CUresult copy_from_present(CUstream stream, const Copy& copy, Side destination, Side source);
// `now`: has happened when it returns, if it is the host's memory; the device's is filled in the stream's time either way.
CUresult fill(CUstream stream, const Fill& fill, bool now);

}  // namespace tnr::emulated
