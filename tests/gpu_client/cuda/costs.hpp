// What tests inside the client library share: counting what work costs, and streams that stand still meanwhile.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <utility>

#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/stats.hpp"
#include "tests/support/catch.hpp"

#define OK(call) REQUIRE((call) == CUDA_SUCCESS)

namespace tnr::cuda {

struct Cost {
    uint64_t round_trips, records;
};
template <class Work>
Cost cost_of(Work&& work) {
    uint64_t trips = stats().round_trips(), records = open_sessions().front()->position();
    work();
    return {stats().round_trips() - trips, open_sessions().front()->position() - records};
}

// Holds a stream until it is opened, or the object ends.
class Hold {
public:
    explicit Hold(CUstream stream) { OK(cuLaunchHostFunc(stream, wait, new std::shared_ptr<Door>(door_))); }
    ~Hold() { open(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    // Until the stream has come so far: that a host function begins is news to the client, at any moment until then.
    void wait_until_reached() { door_->reached.get_future().wait(); }
    void open() {
        if (!std::exchange(open_, true)) door_->opened.set_value();
    }

private:
    struct Door {
        std::promise<void> reached, opened;
    };
    static void wait(void* door) {
        std::unique_ptr<std::shared_ptr<Door>> owned(static_cast<std::shared_ptr<Door>*>(door));
        (*owned)->reached.set_value();
        (*owned)->opened.get_future().wait();
    }
    std::shared_ptr<Door> door_ = std::make_shared<Door>();
    bool open_ = false;
};

}  // namespace tnr::cuda
