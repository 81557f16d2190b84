// The accounts of a pool of several nodes, through handles as two servers have them: how they are kept in etcd and heard of.
// What the rules are: store_test.cpp, over both stores.
#include <atomic>

#include "gpu_server/pool/directory_backend.hpp"
#include "gpu_server/pool/store.hpp"
#include "tests/gpu_server/pool/own_etcd.hpp"

using namespace tnr;
using namespace tnr::server;

TEST_CASE("what is enrolled at one node is known at all, also while etcd is away", "[pool]") {
    if (!OwnEtcd::is_there()) return;
    OwnEtcd etcd;
    auto here = open_etcd_store(etcd.address()), there = open_etcd_store(etcd.address());
    REQUIRE(here);
    REQUIRE(there);
    auto soon = [](const std::function<bool()>& done) {
        for (int i = 0; i < 500; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(10)))
            if (done()) return true;
        return false;
    };
    REQUIRE((*here)->add_account("alice", "A1", false));
    CHECK((*here)->find_key("A1")->has_value());  // at once, where it was done
    CHECK(soon([&] { return (*there)->find_key("A1")->has_value(); }));
    CHECK_FALSE((*there)->add_account("alice", "A2", false));
    REQUIRE((*there)->put_machine("alice", "trainer", "M1"));
    REQUIRE((*there)->set_limits("alice", {.gpus_max = 2, .weight = 3, .device_memory_max = uint64_t{1} << 30}));
    CHECK(soon([&] { return (*here)->limits("alice")->gpus_max == 2; }));
    CHECK((*here)->limits("alice")->device_memory_max == uint64_t{1} << 30);
    CHECK((*here)->find_key("M1")->value().machine == "trainer");
    REQUIRE((*there)->set_price("h100", "USD", 2'490'000, 1000));
    auto price = [&](Store& store) { return store.price_at("h100", 2000)->value_or(GpuPrice{}).micros_per_hour; };
    CHECK(soon([&] { return price(**here) == 2'490'000; }));  // one for all nodes

    etcd.signal(SIGSTOP);
    CHECK((*there)->find_key("A1")->has_value());
    CHECK(price(**there) == 2'490'000);
    auto refused = (*there)->add_account("bob", "B1", false);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().what.find("does not answer") != std::string::npos);
    etcd.signal(SIGCONT);
    CHECK(soon([&] { return bool((*there)->add_account("carol", "C1", false)); }));
    REQUIRE((*here)->remove_account("alice"));
    CHECK(soon([&] { return !(*there)->find_key("M1")->has_value(); }));
    CHECK(open_etcd_store(etcd.address()).operator*()->find_key("C1")->has_value());
}

// Whoever hears that others were quicker, or that etcd was too slow, tries again. What was too slow may have been done, and
// then the account is there.
static bool add_as_users_do(Store& store, const std::string& name, const std::string& key) {
    constexpr int tries_max = 10;
    for (int tries = 0; tries < tries_max; ++tries) {
        auto added = store.add_account(name, key, false);
        if (added) return true;
        if (added.error().what.find("does not answer") == std::string::npos && added.error().hint != "try again")
            return tries > 0 && store.find_key(key)->has_value();
    }
    return false;
}

TEST_CASE("nodes that change the accounts at the same moment lose nothing", "[pool]") {
    if (!OwnEtcd::is_there()) return;
    OwnEtcd etcd;
    constexpr int nodes = 3, each = 40;
    std::atomic<int> failed{0};
    std::vector<std::thread> threads;
    for (int node = 0; node < nodes; ++node)
        threads.emplace_back([&, node] {
            auto store = open_etcd_store(etcd.address());
            for (int i = 0; i < each; ++i) {
                auto name = std::to_string(node) + "-" + std::to_string(i);
                failed += !add_as_users_do(**store, "user" + name, "key" + name);
            }
        });
    for (auto& thread : threads) thread.join();
    CHECK(failed == 0);
    CHECK((*open_etcd_store(etcd.address()))->keys()->size() == nodes * each);
}

// Claims are found by their account in the same etcd, and "pages" is a fine name for one.
TEST_CASE("no account's name has anything to do with how the accounts are kept", "[pool]") {
    if (!OwnEtcd::is_there()) return;
    OwnEtcd server;
    auto here = open_etcd_store(server.address());
    REQUIRE(here);
    for (auto* name : {"alice", "pages", "head"}) REQUIRE((*here)->add_account(name, name, false));
    auto backend = make_etcd_backend(server.address(), {.ttl_s = 60});
    auto joined = backend->join({"gpu-1", "tcp://a:1", "", "", "identity", {}, {"A1", "A2"}}, {});
    REQUIRE(joined);
    REQUIRE(backend->add({"gpu-1", 1, "pages", "trainer", "h100", {"A1"}, 1}, joined->fence, nullptr));
    REQUIRE(backend->add({"gpu-1", 2, "head", "trainer", "h100", {"A2"}, 1}, joined->fence, nullptr));
    // What a server of before this has there for a claim of "pages".
    etcd::Client client(server.address(), {.total_ms = 5'000});
    REQUIRE(client.commit(etcd::Txn().put(server.address().prefix + "accounts/pages/gpu-1/1", "a claim")));
    REQUIRE(client.commit(etcd::Txn().put(server.address().prefix + "accounts/pages/00000000x", "nobody's")));
    auto there = open_etcd_store(server.address());
    REQUIRE(there);
    CHECK((*there)->keys()->size() == 3);
    REQUIRE((*there)->add_account("bob", "bob", false));
    for (int i = 0; i < 500 && (*here)->keys()->size() < 4; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK((*here)->keys()->size() == 4);
    CHECK((*here)->find_key("alice")->has_value());
}

TEST_CASE("accounts that somebody has damaged are not begun anew", "[pool]") {
    if (!OwnEtcd::is_there()) return;
    OwnEtcd server;
    auto here = open_etcd_store(server.address());
    REQUIRE(here);
    REQUIRE((*here)->add_account("alice", "A1", false));
    const auto root = server.address().prefix + "accounts/";
    etcd::Client client(server.address(), {.total_ms = 5'000});
    auto head = client.list(root + "head");
    REQUIRE(head);
    for (auto* wrong : {"99999999", "-1", "0", "x"}) {
        REQUIRE(client.commit(etcd::Txn().put(root + "head", wrong)));
        auto refused = (*here)->add_account("bob", "B1", false);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().what.find("damaged") != std::string::npos);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    CHECK((*here)->find_key("A1")->has_value());  // as it was heard of last
    CHECK_FALSE(open_etcd_store(server.address()));
    REQUIRE(client.commit(etcd::Txn().put(root + "head", head->values.front().value)));
    CHECK((*here)->add_account("bob", "B1", false));
    CHECK((*here)->keys()->size() == 2);
}
