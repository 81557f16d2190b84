// A client's link with somebody who keeps it.
#pragma once

#include <future>
#include <thread>

#include "gpu_client/protocol/keeper.hpp"
#include "tests/support/catch.hpp"

namespace tnr::test {

// Keeps a link on a thread of its own, and remembers what was said.
class Kept {
public:
    explicit Kept(wire::Link& link, wire::Keeper::Patience patience = {})
        : keeper_(link, patience,
                  {[this] { return ++interruptions, interruptions.notify_all(), true; }, [] {}, [](bool) {},
                   [this](const char* why) { lost_.set_value(why); }}),
          thread_([this] { keeper_.run(); }) {}
    ~Kept() {
        keeper_.stop();
        thread_.join();
    }
    // Why the link was given up.
    std::string lost() {
        auto why = lost_.get_future();
        REQUIRE(why.wait_for(std::chrono::seconds(60)) == std::future_status::ready);
        return why.get();
    }
    std::atomic<int> interruptions{0};

private:
    std::promise<std::string> lost_;
    wire::Keeper keeper_;
    std::thread thread_;
};

}  // namespace tnr::test
