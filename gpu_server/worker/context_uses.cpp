// See context_uses.hpp.
#include "gpu_server/worker/context_uses.hpp"

namespace tnr::worker {

ContextUses::Use ContextUses::begin(CUcontext context) {
    LockGuard lock(mutex_);
    ++users_[context];
    return Use(context, [this](void* context) { end(static_cast<CUcontext>(context)); });
}

void ContextUses::end(CUcontext context) {
    LockGuard lock(mutex_);
    auto found = users_.find(context);
    if (--found->second > 0) return;
    users_.erase(found);
    ended_.notify_all();
}

void ContextUses::wait_until_unused(CUcontext context) {
    LockGuard lock(mutex_);
    while (users_.contains(context)) ended_.wait(mutex_);
}

}  // namespace tnr::worker
