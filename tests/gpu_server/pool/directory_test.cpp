// One suite over all kinds of directories of nodes and claims: a SQLite file, and a real etcd.
#include "gpu_server/pool/directory.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <deque>
#include <set>

#include "api_client/base/mutex.hpp"
#include "gpu_server/pool/directory_backend.hpp"
#include "gpu_server/pool/store.hpp"
#include "tests/gpu_server/pool/own_etcd.hpp"

using namespace tnr;
using namespace tnr::server;

namespace {

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
        for (auto end = boot_ms() + limit_ms; !done();) {
            if (boot_ms() > end) return false;
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

std::unique_ptr<World> make_world(const std::string& kind) {
    if (kind == "sqlite") return std::make_unique<SqliteWorld>();
    return std::make_unique<EtcdWorld>();
}

std::vector<std::string> kinds() {
    if (OwnEtcd::there()) return {"sqlite", "etcd"};
    WARN("no etcd here: only SQLite is tried (apt-get install etcd-server)");
    return {"sqlite"};
}

PoolNode node(const std::string& name, const std::vector<std::string>& gpus, const std::string& identity = "") {
    return {name,
            "tcp://" + name + ":1",
            "K",
            "1",
            identity.empty() ? "identity of " + name : identity,
            {{"h100", {static_cast<int>(gpus.size()), static_cast<int>(gpus.size()), 1}}},
            gpus};
}

PoolClaim claim(const std::string& node, int64_t id, const std::vector<std::string>& gpus) {
    return {node, id, "alice", "trainer", "h100", gpus, 1};
}

TypeCounts h100s(int total, int free) {
    return {{"h100", {total, free, 1}}};
}

Result<int64_t> add(World& world, Directory& directory, const PoolClaim& claim, const TypeCounts& types = h100s(2, 1)) {
    std::optional<Result<int64_t>> answer;
    directory.add_claim(claim, types, [&](Result<int64_t> told) { answer = std::move(told); });
    REQUIRE(world.inbox.run_until([&] { return answer.has_value(); }));
    return *answer;
}

void join(World& world, Directory& directory, const PoolNode& self) {
    directory.join(self);
    REQUIRE(world.inbox.run_until([&] { return directory.standing().good(); }));
}

// `a` with one GPU, which then knows of `b` with two.
void join_both(World& world, Directory& a, Directory& b) {
    join(world, a, node("a", {"A1"}));
    join(world, b, node("b", {"B1", "B2"}));
    REQUIRE(world.inbox.run_until([&] { return a.nodes().size() == 2; }));
}

const Question everything{.all_claims = true, .all_free = true};

void look(World& world, Directory& directory, const Question& question = everything) {
    bool answered = false;
    directory.look(question, [&] { answered = true; });
    REQUIRE(world.inbox.run_until([&] { return answered; }));
}

// Looks until it is so.
bool sees(World& world, Directory& directory, const std::function<bool()>& so, int limit_ms = 8'000) {
    for (auto end = boot_ms() + limit_ms; !so();) {
        if (boot_ms() > end) return false;
        look(world, directory);
        world.inbox.run_until([] { return false; }, 10);
    }
    return true;
}

}  // namespace

TEST_CASE("nodes see each other, what they have free, and that one leaves", "[pool][directory]") {
    for (auto& kind : kinds()) {
        DYNAMIC_SECTION(kind) {
            auto world = make_world(kind);
            auto a = world->open(), b = world->open();
            join(*world, *a, node("a", {"A1"}));
            join(*world, *b, node("b", {"B1", "B2"}));
            CHECK(world->inbox.run_until([&] { return a->nodes().size() == 2 && b->nodes().size() == 2; }));
            CHECK(a->nodes().at("b").types.at("h100").total == 2);
            CHECK(a->nodes().at("b").types.at("h100").free == 0);  // nobody has asked
            look(*world, *a);
            CHECK(a->nodes().at("b").types.at("h100").free == 2);
            CHECK(a->nodes().at("b").address == "tcp://b:1");
            CHECK(a->nodes().at("a").fence != a->nodes().at("b").fence);
            b->tell(h100s(2, 1));
            CHECK(sees(*world, *a, [&] { return a->nodes().at("b").types.at("h100").free == 1; }));
            b->leave();
            CHECK(world->inbox.run_until([&] { return a->nodes().size() == 1; },
                                         1'500));  // without waiting for the lease
        }
    }
}

// The store was away: a registration or a claim is written when nobody waits for the answer any more.
TEST_CASE("a claim that is written after it was removed is removed again", "[pool][directory]") {
    if (!OwnEtcd::there()) {
        WARN("no etcd here: nothing tested (apt-get install etcd-server)");
        return;
    }
    EtcdWorld world;
    auto a = world.open();
    join(world, *a, node("a", {"A1", "A2"}));
    world.etcd.signal(SIGSTOP);
    CHECK_FALSE(add(world, *a, claim("a", 6, {"A2"})));
    a->remove_claim(6, h100s(2, 2));
    world.etcd.signal(SIGCONT);
    REQUIRE(world.inbox.run_until([&] { return a->standing().good(); }));
    auto late = make_etcd_backend(world.etcd.address(), {});
    REQUIRE(late->add(claim("a", 7, {"A1"}), a->standing().fence, nullptr));
    look(world, *a);
    CHECK(a->claims().count("a/7") == 1);
    CHECK(sees(world, *a, [&] { return a->claims().empty(); }));
    CHECK(add(world, *a, claim("a", 8, {"A1"})));
    world.inbox.run_until([] { return false; }, 1'500);
    look(world, *a);
    CHECK(a->claims().count("a/8") == 1);  // only what has ended goes
}

TEST_CASE("a node is told what it asks for", "[pool][directory]") {
    for (auto& kind : kinds()) {
        DYNAMIC_SECTION(kind) {
            auto world = make_world(kind);
            auto a = world->open(), b = world->open();
            join_both(*world, *a, *b);
            auto bobs = claim("b", 2, {"B2"});
            bobs.account = "bob";
            REQUIRE(add(*world, *b, claim("b", 1, {"B1"})));
            REQUIRE(add(*world, *b, bobs));
            look(*world, *a, {.accounts = {"alice"}});
            CHECK(a->claims().count("b/1") == 1);
            look(*world, *a, {.accounts = {"bob", "nobody"}});
            CHECK(a->claims().at("b/2").account == "bob");
            CHECK(a->claims().count("b/1") == 1);  // for a while
            b->remove_claim(1, h100s(2, 2));
            CHECK(sees(*world, *a, [&] { return !a->claims().count("b/1"); }));
            look(*world, *a, {.free = {{"h100", 1}}});
            CHECK(a->nodes().at("b").types.at("h100").free == 2);
            // Many at once are answered with one question, each once.
            int answered = 0;
            for (int i = 0; i < 500; ++i) a->look({.accounts = {"alice"}}, [&] { ++answered; });
            CHECK(world->inbox.run_until([&] { return answered == 500; }));
            world->inbox.run_until([] { return false; }, 50);
            CHECK(answered == 500);
        }
    }
}

TEST_CASE("what a node has free is told with its claims", "[pool][directory]") {
    for (auto& kind : kinds()) {
        DYNAMIC_SECTION(kind) {
            auto world = make_world(kind);
            auto a = world->open(), b = world->open();
            join_both(*world, *a, *b);
            auto free_at_b = [&] { return a->nodes().at("b").types.at("h100").free; };
            REQUIRE(add(*world, *b, claim("b", 1, {"B1"}), h100s(2, 1)));
            look(*world, *a);
            CHECK(free_at_b() == 1);
            CHECK_FALSE(add(*world, *b, claim("b", 2, {"B1"}), h100s(2, 0)));  // refused; what was to be told is told
            CHECK(sees(*world, *a, [&] { return free_at_b() == 0; }));
            b->remove_claim(1, h100s(2, 2));
            CHECK(sees(*world, *a, [&] { return free_at_b() == 2 && a->claims().empty(); }));
        }
    }
}

// The answer was lost, and meanwhile something else is free.
TEST_CASE("a claim that is added once more tells what is free now", "[pool][directory]") {
    if (!OwnEtcd::there()) return;
    EtcdWorld world;
    auto self = node("a", {"A1", "A2"});
    auto backend = make_etcd_backend(world.etcd.address(), {.ttl_s = 60});
    auto registered = backend->join(self, {});
    REQUIRE(registered);
    std::optional<int64_t> fence;
    for (int free : {1, 0}) {
        self.types = h100s(2, free);
        auto added = backend->add(claim("a", 1, {"A1"}), registered->fence, &self);
        REQUIRE(added);
        CHECK(*added == fence.value_or(*added));
        fence = *added;
        auto found = backend->look({.all_free = true}, "");
        REQUIRE(found);
        REQUIRE(found->size() == 1);
        CHECK(count_from_text(*found->front().text)->free == free);
    }
}

// What a large pool costs its etcd.
TEST_CASE("a claim is written to etcd once, and its end", "[pool][directory]") {
    if (!OwnEtcd::there()) return;
    EtcdWorld world;
    auto a = world.open();
    join(world, *a, node("a", {"A1", "A2"}));
    etcd::Client etcd(world.etcd.address(), {.total_ms = 5'000});
    auto written = [&] { return etcd.list(world.etcd.address().prefix)->revision; };
    const auto before = written();
    for (int64_t id = 1; id <= 5; ++id) {
        REQUIRE(add(world, *a, claim("a", id, {"A1"}), h100s(2, 1)));
        a->remove_claim(id, h100s(2, 2));
    }
    look(world, *a);  // else there are none because nobody has looked
    CHECK(sees(world, *a, [&] { return a->claims().empty(); }));
    CHECK(written() - before == 10);
}

TEST_CASE("a node asks etcd three times to register, however many GPUs it has", "[pool][directory]") {
    if (!OwnEtcd::there()) return;
    EtcdWorld world;
    REQUIRE(make_etcd_backend(world.etcd.address(), {})->join(node("first", {}), {}));  // it names the pool
    const std::string asked = "grpc_server_started_total";
    const auto before = world.etcd.counted(asked);
    REQUIRE(make_etcd_backend(world.etcd.address(), {})->join(node("a", {"A1", "A2", "A3", "A4", "A5"}), {}));
    CHECK(world.etcd.counted(asked) - before == 3);
}

TEST_CASE("a node that somebody removes from etcd registers again", "[pool][directory]") {
    if (!OwnEtcd::there()) return;
    EtcdWorld world;
    auto a = world.open();
    join(world, *a, node("a", {"A1", "A2"}));
    REQUIRE(add(world, *a, claim("a", 1, {"A1"})));
    const auto before = a->standing().fence;
    etcd::Client etcd(world.etcd.address(), {.total_ms = 5'000});
    auto all = etcd.list(world.etcd.address().prefix);
    REQUIRE(all);
    etcd::Txn nothing_left;
    for (auto& pair : all->values) nothing_left.remove(pair.key);
    REQUIRE(etcd.commit(nothing_left));
    CHECK(world.inbox.run_until([&] { return a->standing().good() && a->standing().fence > before; }));
    CHECK(add(world, *a, claim("a", 2, {"A2"})));
    look(world, *a);
    CHECK(a->claims().size() == 2);
    const auto again = a->standing().fence;
    world.inbox.run_until([] { return false; }, 2'000);
    CHECK(a->standing().fence == again);  // once
}

// A thousand nodes would be told of every claim.
TEST_CASE("a claim is news to nobody", "[pool][directory]") {
    if (!OwnEtcd::there()) return;
    EtcdWorld world;
    auto a = world.open(), b = world.open();
    join_both(world, *a, *b);
    auto accounts = open_etcd_store(world.etcd.address());
    REQUIRE(accounts);
    REQUIRE((*accounts)->add_account("alice", "key", false));
    world.inbox.run_until([] { return false; }, 500);
    const std::string told = "etcd_debugging_mvcc_events_total";
    const auto before = world.etcd.counted(told);
    for (int64_t id = 1; id <= 5; ++id) {
        REQUIRE(add(world, *a, claim("a", id, {"A1"}), h100s(1, 0)));
        a->remove_claim(id, h100s(1, 1));
    }
    look(world, *a);
    CHECK(sees(world, *a, [&] { return a->claims().empty(); }));
    CHECK(world.etcd.counted(told) == before);
    REQUIRE((*accounts)->add_account("bob", "another", false));
    CHECK(world.inbox.run_until([&] { return world.etcd.counted(told) > before; }));  // that is how news are counted
}

// Whoever is asked tells of some of many nodes, in turn, and of all when those are full.
TEST_CASE("a free GPU among many nodes is found", "[pool][directory]") {
    if (!OwnEtcd::there()) return;
    EtcdWorld world;
    constexpr int many = 100;
    std::vector<std::unique_ptr<Backend>> others;
    for (int i = 0; i < many; ++i) {
        auto name = "n" + std::to_string(i);
        auto self = node(name, {name + "-gpu"});
        self.types["h100"].free = i == 57;
        others.push_back(make_etcd_backend(world.etcd.address(), {.ttl_s = 60}));
        REQUIRE(others.back()->join(self, {}));
    }
    auto backend = make_etcd_backend(world.etcd.address(), {});
    std::set<std::string> told;
    bool found = false;
    for (const char* from : {"", "n3", "n57", "n9", "zzz"}) {
        auto some = backend->look({.free = {{"h100", 0}}}, from);
        REQUIRE(some);
        CHECK(some->size() == 32);
        for (auto& one : *some) told.insert(one.name);
    }
    CHECK(told.size() > 60);
    auto all = backend->look({.free = {{"h100", 1}}}, "n8");  // none of the 32 behind it
    REQUIRE(all);
    for (auto& one : *all) found |= one.name == "free/h100/n57" && count_from_text(*one.text)->free == 1;
    CHECK(found);
    CHECK(backend->look({.free = {{"a100", 1}}}, "n8")->empty());
}

TEST_CASE("a claim has its GPUs alone, and a larger fence than all before", "[pool][directory]") {
    for (auto& kind : kinds()) {
        DYNAMIC_SECTION(kind) {
            auto world = make_world(kind);
            auto a = world->open(), b = world->open();
            join(*world, *a, node("a", {"A1", "A2"}));
            join(*world, *b, node("b", {"B1"}));
            auto first = add(*world, *a, claim("a", 1, {"A1"}));
            REQUIRE(first);
            CHECK_FALSE(add(*world, *a, claim("a", 2, {"A1", "A2"})));  // one of them is in use
            auto other = add(*world, *a, claim("a", 3, {"A2"}));
            REQUIRE(other);
            CHECK(*other > *first);
            CHECK_FALSE(add(*world, *b, claim("b", 1, {"A1"})));  // not b's
            look(*world, *b);
            CHECK(b->claims().size() == 2);
            CHECK(b->claims().at("a/1").account == "alice");
            a->remove_claim(1, h100s(2, 1));
            CHECK(sees(*world, *b, [&] { return b->claims().size() == 1; }));
            auto next = add(*world, *a, claim("a", 4, {"A1"}));
            REQUIRE(next);
            CHECK(*next > *other);
        }
    }
}

TEST_CASE("a node that dies is gone within its lease, its claims with it, and its GPUs stay its own",
          "[pool][directory]") {
    for (auto& kind : kinds()) {
        DYNAMIC_SECTION(kind) {
            auto world = make_world(kind);
            auto a = world->open(), b = world->open();
            join(*world, *a, node("a", {"A1"}));
            join(*world, *b, node("b", {"B1"}));
            REQUIRE(add(*world, *b, claim("b", 1, {"B1"})));
            CHECK(sees(*world, *a, [&] { return a->nodes().size() == 2 && a->claims().size() == 1; }));
            auto believed = b->standing().until_ms;
            b.reset();  // as if it had been killed: it does not leave
            CHECK(sees(
                *world, *a, [&] { return a->nodes().size() == 1 && a->claims().empty(); }, 5'000));
            CHECK(boot_ms() >= believed);  // nobody took it for dead while it believed in its lease
            CHECK(world->admin()->view()->nodes.at("b").fence == 0);

            auto c = world->open();
            join(*world, *c, node("c", {"B1", "C1"}));
            CHECK(c->standing().refused == std::vector<std::string>{"B1"});
            CHECK_FALSE(add(*world, *c, claim("c", 1, {"B1"})));
            CHECK_FALSE(world->admin()->remove("a"));  // it is there
            c->leave();
            REQUIRE(world->admin()->remove("b"));
            auto d = world->open();
            join(*world, *d, node("d", {"B1"}));
            CHECK(d->standing().refused.empty());
            CHECK(add(*world, *d, claim("d", 1, {"B1"})));
        }
    }
}

TEST_CASE("a restarted node takes its own place at once; another may not have its name", "[pool][directory]") {
    for (auto& kind : kinds()) {
        DYNAMIC_SECTION(kind) {
            auto world = make_world(kind);
            auto a = world->open();
            join(*world, *a, node("a", {"A1"}));
            REQUIRE(add(*world, *a, claim("a", 1, {"A1"})));
            auto stranger = world->open();
            stranger->join(node("a", {"X1"}, "somebody else"));
            CHECK(world->inbox.run_until([&] { return !stranger->standing().trouble.empty(); }));
            CHECK_FALSE(stranger->standing().joined);
            CHECK(stranger->standing().trouble.find("another node called 'a'") != std::string::npos);
            stranger.reset();
            a.reset();
            auto again = world->open();
            again->join(node("a", {"A1"}));
            CHECK(world->inbox.run_until([&] { return again->standing().good(); }, 1'500));
            CHECK(sees(*world, *again, [&] { return again->nodes().size() == 1 && again->claims().empty(); }));
            CHECK(add(*world, *again, claim("a", 2, {"A1"})));
        }
    }
}

TEST_CASE("everybody hears that a node is drained", "[pool][directory]") {
    for (auto& kind : kinds()) {
        DYNAMIC_SECTION(kind) {
            auto world = make_world(kind);
            auto a = world->open();
            join(*world, *a, node("a", {"A1"}));
            CHECK_FALSE(world->admin()->drain("nobody", true));
            REQUIRE(world->admin()->drain("a", true));
            CHECK(world->inbox.run_until([&] { return a->nodes().count("a") && a->nodes().at("a").draining; }));
            CHECK(world->admin()->view()->nodes.at("a").draining);
            REQUIRE(world->admin()->drain("a", false));
            CHECK(world->inbox.run_until([&] { return !a->nodes().at("a").draining; }));
        }
    }
}

TEST_CASE("a node that etcd does not answer begins nothing, before its lease is over, and comes back by itself",
          "[pool][directory]") {
    if (!OwnEtcd::there()) return;
    EtcdWorld world;
    auto a = world.open();
    join(world, *a, node("a", {"A1", "A2"}));
    auto before = add(world, *a, claim("a", 1, {"A1"}));
    REQUIRE(before);
    world.etcd.signal(SIGSTOP);
    auto stopped = boot_ms();
    look(world, *a);  // answered, with what is known
    CHECK(boot_ms() - stopped < 2'500);
    CHECK(world.inbox.run_until([&] { return !a->standing().good(); }, 5'000));
    CHECK(boot_ms() - stopped < 3'000);
    CHECK_FALSE(add(world, *a, claim("a", 2, {"A2"})));
    CHECK(a->standing().trouble.find("does not answer") != std::string::npos);
    std::this_thread::sleep_for(std::chrono::milliseconds(1'500));
    world.etcd.signal(SIGCONT);
    REQUIRE(world.inbox.run_until([&] { return a->standing().good(); }, 10'000));
    CHECK_FALSE(add(world, *a, claim("a", 3, {"A1"})));  // what it had, it has
    a->remove_claim(2, h100s(2, 1));
    auto after = add(world, *a, claim("a", 4, {"A2"}));
    REQUIRE(after);
    CHECK(*after > *before);
    look(world, *a);
    CHECK(a->claims().size() == 2);
}

TEST_CASE("an etcd that is gone is asked again after a pause", "[pool][directory]") {
    if (!OwnEtcd::there()) return;
    EtcdWorld world;
    auto a = world.open();
    join(world, *a, node("a", {"A1"}));
    world.etcd.end();
    // In its place somebody who counts, and hangs up.
    UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int yes = 1;
    setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(world.etcd.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(listener.get(), 128) == 0);
    int asked = 0;
    const auto end = boot_ms() + 2'000;
    world.inbox.run_until([&] {
        while (UniqueFd connection{accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)}) ++asked;
        return boot_ms() > end;
    });
    CHECK(asked > 3);
    CHECK(asked < 60);  // renewals and news: five and three a second
}

TEST_CASE("addresses of stores", "[pool][directory]") {
    auto several = etcd::parse_address("etcd://10.0.0.1,[fd00::1]:4000/lab");
    REQUIRE(several);
    CHECK(several->urls == std::vector<std::string>{"http://10.0.0.1:2379", "http://[fd00::1]:4000"});
    CHECK(several->prefix == "/tnr-lab/");
    CHECK(etcd::parse_address("etcds://store")->urls[0] == "https://store:2379");
    for (const char* wrong : {"", "etcd://", "redis://x", "etcd://a,,b", "etcd://a/b/c"})
        CHECK_FALSE(etcd::parse_address(wrong));
    for (const char* nonsense : {"", "{}", "[]", "{\"result\":3}", "{\"result\":{\"header\":{\"revision\":\"x\"}}}"})
        CHECK_FALSE(etcd::parse_news(nonsense));
    CHECK_FALSE(node_from_text("{\"name\":1}"));
    CHECK_FALSE(claim_from_text("null"));
    CHECK_FALSE(count_from_text("{\"total\":1}"));
}
