// A store that takes a second for each answer: a node goes on being one of the pool's.
#include <deque>
#include <functional>
#include <thread>

#include "api_client/base/mutex.hpp"
#include "gpu_server/pool/directory_backend.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::server;

namespace {

// Knows of nobody, and renews after a while.
class SlowStore : public Backend {
public:
    explicit SlowStore(std::chrono::milliseconds renews_after) : renews_after_(renews_after) {}
    Result<Registration> join(const PoolNode&, const std::vector<PoolClaim>&) override {
        Registration made;
        made.fence = 1;
        return made;
    }
    void go_on(const PoolNode&, const std::string&, const Registration&) override {}
    std::string lease() const override { return {}; }
    Result<bool> renew() override {
        std::this_thread::sleep_for(renews_after_);
        return true;
    }
    Result<Adopted> adopt(const PoolNode&, int64_t, const std::vector<std::string>&) override { return Adopted(); }
    Result<bool> tell_free(const PoolNode&, int64_t) override { return true; }
    Result<bool> tell_node(const PoolNode&, int64_t) override { return true; }
    Result<int64_t> add(const PoolClaim&, int64_t, const PoolNode*) override { return 2; }
    Result<bool> remove(const PoolClaim&, int64_t, const PoolNode*) override { return true; }
    Result<std::vector<Entry>> look(const Question&, const std::string&) override { return std::vector<Entry>(); }
    Result<std::vector<Entry>> claims_of(const std::string&) override { return std::vector<Entry>(); }
    Result<> follow(const std::function<bool(const Change&)>&, const std::function<bool()>& stopped) override {
        while (!stopped()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        return Ok{};
    }
    void leave(const PoolNode&) override {}

private:
    const std::chrono::milliseconds renews_after_;
};

class Deliveries {
public:
    Post post() {
        return [this](std::function<void()> what) {
            LockGuard lock(mutex_);
            left_.push_back(std::move(what));
        };
    }
    void run() {
        std::deque<std::function<void()>> now;
        {
            LockGuard lock(mutex_);
            now.swap(left_);
        }
        for (auto& what : now) what();
    }

private:
    Mutex mutex_;
    std::deque<std::function<void()>> left_ TNR_GUARDED_BY(mutex_);
};

}  // namespace

TEST_CASE("a node whose store takes 1.2 s for an answer is never out of touch with its pool", "[pool]") {
    Deliveries deliveries;
    auto directory =
        make_directory(std::make_unique<SlowStore>(std::chrono::milliseconds(1'200)), deliveries.post(), {});
    directory->join({"a", "tcp://a:1", "", "", "identity"});
    int good = 0, bad = 0;
    for (const auto end = boot_ms() + 8'000; boot_ms() < end;
         std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
        deliveries.run();
        if (directory->standing().joined) ++(directory->standing().good() ? good : bad);
    }
    CHECK(good > 100);
    // Paused after each answer, it was for 0.6 s of each 1.9. A busy machine may stop us for a moment.
    CHECK(bad < good / 10);
    directory->leave();
}
