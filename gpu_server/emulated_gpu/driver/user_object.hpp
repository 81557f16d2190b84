// User objects: something of the program's that graphs keep alive, and that is destroyed by a function of the program
// when the last reference is gone. The count is what references are, so nothing here needs a lock.
#pragma once

#include <atomic>
#include <memory>

#include "gpu_server/emulated_gpu/driver/state.hpp"

namespace tnr::emulated {

class UserObject : public Object {
public:
    static constexpr Kind kind_of = Kind::user_object;
    UserObject(void* object, CUhostFn function, uint64_t references)
        : Object(kind_of), data_(object), destroy_(function), references_(references) {}

    void retain(uint64_t count) { references_ += count; }
    // The last one has the function called on a thread of its own. Nothing happens if there are not so many: CUDA leaves
    // that undefined, and programs expect NVIDIA's driver to accept it.
    void release(uint64_t count);

private:
    void* const data_;
    const CUhostFn destroy_;
    std::atomic<uint64_t> references_;
};

// References that a graph or an instance of one owns; gives them up when it goes.
class UserReferences {
public:
    UserReferences(std::shared_ptr<UserObject> object, uint64_t count) : object_(std::move(object)), count_(count) {}
    ~UserReferences() { object_->release(count_); }
    UserReferences(const UserReferences&) = delete;
    UserReferences& operator=(const UserReferences&) = delete;

    std::shared_ptr<UserReferences> clone() const;
    void add(uint64_t count) { count_ += count; }  // the caller has retained them
    void release(uint64_t count);                  // all, if there are not so many
    bool empty() const { return count_ == 0; }
    const UserObject* object() const { return object_.get(); }

private:
    const std::shared_ptr<UserObject> object_;
    uint64_t count_;  // guarded by graph_mutex(), as graphs are
};

}  // namespace tnr::emulated
