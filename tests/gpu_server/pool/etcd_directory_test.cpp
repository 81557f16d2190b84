// Nodes and claims in etcd alone: what they cost it, and what becomes of them where somebody else writes there. What holds for
// all kinds of directories is in directory_test.cpp.
#include <signal.h>

#include <set>

#include "gpu_server/pool/store.hpp"
#include "tests/gpu_server/pool/directory_world.hpp"

using namespace tnr;
using namespace tnr::server;
using namespace tnr::server::test;

// The store was away: a registration or a claim is written when nobody waits for the answer any more.
TEST_CASE("a claim that is written after it was removed is removed again", "[pool][directory]") {
    if (!OwnEtcd::is_there()) return;
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

// An answer was lost, so what was told before may be written after what was told again.
TEST_CASE("what a node has free is as it says in the end, however late something earlier is written",
          "[pool][directory]") {
    if (!OwnEtcd::is_there()) return;
    EtcdWorld world;
    auto a = world.open(), b = world.open();
    join_both(world, *a, *b);
    const auto a_has = [&](int free) {
        look(world, *b);
        auto found = b->nodes().find("a");
        if (found == b->nodes().end()) return false;
        auto count = found->second.types.find("h100");
        return count != found->second.types.end() && count->second.free == free;
    };
    a->tell(h100s(1, 0));
    REQUIRE(sees(world, *b, [&] { return a_has(0); }));
    world.etcd.signal(SIGSTOP);
    a->tell(h100s(1, 1));
    std::this_thread::sleep_for(
        std::chrono::milliseconds(1'500));  // until it has given up waiting for the first answer
    world.etcd.signal(SIGCONT);
    REQUIRE(world.inbox.run_until([&] { return a->standing().good() && b->standing().good(); }));
    REQUIRE(sees(world, *b, [&] { return a_has(1); }));
    auto late = make_etcd_backend(world.etcd.address(), {});
    auto earlier = node("a", {"A1"});
    earlier.types = h100s(1, 0);
    REQUIRE(late->tell_free(earlier, a->standing().fence));
    REQUIRE(a_has(0));
    CHECK(sees(
        world, *b, [&] { return a_has(1); }, 30'000));
}

// However it came there: an answer that made no sense, or a registration that was written long after its claim had ended.
TEST_CASE("a node that is refused a GPU which it knows to be free looks for what it has left on it",
          "[pool][directory]") {
    if (!OwnEtcd::is_there()) return;
    EtcdWorld world;
    auto a = world.open();
    join(world, *a, node("a", {"A1"}));
    auto other = make_etcd_backend(world.etcd.address(), {});
    REQUIRE(other->add(claim("a", 7, {"A1"}), a->standing().fence, nullptr));
    CHECK_FALSE(add(world, *a, claim("a", 8, {"A1"})));
    a->remove_claim(8, h100s(1, 1));
    look(world, *a);
    CHECK(sees(world, *a, [&] { return a->claims().empty(); }));
    CHECK(add(world, *a, claim("a", 9, {"A1"})));
}

// In two steps, what nobody waits for any more could be written between them: its GPUs would be held by a claim that is not
// there, and whose end nobody finds.
TEST_CASE("a claim goes from etcd at one moment, with what it holds", "[pool][directory]") {
    if (!OwnEtcd::is_there()) return;
    EtcdWorld world;
    const auto self = node("a", {"A1", "A2"});
    auto backend = make_etcd_backend(world.etcd.address(), {.ttl_s = 60});
    auto registered = backend->join(self, {});
    REQUIRE(registered);
    etcd::Client etcd(world.etcd.address(), {.total_ms = 5'000});
    const auto are_held = [&] { return etcd.list(world.etcd.address().prefix + "held/")->values.size(); };
    const auto has_claims = [&] { return backend->claims_of("a")->size(); };
    const auto ends = [&](const PoolClaim& ended, int64_t fence) {
        const std::string asked = "grpc_server_started_total{grpc_method=\"Txn\"";
        const auto before = world.etcd.counted(asked);
        auto told = backend->remove(ended, fence, &self);
        REQUIRE(told);
        CHECK(world.etcd.counted(asked) - before == 1);
        return *told;
    };
    const auto both = claim("a", 1, {"A1", "A2"});
    CHECK(ends(both, registered->fence));  // it was never written: what is free is told all the same
    REQUIRE(backend->add(both, registered->fence, nullptr));
    CHECK(are_held() == 2);
    CHECK(ends(both, registered->fence));
    CHECK(are_held() + has_claims() == 0);
    REQUIRE(backend->add(both, registered->fence, nullptr));
    CHECK_FALSE(ends(both, registered->fence + 1));  // nothing is told of another registration
    CHECK(are_held() + has_claims() == 0);
    // A GPU that another claim holds stays with it.
    REQUIRE(backend->add(claim("a", 2, {"A1"}), registered->fence, nullptr));
    CHECK(ends(both, registered->fence));
    CHECK(are_held() == 1);
    CHECK(has_claims() == 1);
}

// The answer was lost, and meanwhile something else is free.
TEST_CASE("a claim that is added once more tells what is free now", "[pool][directory]") {
    if (!OwnEtcd::is_there()) return;
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
        CHECK(added->fence == fence.value_or(added->fence));
        fence = added->fence;
        auto found = backend->look({.all_free = true}, "");
        REQUIRE(found);
        REQUIRE(found->entries.size() == 1);
        CHECK(count_from_text(*found->entries.front().text)->free == free);
    }
}

// What a large pool costs its etcd.
TEST_CASE("a claim is written to etcd once, and its end", "[pool][directory]") {
    if (!OwnEtcd::is_there()) return;
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
    if (!OwnEtcd::is_there()) return;
    EtcdWorld world;
    REQUIRE(make_etcd_backend(world.etcd.address(), {})->join(node("first", {}), {}));  // it names the pool
    const std::string asked = "grpc_server_started_total";
    const auto before = world.etcd.counted(asked);
    REQUIRE(make_etcd_backend(world.etcd.address(), {})->join(node("a", {"A1", "A2", "A3", "A4", "A5"}), {}));
    CHECK(world.etcd.counted(asked) - before == 3);
}

// The floor that pool/README.md tells of. Others' claims are of other accounts.
TEST_CASE("a claim costs etcd two requests and as many bytes in a large pool as in a small one", "[pool][directory]") {
    if (!OwnEtcd::is_there()) return;
    EtcdWorld world;
    auto self = node("a", {"A1"});
    auto a = make_etcd_backend(world.etcd.address(), {.ttl_s = 60});
    const auto registered = a->join(self, {});
    REQUIRE(registered);
    int64_t id = 0;
    auto cost_of_a_claim = [&](const char* counter) {
        const auto before = world.etcd.counted(counter);
        constexpr int claims = 4;
        for (int i = 0; i < claims; ++i) {
            auto mine = claim("a", 1000 + ++id, {"A1"});
            auto added = a->add(mine, registered->fence, &self, 0);
            REQUIRE(added);
            CHECK(added->fence > 0);
            REQUIRE(a->remove(mine, registered->fence, &self));
        }
        return (world.etcd.counted(counter) - before) / claims;
    };
    const char* const requests = "grpc_server_started_total";
    const char* const bytes = "etcd_network_client_grpc_sent_bytes_total";
    CHECK(cost_of_a_claim(requests) == 2);
    const auto bytes_alone = cost_of_a_claim(bytes);
    std::vector<std::unique_ptr<Backend>> others;
    for (int i = 0; i < 150; ++i) {
        const auto name = "other" + std::to_string(i);
        others.push_back(make_etcd_backend(world.etcd.address(), {.ttl_s = 60}));
        auto there = until_answered([&] { return others.back()->join(node(name, {name + "-gpu"}), {}); });
        REQUIRE(there);
        auto theirs = claim(name, 1, {name + "-gpu"});
        theirs.account = "user of " + name;
        REQUIRE(until_answered([&] { return others.back()->add(theirs, there->fence, nullptr); }));
    }
    REQUIRE(a->renew());
    CHECK(cost_of_a_claim(requests) == 2);
    CHECK(cost_of_a_claim(bytes) < 1.1 * bytes_alone);
}

TEST_CASE("a node that somebody removes from etcd registers again", "[pool][directory]") {
    if (!OwnEtcd::is_there()) return;
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

// A hand in etcd, or a node of an earlier build that left late: claims on it would be refused for ever.
TEST_CASE("a node that is refused a claim looks whether its GPUs are its own, and takes one that is nobody's",
          "[pool][directory]") {
    if (!OwnEtcd::is_there()) return;
    EtcdWorld world;
    auto a = world.open();
    join(world, *a, node("a", {"A1", "A2"}));
    REQUIRE(add(world, *a, claim("a", 1, {"A2"})));
    const auto before = a->standing().fence;
    etcd::Client etcd(world.etcd.address(), {.total_ms = 5'000});
    auto all = etcd.list(world.etcd.address().prefix);
    REQUIRE(all);
    etcd::Txn taken;
    std::string key;
    for (auto& pair : all->values)
        if (pair.key.ends_with("/A1")) taken.remove(key = pair.key);
    REQUIRE(etcd.commit(taken));
    CHECK_FALSE(add(world, *a, claim("a", 2, {"A1"})));
    a->remove_claim(2, h100s(2, 1));
    CHECK(world.inbox.run_until([&] { return a->standing().good() && a->standing().fence > before; }));
    CHECK(add(world, *a, claim("a", 3, {"A1"})));
    look(world, *a);
    CHECK(a->claims().size() == 2);
    // One that is another's is refused, and the other goes on.
    REQUIRE(etcd.commit(etcd::Txn().put(key, "b")));
    a->remove_claim(3, h100s(2, 1));
    look(world, *a);
    REQUIRE(sees(world, *a, [&] { return a->claims().size() == 1; }));
    CHECK_FALSE(add(world, *a, claim("a", 4, {"A1"})));
    CHECK(world.inbox.run_until([&] { return a->standing().refused == std::vector<std::string>{"A1"}; }));
    look(world, *a);
    CHECK(a->claims().count("a/1") == 1);
}

// Such a node may begin it once it has registered again; one whose GPU another claim holds may not.
TEST_CASE("a claim of a node that is not registered any more is told from one that is refused", "[pool][directory]") {
    if (!OwnEtcd::is_there()) return;
    EtcdWorld world;
    auto backend = make_etcd_backend(world.etcd.address(), {.ttl_s = 60});
    auto registered = backend->join(node("a", {"A1"}), {});
    REQUIRE(registered);
    REQUIRE(backend->add(claim("a", 1, {"A1"}), registered->fence, nullptr));
    auto refused = backend->add(claim("a", 2, {"A1"}), registered->fence, nullptr);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == Error::Kind::remote);
    etcd::Client etcd(world.etcd.address(), {.total_ms = 5'000});
    REQUIRE(etcd.commit(etcd::Txn().remove(world.etcd.address().prefix + "view/nodes/a")));
    auto added = backend->add(claim("a", 2, {"A1"}), registered->fence, nullptr);
    REQUIRE(added);
    CHECK(added->gone);
    CHECK(added->fence == 0);
}

// A thousand nodes would be told of every claim.
TEST_CASE("a claim is news to nobody", "[pool][directory]") {
    if (!OwnEtcd::is_there()) return;
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
    if (!OwnEtcd::is_there()) return;
    EtcdWorld world;
    constexpr int many = 100;
    std::vector<std::unique_ptr<Backend>> others;
    for (int i = 0; i < many; ++i) {
        auto name = "n" + std::to_string(i);
        auto self = node(name, {name + "-gpu"});
        self.types["h100"].free = i == 57;
        others.push_back(make_etcd_backend(world.etcd.address(), {.ttl_s = 60}));
        REQUIRE(until_answered([&] { return others.back()->join(self, {}); }));
    }
    auto backend = make_etcd_backend(world.etcd.address(), {});
    std::set<std::string> told;
    bool found = false;
    for (const char* from : {"", "n3", "n57", "n9", "zzz"}) {
        auto some = backend->look({.free = {{"h100", 0}}}, from);
        REQUIRE(some);
        CHECK(some->entries.size() == 32);
        for (auto& one : some->entries) told.insert(one.name);
    }
    CHECK(told.size() > 60);
    auto all = backend->look({.free = {{"h100", 1}}}, "n8");  // none of the 32 behind it
    REQUIRE(all);
    for (auto& one : all->entries) found |= one.name == "free/h100/n57" && count_from_text(*one.text)->free == 1;
    CHECK(found);
    CHECK(backend->look({.free = {{"a100", 1}}}, "n8")->entries.empty());
}
