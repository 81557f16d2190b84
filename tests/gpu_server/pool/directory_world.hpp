// Directories of nodes and claims for tests: in a SQLite file, and in a real etcd.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "gpu_server/pool/directory.hpp"
#include "gpu_server/pool/directory_backend.hpp"
#include "tests/gpu_server/pool/own_etcd.hpp"

namespace tnr::server::test {

// Time in which we run: that in which a busy machine stands still, for a second or two, is nobody's fault.
class AwakeTime {
public:
    bool is_over(int64_t limit_ms) {
        constexpr int64_t one_step_ms_max = 100;
        const auto now = boot_ms();
        passed_ms_ += std::min(now - std::exchange(last_, now), one_step_ms_max);
        return passed_ms_ > limit_ms;
    }

private:
    int64_t last_ = boot_ms(), passed_ms_ = 0;
};

// What the event loop is to a server.
class Inbox {
public:
    Post post() {
        return [this](std::function<void()> what) {
            LockGuard lock(mutex_);
            left_.push_back(std::move(what));
        };
    }
    // Until it is true, for so long.
    bool run_until(const std::function<bool()>& done, int limit_ms = 8'000) {
        for (AwakeTime time; !done();) {
            if (time.is_over(limit_ms)) return false;
            std::function<void()> what;
            {
                LockGuard lock(mutex_);
                if (!left_.empty()) {
                    what = std::move(left_.front());
                    left_.pop_front();
                }
            }
            if (what)
                what();
            else
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        return true;
    }

private:
    Mutex mutex_;
    std::deque<std::function<void()>> left_ TNR_GUARDED_BY(mutex_);
};

// Where directories are opened; each test has its own.
class World {
public:
    virtual ~World() = default;
    virtual std::unique_ptr<Directory> open() = 0;
    virtual std::unique_ptr<NodeAdmin> admin() = 0;
    Inbox inbox;
};

class SqliteWorld : public World {
public:
    SqliteWorld() {
        std::string name = (std::filesystem::temp_directory_path() / "tnr-directory-XXXXXX").string();
        folder_ = mkdtemp(name.data());
    }
    ~SqliteWorld() override { std::filesystem::remove_all(folder_); }
    std::unique_ptr<Directory> open() override {
        return std::move(*open_sqlite_directory(folder_ + "/pool.db", inbox.post()));
    }
    std::unique_ptr<NodeAdmin> admin() override { return std::move(*open_sqlite_admin(folder_ + "/pool.db")); }

private:
    std::string folder_;
};

class EtcdWorld : public World {
public:
    std::unique_ptr<Directory> open() override { return make_etcd_directory(etcd.address(), inbox.post()); }
    std::unique_ptr<NodeAdmin> admin() override { return make_etcd_admin(etcd.address()); }
    OwnEtcd etcd;
};

inline std::unique_ptr<World> make_world(const std::string& kind) {
    if (kind == "sqlite") return std::make_unique<SqliteWorld>();
    return std::make_unique<EtcdWorld>();
}

inline std::vector<std::string> kinds() {
    if (OwnEtcd::is_there()) return {"sqlite", "etcd"};
    return {"sqlite"};
}

inline PoolNode node(const std::string& name, const std::vector<std::string>& gpus, const std::string& identity = "") {
    return {name,
            "tcp://" + name + ":1",
            "K",
            "1",
            identity.empty() ? "identity of " + name : identity,
            {{"h100", {static_cast<int>(gpus.size()), static_cast<int>(gpus.size()), 1}}},
            gpus};
}

inline PoolClaim claim(const std::string& node, int64_t id, const std::vector<std::string>& gpus) {
    return {node, id, "alice", "trainer", "h100", gpus, 1};
}

inline TypeCounts h100s(int total, int free) {
    return {{"h100", {total, free, 1}}};
}

// A node's requests to its store give up after a second and are made again: a busy machine may stand still for as long.
template <class Request>
auto until_answered(Request&& request) {
    auto answer = request();
    for (int more = 0; !answer && more < 5; ++more) answer = request();
    return answer;
}

inline Result<int64_t> add(World& world, Directory& directory, const PoolClaim& claim,
                           const TypeCounts& types = h100s(2, 1), Directory::Unless unless = Directory::Unless::never) {
    std::optional<Result<int64_t>> answer;
    directory.add_claim(claim, types, unless, [&](Result<int64_t> told) { answer = std::move(told); });
    REQUIRE(world.inbox.run_until([&] { return answer.has_value(); }));
    return *answer;
}

inline void join(World& world, Directory& directory, const PoolNode& self) {
    directory.join(self);
    REQUIRE(world.inbox.run_until([&] { return directory.standing().good(); }));
}

// `a` with one GPU, which then knows of `b` with two.
inline void join_both(World& world, Directory& a, Directory& b) {
    join(world, a, node("a", {"A1"}));
    join(world, b, node("b", {"B1", "B2"}));
    REQUIRE(world.inbox.run_until([&] { return a.nodes().size() == 2; }));
}

inline const Question everything{.all_claims = true, .all_free = true};

inline void look(World& world, Directory& directory, const Question& question = everything) {
    bool answered = false;
    directory.look(question, [&] { answered = true; });
    REQUIRE(world.inbox.run_until([&] { return answered; }));
}

// Looks until it is so.
inline bool sees(World& world, Directory& directory, const std::function<bool()>& so, int limit_ms = 8'000) {
    for (auto end = boot_ms() + limit_ms; !so();) {
        if (boot_ms() > end) return false;
        look(world, directory);
        world.inbox.run_until([] { return false; }, 10);
    }
    return true;
}

}  // namespace tnr::server::test
