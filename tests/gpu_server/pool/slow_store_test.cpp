// Stores that take their time, or have forgotten a node: it goes on being one of the pool's.
#include <atomic>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>

#include "api_client/base/mutex.hpp"
#include "gpu_server/pool/directory_backend.hpp"
#include "gpu_server/pool/sqlite.hpp"
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
    Result<Added> add(const PoolClaim&, int64_t, const PoolNode*, std::optional<int64_t>) override {
        return Added{2, {}};
    }
    Result<bool> remove(const PoolClaim&, int64_t, const PoolNode*) override { return true; }
    Result<Found> look(const Question&, const std::string&) override { return Found(); }
    Result<std::vector<Entry>> claims_of(const std::string&) override { return std::vector<Entry>(); }
    Result<> follow(const std::function<bool(const Change&)>&, const StopAsked& stopped) override {
        while (!stopped()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        return Ok{};
    }
    void leave(const PoolNode&) override {}

private:
    const std::chrono::milliseconds renews_after_;
};

// Renews the lease of a node that it does not have any more: an operator has removed it while nobody followed.
class ForgetfulStore : public SlowStore {
public:
    ForgetfulStore() : SlowStore(std::chrono::milliseconds(0)) {}
    Result<Registration> join(const PoolNode&, const std::vector<PoolClaim>&) override {
        Registration made;
        made.fence = registered_ += 10;
        return made;
    }
    Result<> follow(const std::function<bool(const Change&)>& told, const StopAsked& stopped) override {
        std::vector<Entry> entries;
        if (has_node) entries.push_back({"nodes/a", "its entry", 10});
        told({.all = true, .entries = entries, .as_of = as_of});
        ++times_told;
        while (!stopped() && !connection_breaks.exchange(false))
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return Ok{};
    }
    Result<Added> add(const PoolClaim&, int64_t fence, const PoolNode*, std::optional<int64_t>) override {
        return Added{fence + 1, {}, fence == gone};
    }
    std::atomic<int64_t> gone = 0;  // a registration that is not there
    std::atomic<int64_t> as_of = 5;
    std::atomic<bool> has_node = false, connection_breaks = false;
    std::atomic<int> times_told = 0;

private:
    std::atomic<int64_t> registered_ = 0;
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

// Its lease ends in the file while nothing can be written there: the disk, or a machine that is busy with other things.
TEST_CASE("a node that is alone with its file does not lose its place or its claims, however late it renews",
          "[pool]") {
    std::string folder = (std::filesystem::temp_directory_path() / "tnr-alone-XXXXXX").string();
    REQUIRE(mkdtemp(folder.data()));
    const auto path = folder + "/pool.db";
    Deliveries deliveries;
    auto until = [&](const std::function<bool()>& done) {
        for (const auto end = boot_ms() + 20'000; !done() && boot_ms() < end;
             std::this_thread::sleep_for(std::chrono::milliseconds(5)))
            deliveries.run();
        return done();
    };
    auto directory =
        std::move(*open_sqlite_directory(path, deliveries.post(), {.ttl_s = 1, .renewed_ms = 100, .alone = true}));
    PoolNode self{"a", "tcp://a:1", "", "", "identity", {{"h100", {2, 2, 1}}}, {"A1", "A2"}};
    directory->join(self);
    REQUIRE(until([&] { return directory->standing().good(); }));
    const auto registered = directory->standing().fence;
    auto add = [&](int64_t id, const std::string& gpu) {
        std::optional<Result<int64_t>> fence;
        directory->add_claim({"a", id, "alice", "trainer", "h100", {gpu}, 1}, {}, Directory::Unless::never,
                             [&](Result<int64_t> told) { fence = std::move(told); });
        REQUIRE(until([&] { return fence.has_value(); }));
        return fence->operator bool();
    };
    CHECK(add(1, "A1"));
    auto admin = std::move(*open_sqlite_admin(path));
    auto database = open_database(path, "");
    REQUIRE(database);
    REQUIRE(sqlite3_exec(database->get(), "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK);
    CHECK(until([&] { return admin->view()->nodes.at("a").fence == 0; }));  // what the operator sees
    CHECK(until([&] { return !directory->standing().trouble.empty(); }));
    CHECK(directory->standing().good());
    REQUIRE(sqlite3_exec(database->get(), "COMMIT", nullptr, nullptr, nullptr) == SQLITE_OK);
    CHECK(add(2, "A2"));
    CHECK(until([&] { return directory->standing().trouble.empty(); }));
    CHECK(directory->standing().fence == registered);
    CHECK(until([&] { return admin->view()->claims.size() == 2; }));

    // What a server that was killed has left is nobody's, though its lease goes on.
    directory.reset();
    auto next = std::move(*open_sqlite_directory(path, deliveries.post(), {.ttl_s = 100, .alone = true}));
    self.name = "renamed";
    self.gpus = {"R1"};
    next->join(self);
    REQUIRE(until([&] { return next->nodes().count("renamed") == 1; }));
    CHECK(next->nodes().size() == 1);
    CHECK(admin->view()->claims.empty());
    next->leave();
    std::filesystem::remove_all(folder);
}

// Paused after each answer, it was out of touch for 0.6 s of each 1.9. A busy machine may stop us for a while: not always.
TEST_CASE("a node whose store takes 1.2 s for an answer is never out of touch with its pool", "[pool]") {
    Deliveries deliveries;
    auto directory =
        make_directory(std::make_unique<SlowStore>(std::chrono::milliseconds(1'200)), deliveries.post(), {});
    directory->join({"a", "tcp://a:1", "", "", "identity"});
    bool in_touch = false;
    for (int attempt = 0; attempt < 5 && !in_touch; ++attempt) {
        int good = 0, bad = 0;
        for (const auto end = boot_ms() + 8'000; boot_ms() < end;
             std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
            deliveries.run();
            if (directory->standing().joined) ++(directory->standing().good() ? good : bad);
        }
        in_touch = good > 100 && bad < good / 10;
    }
    CHECK(in_touch);
    directory->leave();
}

TEST_CASE("a node that was removed while it did not hear of it registers again, once", "[pool]") {
    Deliveries deliveries;
    auto owned = std::make_unique<ForgetfulStore>();
    auto& store = *owned;
    LeaseTimes often;
    often.renewed_ms = 10;
    auto directory = make_directory(std::move(owned), deliveries.post(), often);
    auto fence_after = [&](int wait_ms, int64_t until = INT64_MAX) {
        for (const auto end = boot_ms() + wait_ms; boot_ms() < end && directory->standing().fence != until;
             std::this_thread::sleep_for(std::chrono::milliseconds(5)))
            deliveries.run();
        return directory->standing().fence;
    };
    const PoolNode self{"a", "tcp://a:1", "", "", "identity"};
    SECTION("of a process's own registration") {
        directory->join(self);
        CHECK(fence_after(20'000, 10) == 10);
        CHECK(fence_after(300) == 10);  // it was told of the time before its registration
        store.as_of = 15;
        store.connection_breaks = true;
        CHECK(fence_after(20'000, 20) == 20);
        CHECK(fence_after(300) == 20);
    }
    SECTION("of the process before, which counts from when this one knows whose it is") {
        store.as_of = 15;
        store.has_node = GENERATE(true, false);
        for (int i = 0; i < 4'000 && store.times_told == 0; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        directory->join(self, Tenure{"", {true, 5, boot_ms() + 2'500}, {}});
        if (store.has_node) {
            CHECK(fence_after(300) == 5);
            store.has_node = false;
            store.connection_breaks = true;
        }
        CHECK(fence_after(20'000, 10) == 10);
    }
    directory->leave();
}

// An etcd that ends leases of nodes that live (its issue 15247) would cost a second of refused claims each time.
TEST_CASE("a node that hears of its removal registers again before it would have renewed", "[pool]") {
    Deliveries deliveries;
    auto owned = std::make_unique<ForgetfulStore>();
    auto& store = *owned;
    auto directory = make_directory(std::move(owned), deliveries.post(), {.ttl_s = 900, .renewed_ms = 600'000});
    const auto has = [&](int64_t fence) {
        for (const auto end = boot_ms() + 20'000; boot_ms() < end && directory->standing().fence != fence;
             std::this_thread::sleep_for(std::chrono::milliseconds(5)))
            deliveries.run();
        return directory->standing().fence == fence;
    };
    directory->join({"a", "tcp://a:1", "", "", "identity"});
    CHECK(has(10));
    store.as_of = 15;
    store.connection_breaks = true;
    CHECK(has(20));
    directory->leave();
}

TEST_CASE("a node that hears of its removal when a claim is refused knows it then, and registers again at once",
          "[pool]") {
    Deliveries deliveries;
    auto owned = std::make_unique<ForgetfulStore>();
    auto& store = *owned;
    auto directory = make_directory(std::move(owned), deliveries.post(), {.ttl_s = 900, .renewed_ms = 600'000});
    const auto runs_until = [&](const std::function<bool()>& done) {
        for (const auto end = boot_ms() + 20'000; boot_ms() < end && !done();
             std::this_thread::sleep_for(std::chrono::milliseconds(5)))
            deliveries.run();
        return done();
    };
    directory->join({"a", "tcp://a:1", "", "", "identity"});
    REQUIRE(runs_until([&] { return directory->standing().fence == 10; }));
    store.gone = 10;
    std::optional<Result<int64_t>> answer;
    bool good = true;
    directory->add_claim({"a", 1, "alice", "trainer", "h100", {"A1"}, 0}, {}, Directory::Unless::never,
                         [&](Result<int64_t> fence) {
                             answer = std::move(fence);
                             good = directory->standing().good();
                         });
    REQUIRE(runs_until([&] { return answer.has_value(); }));
    CHECK_FALSE(*answer);
    CHECK_FALSE(good);
    CHECK(runs_until([&] { return directory->standing().fence == 20 && directory->standing().good(); }));
    answer.reset();
    directory->add_claim({"a", 2, "alice", "trainer", "h100", {"A1"}, 0}, {}, Directory::Unless::never,
                         [&](Result<int64_t> fence) { answer = std::move(fence); });
    REQUIRE(runs_until([&] { return answer.has_value(); }));
    REQUIRE(*answer);
    CHECK(**answer == 21);
    directory->leave();
}
