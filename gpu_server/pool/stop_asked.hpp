// How a thread that waits for a store hears that it is to end: it asks, and waits for a bell beside what it waits for.
#pragma once

#include <sys/eventfd.h>

#include <atomic>
#include <functional>

#include "api_client/base/handles.hpp"

namespace tnr::server {

struct StopAsked {
    std::function<bool()> asked = {};  // any thread may call it; empty: never
    int bell = -1;                     // readable from then on; where it is not, a wait ends within a second

    bool operator()() const { return asked && asked(); }
};

// Rung once, by any thread, and for ever.
class Bell {
public:
    void ring() {
        rung_ = true;
        ::eventfd_write(fd_.get(), 1);
    }
    bool rung() const { return rung_; }
    int fd() const { return fd_.get(); }

private:
    std::atomic<bool> rung_{false};
    UniqueFd fd_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

}  // namespace tnr::server
