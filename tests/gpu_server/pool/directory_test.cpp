// One suite over all kinds of directories of nodes and claims: a SQLite file, and a real etcd.
#include "gpu_server/pool/directory.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <set>

#include "tests/gpu_server/pool/directory_world.hpp"

using namespace tnr;
using namespace tnr::server;
using namespace tnr::server::test;

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

TEST_CASE("a claim that knows of no other of its account begins if there is none, and else hears of it",
          "[pool][directory]") {
    for (auto& kind : kinds()) {
        DYNAMIC_SECTION(kind) {
            auto world = make_world(kind);
            auto a = world->open(), b = world->open();
            join(*world, *a, node("a", {"A1"}));
            join(*world, *b, node("b", {"B1", "B2"}));
            auto add_if_alone = [&](Directory& directory, const PoolClaim& claim) {
                auto added = add(*world, directory, claim, h100s(2, 1), Directory::Unless::others);
                REQUIRE(added);
                return *added;
            };
            CHECK(add_if_alone(*b, claim("b", 1, {"B1"})) > 0);
            CHECK(add_if_alone(*b, claim("b", 2, {"B2"})) > 0);  // of the first it knows
            CHECK(add_if_alone(*a, claim("a", 1, {"A1"})) == 0);
            CHECK(a->claims().count("b/1") + a->claims().count("b/2") == 2);
            CHECK(a->claims().count("a/1") == 0);
            CHECK(add_if_alone(*a, claim("a", 1, {"A1"})) > 0);  // it knows of both
            CHECK(a->claims().size() == 3);
            b->remove_claim(2, h100s(2, 2));
            auto bobs = claim("b", 3, {"B2"});
            bobs.account = "bob";
            CHECK(add_if_alone(*b, bobs) > 0);                    // others' claims are not in its way
            CHECK(add_if_alone(*b, claim("b", 4, {"B1"})) == 0);  // a's is, before the GPU that is in use
            CHECK_FALSE(add(*world, *b, claim("b", 4, {"B1"})));
        }
    }
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
            CHECK(world->admin()->remove("typo").error().kind == Error::Kind::not_found);
            REQUIRE(world->admin()->remove("b"));
            CHECK(world->admin()->remove("b").error().kind == Error::Kind::not_found);
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
            CHECK(world->inbox.run_until([&] { return again->standing().good(); }, 2'500));  // its lease lasts 3 s
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
    if (!OwnEtcd::is_there()) return;
    EtcdWorld world;
    auto a = world.open();
    join(world, *a, node("a", {"A1", "A2"}));
    auto before = add(world, *a, claim("a", 1, {"A1"}));
    REQUIRE(before);
    world.etcd.signal(SIGSTOP);
    auto stopped = boot_ms();
    look(world, *a);  // answered, with what is known
    CHECK(boot_ms() - stopped < 4'000);
    CHECK(world.inbox.run_until([&] { return !a->standing().good(); }, 5'000));
    CHECK(a->standing().until_ms < stopped + 3'000);  // of the lease, however late we have looked
    CHECK_FALSE(add(world, *a, claim("a", 2, {"A2"})));
    CHECK(world.inbox.run_until([&] {
        return a->standing().trouble.find("does not answer") != std::string::npos;
    }));  // once a renewal has failed
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
    if (!OwnEtcd::is_there()) return;
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
    auto count = [&] {
        while (UniqueFd connection{accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)}) ++asked;
        return false;
    };
    world.inbox.run_until(count, 2'000);
    CHECK(asked > 3);
    CHECK(asked < 60);  // renewals and news: five and three a second
}

TEST_CASE("addresses of stores", "[pool][directory]") {
    auto several = etcd::parse_address("etcd://10.0.0.1,[fd00::1]:4000/lab");
    REQUIRE(several);
    CHECK(several->urls == std::vector<std::string>{"http://10.0.0.1:2379", "http://[fd00::1]:4000"});
    CHECK(several->prefix == "/tnr-lab/");
    CHECK(etcd::parse_address("etcds://store")->urls[0] == "https://store:2379");
    for (const char* wrong :
         {"", "etcd://", "redis://x", "etcd://a,,b", "etcd://a/b/c", "etcd://a:b", "etcd://a:", "etcd://:2379",
          "etcd://a:0", "etcd://a:70000", "etcd://a:23x", "etcd://[fd00::1", "etcd://fd00::1"})
        CHECK_FALSE(etcd::parse_address(wrong));
    for (const char* nonsense : {"", "{}", "[]", "{\"result\":3}", "{\"result\":{\"header\":{\"revision\":\"x\"}}}"})
        CHECK_FALSE(etcd::parse_news(nonsense, etcd::all_under("/x")));
    CHECK_FALSE(node_from_text("{\"name\":1}"));
    CHECK_FALSE(claim_from_text("null"));
    CHECK_FALSE(count_from_text("{\"total\":1}"));
}
