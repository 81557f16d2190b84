// Handles. What a program holds is a number that we look up, never a pointer that we follow: a handle that
// is null, made up, of the wrong kind or already destroyed is an error code, not a crash. Numbers are never
// used twice, so a stale handle never reaches somebody else's object.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api_client/base/mutex.hpp"

namespace tnr::emulated {

enum class Kind : uint8_t {
    context,
    green_context,
    resource_description,
    stream,
    event,
    module,
    function,
    library,
    kernel,
    link,
    physical_memory,
    multicast,
    pool,
    graph,
    graph_node,
    graph_exec,
    condition,
    updatable_node,
    user_object,
    array,
    mipmapped_array,
    texture,
    surface,
    texture_reference,
    surface_reference
};

// The base of everything that has a handle. Owned by shared_ptr: the registry holds one reference, work
// that is under way may hold more, so an object outlives its handle until that work is done.
class Object {
public:
    explicit Object(Kind kind) : kind_(kind) {}
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;
    virtual ~Object() = default;

    // The context that owns it is going away.
    virtual void dismiss() {}

    Kind kind() const { return kind_; }
    uint64_t handle() const { return handle_; }
    // The handle as the C type that the API uses for it.
    template <class Handle>
    Handle as() const {
        if constexpr (std::is_pointer_v<Handle>)
            return reinterpret_cast<Handle>(handle_);
        else
            return static_cast<Handle>(handle_);
    }

private:
    friend class Registry;
    const Kind kind_;
    uint64_t handle_ = 0;
};

// Thread-safe. Its lock is the innermost of all: nothing is called while it is held.
class Registry {
public:
    template <class T>
    std::shared_ptr<T> add(std::shared_ptr<T> object) {
        ExclusiveLock lock(mutex_);
        object->handle_ = next_;
        next_ += handle_step;
        objects_.emplace(object->handle_, object);
        return object;
    }

    // Null unless the handle names a living object of T's kind.
    template <class T, class Handle>
    std::shared_ptr<T> find(Handle handle) const {
        SharedLock lock(mutex_);
        auto found = objects_.find(number(handle));
        if (found == objects_.end() || found->second->kind() != T::kind_of) return nullptr;
        return std::static_pointer_cast<T>(found->second);
    }

    // A second handle of an object that has one.
    uint64_t add_name(std::shared_ptr<Object> object) {
        ExclusiveLock lock(mutex_);
        uint64_t name = next_;
        next_ += handle_step;
        objects_.emplace(name, std::move(object));
        return name;
    }

    // Takes the handle away; of two threads that destroy the same object only one gets it.
    std::shared_ptr<Object> take(uint64_t handle) {
        ExclusiveLock lock(mutex_);
        auto found = objects_.find(handle);
        if (found == objects_.end()) return nullptr;
        std::shared_ptr<Object> last = std::move(found->second);
        objects_.erase(found);
        return last;
    }
    // Takes the handle away from an object that is to live on for ever.
    void hide(const std::shared_ptr<Object>& object) {
        ExclusiveLock lock(mutex_);
        hidden_.push_back(object);
        objects_.erase(object->handle_);
    }
    bool remove(uint64_t handle) { return take(handle) != nullptr; }

private:
    template <class Handle>
    static uint64_t number(Handle handle) {
        if constexpr (std::is_pointer_v<Handle>)
            return reinterpret_cast<uint64_t>(handle);
        else
            return static_cast<uint64_t>(handle);
    }

    // Far from null and from the small numbers that name special streams; aligned as a pointer would be;
    // outside what Linux maps by default, so that a program that follows one finds out at once.
    static constexpr uint64_t handle_first = 0x100000, handle_step = 64;

    mutable SharedMutex mutex_;
    std::unordered_map<uint64_t, std::shared_ptr<Object>> objects_ TNR_GUARDED_BY(mutex_);
    std::vector<std::shared_ptr<Object>> hidden_ TNR_GUARDED_BY(mutex_);
    uint64_t next_ TNR_GUARDED_BY(mutex_) = handle_first;
};

}  // namespace tnr::emulated
