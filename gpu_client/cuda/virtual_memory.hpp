// The program's own use of the virtual memory API: what it has handles for (memory of cuMemCreate, multicast objects) and
// where it has mapped that.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/driver_api.hpp"
#include "gpu_client/cuda/objects.hpp"
#include "gpu_client/protocol/exchange_records.hpp"

namespace tnr::cuda {

struct Device;

// Memory that is bound to a multicast object.
struct Binding {
    int device;  // that the memory is on
    uint64_t offset, bytes;
    uint64_t memory;  // handle
};

// Lives until the program has released it as often as it obtained it and nothing uses it. Its counts and bindings are
// guarded by Mappings::mutex, which clang cannot see from here.
struct Physical {
    uint64_t number = 0;
    uint64_t bytes = 0;
    uint64_t charged = 0;              // to our grant: all of it, unless another process has made it
    int device = 0;                    // that it is on; of a multicast object: one of the session it is in
    CUmemAllocationProp properties{};  // of a multicast object: its handle types
    bool of_host = false;              // the program's as well, where it is mapped (host_mappings.hpp)
    bool multicast = false;
    int held = 1, used = 0;  // `used`: by mappings, and by bindings to multicast objects
    std::vector<Binding> bindings = {};
};
inline bool is_tile_pool(const CUmemAllocationProp& properties) {
    return properties.allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL;
}
using Physicals = HandleRegistry<Physical, HandleKind::allocation>;
Physicals& physicals();

struct Mapping {
    uint64_t bytes;
    uint64_t allocation;                           // handle
    uint64_t offset;                               // in that
    int device;                                    // that the memory is on
    std::map<int, CUmemAccess_flags> access = {};  // by device; none where there is none
    bool of_host = false;
    CUmemAccess_flags hosts = CU_MEM_ACCESS_FLAGS_PROT_NONE;  // access, as far as the program has said so
    bool multicast = false;
    bool waits = false;  // for a multicast object's team, or for the program's pages: not there yet
};
struct Mappings {
    Mutex mutex;  // what follows from a change is put into the device's sends() and sent without it
    std::map<uint64_t, Mapping> by_address TNR_GUARDED_BY(mutex);
    std::map<uint64_t, uint64_t> reserved TNR_GUARDED_BY(mutex);  // address → bytes
};
Mappings& mappings();

// Memory to give back to its device's grant once the worker knows.
using Freed = std::vector<std::pair<int, uint64_t>>;  // device, bytes

CUresult send_changes(const Freed& freed = {}) TNR_EXCLUDES(mappings().mutex);

// The device whose memory a new reservation will be for; any does, as ranges are per device.
Device* reserving_device();

// Null for a handle that the program has released.
Physical* find_held(uint64_t handle) TNR_REQUIRES(mappings().mutex);
// Call it when less of the program or of ours holds it than before.
void release_if_unused(uint64_t handle, Physical& physical, Freed& freed) TNR_REQUIRES(mappings().mutex);
// One use less: a mapping or a binding has gone.
void unuse(uint64_t handle, Freed& freed) TNR_REQUIRES(mappings().mutex);
// What tiles of arrays had for their memory: each handle is in use until the last of its kind has gone.
void drop_tiles(std::vector<std::shared_ptr<const uint64_t>>& memory, Freed& freed) TNR_REQUIRES(mappings().mutex);
// What was bound to the object on the device in [offset, offset + bytes) no longer is.
void forget_bindings(Physical& object, int device, uint64_t offset, uint64_t bytes, Freed& freed)
    TNR_REQUIRES(mappings().mutex);

// The mapping that contains the address.
const std::pair<const uint64_t, Mapping>* find_mapping(uint64_t address) TNR_REQUIRES(mappings().mutex);

// The mappings side by side from `address` on that `bytes` reach into, and how much they cover.
struct Run {
    std::map<uint64_t, Mapping>::iterator first, last;  // [first, last)
    uint64_t covered = 0;
};
Run mappings_from(uint64_t address, uint64_t bytes) TNR_REQUIRES(mappings().mutex);
// True if all of it is reserved and none of it is mapped.
bool may_be_mapped(uint64_t address, uint64_t bytes) TNR_REQUIRES(mappings().mutex);
// A mapping counts as memory for copies and queries when some device may use it. A multicast object is none: nothing but
// kernels' multimem instructions may use it.
void note_access(uint64_t address, const Mapping& mapping) TNR_REQUIRES(mappings().mutex);

// What the claim's other processes need to find the memory or the multicast object.
struct Lent {
    wire::ThingName name{};
    uint64_t bytes = 0;
    bool multicast = false;
};
CUresult lend_allocation(CUmemGenericAllocationHandle handle, Lent& lent);
// A handle for memory of another process, which counts as that one's.
CUresult borrow_allocation(const wire::ThingName& name, CUmemGenericAllocationHandle& handle, uint64_t& bytes);
// A handle for a multicast object of another process.
CUresult borrow_multicast(const wire::ThingName& name, uint64_t bytes, CUmemGenericAllocationHandle& handle);

}  // namespace tnr::cuda
