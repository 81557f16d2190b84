// Contexts and streams: who owns what, what order work runs in, and what happens after a fault.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <unordered_map>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "api_client/base/turn.hpp"
#include "gpu_server/emulated_gpu/driver/state.hpp"
#include "gpu_server/emulated_gpu/driver/work.hpp"
#include "gpu_server/emulated_gpu/ptx/ptx.hpp"

namespace tnr::emulated {

class Capture;
class Context;
class GreenContext;

// Retaining, releasing and resetting primary contexts happen one at a time, and may wait for work.
Turn& primary_turn();

class Stream : public Object {
public:
    static constexpr Kind kind_of = Kind::stream;
    enum class Role { legacy, per_thread, created };

    Stream(Context& owner, Role stream_role, unsigned stream_flags, int stream_priority)
        : Object(kind_of), context(owner), role(stream_role), flags(stream_flags), priority(stream_priority) {}

    Context& context;
    const Role role;
    const unsigned flags;
    const int priority;
    const std::shared_ptr<Queue> queue = std::make_shared<Queue>();
    uint64_t id = 0;
    std::shared_ptr<GreenContext> green;  // that it was made in; mostly none
    // The context's, or CUDA_ERROR_CONTEXT_IS_DESTROYED when its green context is gone.
    CUresult status() const;

    bool blocking() const { return !(flags & CU_STREAM_NON_BLOCKING); }

    // Guarded by Context's lock; clang cannot tell that `context` is the one that has locked.
    bool retired = false;  // destroyed, but not yet empty
    std::unordered_map<int, CUstreamAttrValue> attributes;
    // Non-null while the stream is being captured. Guarded by graph_mutex(); see capture.hpp for the rules.
    std::shared_ptr<Capture> capture;
};

// A Context is never freed, only emptied: threads may have it current, and finding out that it was destroyed
// must be safe. It is a few hundred bytes.
class Context : public Object {
public:
    static constexpr Kind kind_of = Kind::context;

    static Context* create(Device& device, unsigned flags);
    static Context* create_primary(Device& device);

    Device& device;
    const bool primary;
    std::atomic<int> uses{1};  // of one that is not primary
    const uint64_t id;

    // CUDA_ERROR_CONTEXT_IS_DESTROYED, or the fault that every call returns from now on, or success.
    CUresult status() const;
    // A kernel faulted: the first one decides. Running kernels are told to stop, waiting work is dropped.
    void fail(CUresult error);
    bool faulted() const { return error_ != CUDA_SUCCESS; }
    const bool* cancelled() const { return &cancelled_; }

    // Null for a handle that is not a living stream. Knows the special handles.
    std::shared_ptr<Stream> stream(CUstream handle);
    std::shared_ptr<Stream> create_stream(unsigned flags, int priority, std::shared_ptr<GreenContext> green = {});
    void retire(const std::shared_ptr<Stream>& stream);

    // Appends to the stream, after what the rules of the legacy default stream demand: it waits for all
    // blocking streams of the context, and they for it. The item runs even after a fault and must look.
    Point submit(Stream& stream, Queue::Item item, std::vector<Point> after = {});
    // The same, returning when it is done.
    void run(Stream& stream, Queue::Item item, std::vector<Point> after = {});
    // Has the stream done all that it was given, and what that waits for? The legacy stream's work is
    // everything that blocking streams have been given.
    bool passed_through(Stream& stream);
    void wait_through(Stream& stream);
    // The newest point of every stream.
    std::vector<Point> ends();
    // All streams of the context, also those that are made later, wait for the point.
    void hold_until(const Point& point);
    // Waits for all work submitted so far.
    void synchronize();
    bool idle();

    // Objects that go away with the context: modules, events, pools' allocations and so on.
    void own(uint64_t handle);
    void disown(uint64_t handle);

    void activate(unsigned new_flags);  // primary context: retained for the first time
    // Waits for its work, then frees everything it owns.
    void tear_down();
    bool alive() const { return alive_; }

    std::atomic<unsigned> flags;
    unsigned api_version = 3020;
    std::atomic<CUfunc_cache> cache_config{CU_FUNC_CACHE_PREFER_NONE};
    std::atomic<size_t> limits[CU_LIMIT_MAX];
    // The kernel is launched: from then on the sizes of what it uses of printf's buffer and malloc's heap cannot be set.
    void fix_limits(const ptx::Kernel& kernel);
    bool limit_is_fixed(CUlimit limit) const;
    int primary_retained TNR_GUARDED_BY(primary_turn()) = 0;

    // The attribute of streams and kernel nodes: can caches of this device keep such memory?
    bool is_sound(const CUaccessPolicyWindow& window) const;
    CUresult attribute(Stream& stream, CUstreamAttrID id, CUstreamAttrValue& value);
    CUresult set_attribute(Stream& stream, CUstreamAttrID id, const CUstreamAttrValue& value);
    void copy_attributes(Stream& target, Stream& source);

    bool can_reach(const Context& peer);  // is peer access enabled?
    CUresult enable_peer(Context& peer);
    CUresult disable_peer(Context& peer);

private:
    Context(Device& owner, bool is_primary, unsigned context_flags);
    void reset_limits();
    void hold_new(Stream& stream) TNR_REQUIRES(mutex_);
    std::vector<Point> order(Stream& stream, std::vector<Point> after) TNR_REQUIRES(mutex_);
    std::vector<Point> ends_of(Stream& stream);
    std::vector<std::shared_ptr<Queue>> queues();

    Mutex mutex_;
    std::shared_ptr<Stream> legacy_ TNR_GUARDED_BY(mutex_);
    std::unordered_map<std::thread::id, std::shared_ptr<Stream>> per_thread_ TNR_GUARDED_BY(mutex_);
    std::set<std::shared_ptr<Stream>> streams_ TNR_GUARDED_BY(mutex_);  // all but the legacy one
    std::set<uint64_t> owned_ TNR_GUARDED_BY(mutex_);
    Point held_until_ TNR_GUARDED_BY(mutex_);
    std::set<const Context*> peers_ TNR_GUARDED_BY(mutex_);
    uint64_t next_stream_id_ TNR_GUARDED_BY(mutex_) = 3;  // 1 and 2 are the default streams' names

    std::atomic<bool> alive_{false};
    std::atomic<bool> heap_used_{false}, printed_{false};
    std::atomic<int> error_{CUDA_SUCCESS};
    bool cancelled_ = false;  // read by the interpreter through atomic_ref
};

// For functions that work on any stream. One that the program has made goes by its own context, the special ones by the
// current one.
template <class Call>
CUresult on_stream(CUstream handle, Call&& call) noexcept {
    const auto in_current = [&](Context& context) -> CUresult {
        auto stream = context.stream(handle);
        if (!stream) return CUDA_ERROR_INVALID_HANDLE;
        if (CUresult error = stream->status()) return error;
        return call(*stream);
    };
    return initialized([&]() -> CUresult {
        auto made = find<Stream>(handle);
        if (!made) return in_context(in_current);
        return in_own_context(made->context, [&] { return in_current(made->context); });
    });
}

}  // namespace tnr::emulated
