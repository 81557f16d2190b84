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
    explicit Hold(CUstream stream) {
        auto* opened = new std::shared_future<void>(promise_.get_future().share());
        OK(cuLaunchHostFunc(stream, wait, opened));
    }
    ~Hold() { open(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    void open() {
        if (!std::exchange(open_, true)) promise_.set_value();
    }

private:
    static void wait(void* opened) {
        std::unique_ptr<std::shared_future<void>> owned(static_cast<std::shared_future<void>*>(opened));
        owned->wait();
    }
    std::promise<void> promise_;
    bool open_ = false;
};

}  // namespace tnr::cuda
