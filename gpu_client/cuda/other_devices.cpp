// See other_devices.hpp.
#include "gpu_client/cuda/other_devices.hpp"

#include <map>
#include <set>
#include <tuple>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/memory_pools.hpp"
#include "gpu_client/cuda/remote_call.hpp"

namespace tnr::cuda {

namespace {

bool opens_to(uint64_t devices, int ordinal) {
    return (devices >> ordinal & 1) != 0;
}

// An active context on one of the devices (a bit for each); `preferred` if it is one.
Context* active_context(uint64_t devices, uint64_t preferred) {
    auto suits = [&](Context& context) {
        return opens_to(devices, context.device) && usable(&context) == CUDA_SUCCESS;
    };
    if (auto* context = contexts().find(preferred); context && suits(*context)) return context;
    Context* found = nullptr;
    contexts().each([&](Context& context, uint64_t) {
        if (!found && suits(context)) found = &context;
    });
    return found;
}

// One stream for each stream that detours start from: sharing one would make one stream's work wait for another's. They
// end with their context.
using Way = std::tuple<uint64_t, uint64_t, uint64_t>;  // context there, context here, stream here
struct Ways {
    Mutex mutex;
    std::map<Way, uint64_t> streams TNR_GUARDED_BY(mutex);
};
Ways& ways() {
    static auto* all = new Ways;
    return *all;
}

CUresult stream_there(Context& there, const Context& here, const StreamRef& from, StreamRef& stream) {
    const Way way{there.handle, here.handle, from.number};
    uint64_t handle = 0;
    {
        LockGuard lock(ways().mutex);
        if (auto found = ways().streams.find(way); found != ways().streams.end()) handle = found->second;
    }
    stream.object = streams().find(handle);
    if (!stream.object) {
        if (auto result = make_stream(there, CU_STREAM_NON_BLOCKING, 0, handle); result != CUDA_SUCCESS) return result;
        stream.object = streams().find(handle);
        LockGuard lock(ways().mutex);
        ways().streams[way] = handle;
    }
    stream.number = stream.object->number;
    return CUDA_SUCCESS;
}

// An event that lives for one wait.
class Crossing {
public:
    explicit Crossing(Context& context) : context_(context) {
        handle_ = events().create([&](Event& event, uint64_t index, uint64_t value) {
            number_ = event.number = index + 1;
            event.handle = value;
            event.context = context.handle;
            event.flags = CU_EVENT_DISABLE_TIMING;
            event.stream = event.recorded = event.completed = event.watched = event.capture = 0;
            event.in_graphs = false;
        });
    }
    ~Crossing() { events().destroy(handle_); }
    Crossing(const Crossing&) = delete;
    Crossing& operator=(const Crossing&) = delete;

    CUresult make() {
        RemoteCall call(wire::CreateEvent<>{number_, CU_EVENT_DISABLE_TIMING});
        call.in_context(&context_);
        return call.send();
    }
    // A driver lets waits that were submitted before complete.
    CUresult end() {
        RemoteCall call(wire::DestroyEvent<>{number_});
        call.in_context(&context_);
        return call.send();
    }
    CUresult record(const StreamRef& stream) {
        RemoteCall call(wire::RecordEvent<>{number_, stream.number, 0});
        call.in_context(&context_);
        call.use(stream);
        return call.send();
    }
    CUresult wait(Context& context, const StreamRef& stream) {
        RemoteCall call(wire::op_cuStreamWaitEvent, wire::CallWay::async_);
        call.in_context(&context);
        call.use(stream);
        call.put(stream.number);
        call.put(number_);
        call.put(uint32_t{0});
        return call.send();
    }

private:
    Context& context_;
    uint64_t handle_ = 0, number_ = 0;
};

CUresult put_behind(Context& first_context, const StreamRef& first, Context& then_context, const StreamRef& then) {
    Crossing crossing(first_context);
    if (auto result = crossing.make(); result != CUDA_SUCCESS) return result;
    auto result = crossing.record(first);
    if (result == CUDA_SUCCESS) result = crossing.wait(then_context, then);
    auto ended = crossing.end();
    return result == CUDA_SUCCESS ? ended : result;
}

}  // namespace

Context* context_for_memory(uint64_t address, Context& here) {
    if (devices().size() < 2) return &here;
    auto* device = device_of_address(address);
    Allocation allocation;
    // Symbols of loaded code are the driver's own, and it finds them from everywhere.
    if (!device || !device->memory->find(address, allocation)) return &here;
    uint64_t open_to = allocation.mapped_by_program ? allocation.open_to : uint64_t{1} << device->ordinal;
    return opens_to(open_to, here.device) ? &here : active_context(open_to, allocation.context);
}

bool pools_let_copy(uint64_t to, uint64_t from, const Context& here) {
    if (devices().size() < 2) return true;
    auto *first = device_of_address(to), *second = device_of_address(from);
    if (!first || !second || first == second) return true;
    if (first->ordinal != here.device && second->ordinal != here.device) return true;
    Allocation allocation;
    auto& other = first->ordinal == here.device ? *second : *first;
    if (!other.memory->find(&other == first ? to : from, allocation) || allocation.pool == 0) return true;
    auto* pool = pools().find(allocation.pool);
    return !pool || opens_to(pool->open_to, here.device);
}

bool open_to_device_of(const Context& here, uint64_t address) {
    auto* device = device_of_address(address);
    Allocation allocation;
    if (!device || device->ordinal == here.device || !device->memory->find(address, allocation)) return true;
    if (allocation.mapped_by_program) return opens_to(allocation.open_to, here.device);
    if (device->session.load() != here.session.load()) return false;
    static auto* opened = new std::set<std::pair<int, int>>;
    static Mutex mutex;
    const std::pair way{device->ordinal, here.device};
    {
        LockGuard lock(mutex);
        if (opened->contains(way)) return true;
    }
    device->memory->reached_from(here.device);
    RemoteCall call(wire::MemoryAccess<>{device->number, find_device(here.device)->number,
                                         uint32_t{CU_MEM_ACCESS_FLAGS_PROT_READWRITE}});
    call.on(*device);
    if (call.send() != CUDA_SUCCESS) return false;
    LockGuard lock(mutex);
    opened->insert(way);
    return true;
}

CUresult Detour::begin(uint64_t address, const StreamRef& from) {
    from_ = stream_ = from;
    if (auto result = context_of_stream(from, here_); result != CUDA_SUCCESS) return result;
    context_ = address == 0 ? here_ : context_for_memory(address, *here_);
    if (!context_) return CUDA_ERROR_INVALID_VALUE;
    elsewhere_ = context_ != here_;
    if (!elsewhere_) return CUDA_SUCCESS;
    if (auto result = stream_there(*context_, *here_, from, stream_); result != CUDA_SUCCESS) return result;
    return put_behind(*here_, from_, *context_, stream_);
}

CUresult Detour::end() {
    return elsewhere_ ? put_behind(*context_, stream_, *here_, from_) : CUDA_SUCCESS;
}

}  // namespace tnr::cuda
