// What a context is made of; the functions that programs call are in context_api.cpp.
#include "gpu_server/emulated_gpu/driver/context.hpp"

#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/green_context.hpp"
#include "gpu_server/emulated_gpu/driver/memory.hpp"
#include "gpu_server/emulated_gpu/driver/print.hpp"

namespace tnr::emulated {
namespace {

uint64_t next_context_id() {
    static std::atomic<uint64_t> next{1};
    return next++;
}

}  // namespace

CUresult status_of(Context& context) {
    auto green = current_green_context();
    if (green && &green->primary == &context && !green->alive()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return context.status();
}

CUresult Stream::status() const {
    return green && !green->alive() ? CUDA_ERROR_CONTEXT_IS_DESTROYED : context.status();
}

Context::Context(Device& owner, bool is_primary, unsigned context_flags)
    : Object(kind_of), device(owner), primary(is_primary), id(next_context_id()), flags(context_flags) {
    reset_limits();
    legacy_ = std::make_shared<Stream>(*this, Stream::Role::legacy, 0u, 0);
    legacy_->id = 1;
}

void Context::reset_limits() {
    for (auto& limit : limits) limit = 0;
    // What the driver starts with.
    limits[CU_LIMIT_STACK_SIZE] = 1024;
    limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
    limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    limits[CU_LIMIT_SHMEM_SIZE] = shared_bytes_optin;
    heap_used_ = printed_ = false;
}

void Context::fix_limits(const ptx::Kernel& kernel) {
    if (kernel.uses_heap) heap_used_ = true;
    if (kernel.prints) printed_ = true;
}

bool Context::limit_is_fixed(CUlimit limit) const {
    return (limit == CU_LIMIT_MALLOC_HEAP_SIZE && heap_used_) || (limit == CU_LIMIT_PRINTF_FIFO_SIZE && printed_);
}

Context* Context::create(Device& device, unsigned flags) {
    auto context = driver().registry.add(std::shared_ptr<Context>(new Context(device, false, flags)));
    context->alive_ = true;
    return context.get();
}

Context* Context::create_primary(Device& device) {
    return driver().registry.add(std::shared_ptr<Context>(new Context(device, true, 0))).get();
}

CUresult Context::status() const {
    if (!alive_) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return static_cast<CUresult>(error_.load());
}

void Context::fail(CUresult error) {
    int none = CUDA_SUCCESS;
    if (!error_.compare_exchange_strong(none, error)) return;
    std::atomic_ref(cancelled_).store(true);
}

std::shared_ptr<Stream> Context::stream(CUstream handle) {
    LockGuard lock(mutex_);
    if (handle == nullptr || handle == CU_STREAM_LEGACY) return legacy_;
    if (handle == CU_STREAM_PER_THREAD) {
        auto& mine = per_thread_[std::this_thread::get_id()];
        if (!mine) {
            mine = std::make_shared<Stream>(*this, Stream::Role::per_thread, 0u, 0);
            mine->id = 2;
            streams_.insert(mine);
            hold_new(*mine);
        }
        return mine;
    }
    return find<Stream>(handle);
}

std::shared_ptr<Stream> Context::create_stream(unsigned flags, int priority, std::shared_ptr<GreenContext> green) {
    auto made = std::make_shared<Stream>(*this, Stream::Role::created, flags, priority);
    made->green = std::move(green);
    auto stream = driver().registry.add(std::move(made));
    LockGuard lock(mutex_);
    stream->id = next_stream_id_++;
    streams_.insert(stream);
    hold_new(*stream);
    return stream;
}

void Context::hold_new(Stream& stream) {
    if (!held_until_.passed()) stream.queue->submit([] {}, {held_until_});
}

// The point may lie behind an earlier one that is still waited for.
void Context::hold_until(const Point& point) {
    LockGuard lock(mutex_);
    auto both = std::make_shared<Queue>();
    held_until_ = both->submit([] {}, {held_until_, point});
    legacy_->queue->submit([] {}, {held_until_});
    for (auto& stream : streams_) stream->queue->submit([] {}, {held_until_});
}

std::vector<Point> Context::ends() {
    std::vector<Point> points;
    for (auto& queue : queues()) points.push_back(queue->last());
    return points;
}

// Work that is still in the queue goes on, and the legacy stream has to wait for it: so the stream stays
// known until it is empty.
void Context::retire(const std::shared_ptr<Stream>& stream) {
    LockGuard lock(mutex_);
    stream->retired = true;
    std::erase_if(streams_, [](auto& s) { return s->retired && s->queue->last().passed(); });
}

// Under the lock, as the points taken here must not be overtaken by another submission.
std::vector<Point> Context::order(Stream& stream, std::vector<Point> after) {
    if (!stream.blocking()) return after;
    auto add = [&](Queue& queue) {
        if (Point point = queue.last(); !point.passed()) after.push_back(std::move(point));
    };
    if (stream.role != Stream::Role::legacy) {
        add(*legacy_->queue);
        return after;
    }
    for (auto& other : streams_)
        if (other->blocking()) add(*other->queue);
    return after;
}

Point Context::submit(Stream& stream, Queue::Item item, std::vector<Point> after) {
    LockGuard lock(mutex_);
    return stream.queue->submit(std::move(item), order(stream, std::move(after)));
}

void Context::run(Stream& stream, Queue::Item item, std::vector<Point> after) {
    Queue::Placed placed;
    {
        LockGuard lock(mutex_);
        placed = stream.queue->place(std::move(item), order(stream, std::move(after)));
    }
    stream.queue->complete(std::move(placed));
}

std::vector<Point> Context::ends_of(Stream& stream) {
    LockGuard lock(mutex_);
    std::vector<Point> ends{stream.queue->last()};
    if (stream.role == Stream::Role::legacy)
        for (auto& other : streams_)
            if (other->blocking()) ends.push_back(other->queue->last());
    return ends;
}

bool Context::passed_through(Stream& stream) {
    for (const Point& end : ends_of(stream))
        if (!end.passed()) return false;
    return true;
}

void Context::wait_through(Stream& stream) {
    for (const Point& end : ends_of(stream)) end.wait();
}

std::vector<std::shared_ptr<Queue>> Context::queues() {
    LockGuard lock(mutex_);
    std::vector<std::shared_ptr<Queue>> all{legacy_->queue};
    for (auto& stream : streams_) all.push_back(stream->queue);
    return all;
}

void Context::synchronize() {
    for (auto& queue : queues()) queue->last().wait();
    flush_print();
}

bool Context::idle() {
    for (auto& queue : queues())
        if (!queue->last().passed()) return false;
    return true;
}

void Context::own(uint64_t handle) {
    LockGuard lock(mutex_);
    owned_.insert(handle);
}

void Context::disown(uint64_t handle) {
    LockGuard lock(mutex_);
    owned_.erase(handle);
}

void Context::activate(unsigned new_flags) {
    flags = new_flags;
    cache_config = CU_FUNC_CACHE_PREFER_NONE;
    error_ = CUDA_SUCCESS;
    std::atomic_ref(cancelled_).store(false);
    reset_limits();
    alive_ = true;
}

void Context::tear_down() {
    alive_ = false;
    synchronize();
    std::set<std::shared_ptr<Stream>> streams;
    std::set<uint64_t> owned;
    {
        LockGuard lock(mutex_);
        streams.swap(streams_);
        owned.swap(owned_);
        per_thread_.clear();
        peers_.clear();
    }
    for (auto& stream : streams) {
        abandon_capture(*stream);
        driver().registry.remove(stream->handle());
    }
    for (uint64_t handle : owned)
        if (auto object = driver().registry.take(handle)) object->dismiss();
    free_memory_of(*this);
    ptx::end_heap(id);
}

CUresult Context::attribute(Stream& stream, CUstreamAttrID id, CUstreamAttrValue& value) {
    switch (id) {
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
    LockGuard lock(mutex_);
    auto found = stream.attributes.find(id);
    value = found == stream.attributes.end() ? CUstreamAttrValue{} : found->second;
    if (found == stream.attributes.end() && id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY)
        value.syncPolicy = CU_SYNC_POLICY_AUTO;
    return CUDA_SUCCESS;
}

bool Context::is_sound(const CUaccessPolicyWindow& window) const {
    int most = 0;
    (void)cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, device.ordinal);
    const bool fits = window.num_bytes == 0 || (window.base_ptr && window.num_bytes <= static_cast<size_t>(most));
    return fits && window.hitRatio >= 0 && window.hitRatio <= 1 && window.missProp != CU_ACCESS_PROPERTY_PERSISTING;
}

CUresult Context::set_attribute(Stream& stream, CUstreamAttrID id, const CUstreamAttrValue& value) {
    CUstreamAttrValue ignored;
    if (CUresult error = attribute(stream, id, ignored)) return error;
    const bool window = id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
    const bool policy = id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
    if (window && !is_sound(value.accessPolicyWindow)) return CUDA_ERROR_INVALID_VALUE;
    if (policy && (value.syncPolicy < CU_SYNC_POLICY_AUTO || value.syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC))
        return CUDA_ERROR_INVALID_VALUE;
    LockGuard lock(mutex_);
    stream.attributes[id] = value;
    return CUDA_SUCCESS;
}

void Context::copy_attributes(Stream& target, Stream& source) {
    LockGuard lock(mutex_);
    target.attributes = source.attributes;
}

bool Context::can_reach(const Context& peer) {
    LockGuard lock(mutex_);
    return peers_.contains(&peer);
}

CUresult Context::enable_peer(Context& peer) {
    LockGuard lock(mutex_);
    return peers_.insert(&peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult Context::disable_peer(Context& peer) {
    LockGuard lock(mutex_);
    return peers_.erase(&peer) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

}  // namespace tnr::emulated
