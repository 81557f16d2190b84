// See mailbox.hpp.
#include "gpu_server/supervisor/mailbox.hpp"

#include <sys/eventfd.h>

namespace tnr::server {

Mailbox::Mailbox(EventLoop& loop) : loop_(loop), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    loop_.watch(bell_.get(), [this] { run_all(); });
}

Mailbox::~Mailbox() {
    loop_.unwatch(bell_.get());
}

void Mailbox::post(std::function<void()> what) {
    {
        LockGuard lock(mutex_);
        left_.push_back(std::move(what));
    }
    ::eventfd_write(bell_.get(), 1);
}

void Mailbox::run_all() {
    eventfd_t rings = 0;
    ::eventfd_read(bell_.get(), &rings);
    std::deque<std::function<void()>> all;
    {
        LockGuard lock(mutex_);
        all.swap(left_);
    }
    for (auto& what : all) what();
}

}  // namespace tnr::server
