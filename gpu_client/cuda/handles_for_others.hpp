// What programs pass from process to process: 64 bytes, or a descriptor of a file that holds them. They name something
// that the supervisor keeps for the claim (gpu_server/supervisor/exchange.hpp) and say what of it is meant. Whoever
// makes them up finds nothing: names are random, and each use of one is checked there.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "gpu_client/cuda/driver_api.hpp"
#include "gpu_client/protocol/exchange_records.hpp"

namespace tnr::cuda {

// Of what is exported or imported as a descriptor. Windows' kinds are none for memory that was made here.
inline CUresult check_handle_type(CUmemAllocationHandleType type) {
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_SUCCESS;
    return type == CU_MEM_HANDLE_TYPE_FABRIC ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

struct HandleForOthers {
    enum class Kind : uint64_t { memory = 1, event, allocation, pool, pool_memory, multicast };
    static constexpr uint64_t magic_number = 0x31706373'2d726e74;  // "tnr-scp1"

    uint64_t magic = magic_number;
    Kind kind = Kind::memory;
    wire::ThingName name{};
    uint64_t offset = 0, bytes = 0;  // of memory: the part of what has that name; of a multicast object: its size
    wire::ThingName of_pool{};       // of a pool's memory: that pool's name

    bool is(Kind wanted) const { return magic == magic_number && kind == wanted; }
};
static_assert(sizeof(HandleForOthers) == sizeof(CUipcMemHandle));
static_assert(sizeof(HandleForOthers) == sizeof(CUipcEventHandle));
static_assert(sizeof(HandleForOthers) == sizeof(CUmemPoolPtrExportData));

template <class Opaque>
HandleForOthers handle_in(const Opaque& opaque) {
    return std::bit_cast<HandleForOthers>(opaque);
}

// A descriptor that the program may send over a socket; -1 if the system has none left.
int to_descriptor(const HandleForOthers& handle);
// False if the descriptor is no such thing.
bool from_descriptor(int descriptor, HandleForOthers& handle);

// Lends the allocation that the address is in.
CUresult lend_memory(CUdeviceptr address, HandleForOthers::Kind kind, HandleForOthers& handle);
// Lent by this process: it cannot open that itself.
void note_lent(const wire::ThingName& name);
bool is_lent_here(const wire::ThingName& name);
// Shows what another process has lent at addresses of this one. Another call with the same handle gives the same
// address, and then it is closed as often; of the contexts of a device only one may have it open, the others get
// CUDA_ERROR_INVALID_HANDLE. CUDA_ERROR_INVALID_CONTEXT for what this process has lent itself.
CUresult open_memory(const HandleForOthers& handle, CUdeviceptr& address);
// True for what open_memory() gave of another process's pool: the program frees that instead of closing it.
bool is_opened_from_pool(CUdeviceptr address);
CUresult close_memory(CUdeviceptr address);

}  // namespace tnr::cuda
