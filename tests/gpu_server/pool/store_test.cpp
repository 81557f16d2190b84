// One suite over both stores of who may use the pool, and what: a SQLite file, and a real etcd; through two handles as `serve`
// and `enroll` have them. What is etcd's alone: etcd_store_test.cpp.
#include "gpu_server/pool/store.hpp"

#include <sqlite3.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <thread>

#include "gpu_server/pool/sqlite.hpp"
#include "tests/gpu_server/pool/directory_world.hpp"

using namespace tnr::server;
using tnr::server::test::kinds;

namespace {

// Each test has its own.
struct TempStore {
    explicit TempStore(const std::string& kind) {
        if (kind == "etcd") etcd = std::make_unique<OwnEtcd>();
        std::string name = (std::filesystem::temp_directory_path() / "tnr-store-XXXXXX").string();
        folder = mkdtemp(name.data());
        store = open();
    }
    ~TempStore() { std::filesystem::remove_all(folder); }
    std::unique_ptr<Store> open() const {
        auto opened = etcd ? open_etcd_store(etcd->address()) : open_sqlite_store(folder + "/pool.db");
        REQUIRE(opened);
        return std::move(*opened);
    }
    // What was done through another handle: at once in a file; etcd's others hear of it.
    bool hears(const std::function<bool()>& done) const {
        for (int i = 0; etcd && i < 500 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        return done();
    }
    std::string folder;
    std::unique_ptr<OwnEtcd> etcd;
    std::unique_ptr<Store> store;
};

}  // namespace

TEST_CASE("a key is known from the moment another process enrolled it", "[pool]") {
    const std::string kind = GENERATE(from_range(kinds()));
    CAPTURE(kind);
    TempStore temp(kind);
    CHECK_FALSE(*temp.store->find_key("K1"));
    REQUIRE(temp.open()->add_account("alice", "K1", false));
    REQUIRE(temp.hears([&] { return temp.store->find_key("K1")->has_value(); }));
    auto owner = *temp.store->find_key("K1");
    REQUIRE(owner);
    CHECK(owner->role == Owner::Role::account);
    CHECK(owner->account == "alice");
}

TEST_CASE("a change that another process keeps from beginning is not made later, in parts", "[pool]") {
    TempStore temp("SQLite");
    REQUIRE(temp.store->add_account("alice", "K1", false));
    sqlite3* other = nullptr;
    REQUIRE(sqlite3_open((temp.folder + "/pool.db").c_str(), &other) == SQLITE_OK);
    const Database owned(other);
    REQUIRE(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK);
    std::thread lets_go([other] {
        std::this_thread::sleep_for(std::chrono::milliseconds(busy_timeout_ms + busy_timeout_ms / 2));
        sqlite3_exec(other, "COMMIT", nullptr, nullptr, nullptr);
    });
    const auto removed = temp.store->remove_account("alice");
    lets_go.join();
    CHECK(bool(removed) == !temp.store->find_key("K1")->has_value());
    if (!removed) CHECK(removed.error().what == "a change in the server's database failed: database is locked");
}

TEST_CASE("an account's new key takes the place of its old one and of all that this one enrolled", "[pool]") {
    const std::string kind = GENERATE(from_range(kinds()));
    CAPTURE(kind);
    TempStore temp(kind);
    auto& store = *temp.store;
    REQUIRE(store.add_account("alice", "A1", false));
    REQUIRE(store.add_account("bob", "B1", false));
    REQUIRE(store.put_machine("alice", "trainer", "M1"));
    REQUIRE(store.put_machine("bob", "trainer", "M2"));
    CHECK_FALSE(store.add_account("alice", "B1", true));  // somebody else's: nothing changes
    CHECK(*store.find_key("A1"));
    CHECK(*store.find_key("M1"));
    REQUIRE(store.add_account("alice", "A2", true));
    CHECK_FALSE(*store.find_key("A1"));
    CHECK_FALSE(*store.find_key("M1"));
    CHECK(*store.find_key("A2"));
    CHECK(*store.find_key("M2"));
}

TEST_CASE("an account has only so many machines", "[pool]") {
    const std::string kind = GENERATE(from_range(kinds()));
    CAPTURE(kind);
    TempStore temp(kind);
    auto& store = *temp.store;
    REQUIRE(store.add_account("alice", "A1", false));
    REQUIRE(store.add_account("bob", "B1", false));
    for (int i = 0; i < machines_per_account_max; ++i)
        REQUIRE(store.put_machine("alice", "m" + std::to_string(i), "M" + std::to_string(i)));
    auto one_more = store.put_machine("alice", "one-more", "X1");
    REQUIRE_FALSE(one_more);
    CHECK(one_more.error().what.find("may not have more") != std::string::npos);
    CHECK(store.put_machine("alice", "m5", "X2"));  // a new key for one that is there
    CHECK(store.put_machine("bob", "one", "X3"));
    REQUIRE(store.remove_machine("alice", "m0"));
    CHECK(store.put_machine("alice", "one-more", "X1"));
}

TEST_CASE("names and keys have one owner each", "[pool]") {
    const std::string kind = GENERATE(from_range(kinds()));
    CAPTURE(kind);
    TempStore temp(kind);
    auto& store = *temp.store;
    REQUIRE(store.add_account("alice", "A1", false));
    REQUIRE(store.add_account("bob", "B1", false));
    CHECK_FALSE(store.add_account("alice", "A2", false));
    REQUIRE(store.add_account("alice", "A2", true));
    CHECK_FALSE(*store.find_key("A1"));

    REQUIRE(store.put_machine("alice", "trainer", "M1"));
    REQUIRE(store.put_machine("bob", "trainer", "M2"));
    REQUIRE(store.put_machine("alice", "trainer", "M3"));  // a new key for the same machine
    CHECK_FALSE(*store.find_key("M1"));
    CHECK((*store.find_key("M2"))->account == "bob");
    auto stolen = store.put_machine("bob", "notebook", "A2");
    REQUIRE_FALSE(stolen);
    CHECK(stolen.error().kind == tnr::Error::Kind::usage);
    CHECK((*store.find_key("A2"))->role == Owner::Role::account);

    REQUIRE(store.remove_machine("bob", "trainer"));
    REQUIRE(store.remove_machine("bob", "trainer"));
    CHECK_FALSE(*store.find_key("M2"));
    CHECK(store.keys()->size() == 3);
}

TEST_CASE("an account goes with its machines, and nobody else does", "[pool]") {
    const std::string kind = GENERATE(from_range(kinds()));
    CAPTURE(kind);
    TempStore temp(kind);
    auto& store = *temp.store;
    REQUIRE(store.add_account("alice", "A", false));
    REQUIRE(store.put_machine("alice", "trainer", "M1"));
    REQUIRE(store.add_account("bob", "B", false));
    REQUIRE(store.remove_account("alice"));
    CHECK_FALSE(*store.find_key("A"));
    CHECK_FALSE(*store.find_key("M1"));
    CHECK(*store.find_key("B"));
    auto again = store.remove_account("alice");
    REQUIRE_FALSE(again);
    CHECK(again.error().kind == tnr::Error::Kind::not_found);
    CHECK(store.add_account("alice", "A2", false));
}

TEST_CASE("a file that is no database is an error", "[pool]") {
    TempStore temp("sqlite");
    CHECK_FALSE(open_sqlite_store(temp.folder));
    CHECK_FALSE(open_sqlite_store(temp.folder + "/not/there"));
}

TEST_CASE("a token is worth an account's key, once and for a while", "[pool]") {
    const std::string kind = GENERATE(from_range(kinds()));
    CAPTURE(kind);
    TempStore temp(kind);
    auto& store = *temp.store;
    constexpr int64_t issued = 1'000'000, expires = 2'000'000;
    REQUIRE(store.add_token({"T1", "alice", issued, expires}, false));
    CHECK((*store.find_key("T1"))->role == Owner::Role::token);
    CHECK(store.keys()->empty());

    SECTION("whoever comes first has it; the same one may ask again") {
        REQUIRE(store.redeem_token("T1", "A1", issued + 1));
        CHECK((*store.find_key("A1"))->account == "alice");
        CHECK(store.redeem_token("T1", "A1", issued + 2));
        auto second = temp.open()->redeem_token("T1", "A2", issued + 3);
        REQUIRE_FALSE(second);
        CHECK(second.error().kind == tnr::Error::Kind::auth);
        CHECK(second.error().what.find("used already") != std::string::npos);
        CHECK_FALSE(*store.find_key("A2"));
        CHECK_FALSE(store.add_token({"T2", "alice", issued, expires}, false));
        SECTION("but not once the key is gone") {
            REQUIRE(store.add_account("alice", "A3", true));
            CHECK_FALSE(store.redeem_token("T1", "A1", issued + 4));
            CHECK_FALSE(*store.find_key("A1"));
        }
    }
    SECTION("too late is too late, and so is before it was made: the clock has been set back") {
        for (int64_t now : {expires, expires + 1, issued - 1}) {
            auto late = store.redeem_token("T1", "A1", now);
            REQUIRE_FALSE(late);
            CHECK(late.error().what.find("too old") != std::string::npos);
        }
        CHECK_FALSE(*store.find_key("A1"));
    }
    SECTION("a key of somebody else's is not taken, and the token not lost") {
        REQUIRE(store.add_account("bob", "B1", false));
        CHECK_FALSE(store.redeem_token("T1", "B1", issued + 1));
        CHECK((*store.find_key("B1"))->account == "bob");
        CHECK(store.redeem_token("T1", "A1", issued + 1));
    }
    SECTION("the next one takes its place") {
        REQUIRE(store.add_token({"T2", "alice", issued, expires}, false));
        CHECK_FALSE(store.redeem_token("T1", "A1", issued + 1));
        CHECK(store.redeem_token("T2", "A1", issued + 1));
    }
    SECTION("it goes with its account, and when it has been of no use for a day") {
        REQUIRE(store.add_token({"T2", "bob", expires + tokens_remembered_ms, expires * 2}, false));
        CHECK(*store.find_key("T1"));
        REQUIRE(store.add_token({"T3", "carol", expires + tokens_remembered_ms + 1, expires * 2}, false));
        CHECK_FALSE(*store.find_key("T1"));
        REQUIRE(store.remove_account("bob"));
        CHECK_FALSE(*store.find_key("T2"));
        CHECK(store.tokens()->size() == 1);
    }
}

TEST_CASE("two who redeem one token at the same time do not both get in", "[pool]") {
    const std::string kind = GENERATE(from_range(kinds()));
    CAPTURE(kind);
    TempStore temp(kind);
    for (int round = 0; round < 50; ++round) {
        auto token = "T" + std::to_string(round), name = "user" + std::to_string(round);
        REQUIRE(temp.store->add_token({token, name, 1, 1000}, false));
        std::atomic<int> got_in{0};
        std::vector<std::thread> both;
        for (int i = 0; i < 2; ++i)
            both.emplace_back([&, i, store = temp.open()] {
                got_in += bool(store->redeem_token(token, name + "-" + std::to_string(i), 10));
            });
        for (auto& each : both) each.join();
        CHECK(got_in == 1);
    }
    CHECK(temp.store->keys()->size() == 50);
}

TEST_CASE("what a user may do is kept with the account, and goes with it", "[pool]") {
    const std::string kind = GENERATE(from_range(kinds()));
    CAPTURE(kind);
    TempStore temp(kind);
    auto& store = *temp.store;
    REQUIRE(store.add_account("alice", "A1", false));
    REQUIRE(store.put_machine("alice", "trainer", "M1"));
    CHECK_FALSE((*store.find_key("A1"))->is_operator);
    REQUIRE(store.set_limits("alice", {2, 1.5, -3, true, uint64_t{5} << 30}));
    auto limits = *store.limits("alice");
    CHECK(limits.gpus_max == 2);
    CHECK(limits.weight == 1.5);
    CHECK(limits.priority == -3);
    CHECK(limits.device_memory_max == uint64_t{5} << 30);
    CHECK((*store.find_key("A1"))->is_operator);
    CHECK_FALSE((*store.find_key("M1"))->is_operator);  // a machine's key is never an operator's
    REQUIRE(store.add_account("alice", "A2", true));
    CHECK((*store.find_key("A2"))->is_operator);
    REQUIRE(store.remove_account("alice"));
    REQUIRE(store.add_account("alice", "A3", false));  // another alice
    CHECK_FALSE((*store.find_key("A3"))->is_operator);
    CHECK(store.limits("alice")->priority == 0);
    CHECK_FALSE(store.limits("alice")->device_memory_max);
}

TEST_CASE("a store of an earlier version is brought up to date, and loses nothing", "[pool]") {
    TempStore temp("sqlite");
    auto path = temp.folder + "/old.db";
    {
        sqlite3* database = nullptr;
        REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
        REQUIRE(sqlite3_exec(database, R"(
            CREATE TABLE keys (public_key TEXT PRIMARY KEY, role TEXT NOT NULL CHECK (role IN ('account', 'machine')),
                account TEXT NOT NULL, machine TEXT NOT NULL, enrolled_ms INTEGER NOT NULL,
                UNIQUE (role, account, machine));
            CREATE TABLE limits (account TEXT PRIMARY KEY, gpus_max INTEGER, weight_percent INTEGER NOT NULL);
            INSERT INTO keys VALUES ('A1', 'account', 'alice', '', 5);
            INSERT INTO limits VALUES ('alice', 3, 250);)",
                             nullptr, nullptr, nullptr) == SQLITE_OK);
        sqlite3_close(database);
    }
    for (int opened = 0; opened < 2; ++opened) {
        auto store = open_sqlite_store(path);
        REQUIRE(store);
        auto limits = *(*store)->limits("alice");
        CHECK(limits.gpus_max == 3);
        CHECK(limits.weight == 2.5);
        CHECK(limits.priority == 0);
        CHECK_FALSE(limits.device_memory_max);
        CHECK_FALSE((*(*store)->find_key("A1"))->is_operator);
        CHECK((*store)->add_token({"T1", "bob", 1, 2}, false));
    }
}

TEST_CASE("a price holds from when it was set to when the next one was", "[pool]") {
    const std::string kind = GENERATE(from_range(kinds()));
    CAPTURE(kind);
    TempStore temp(kind);
    auto& store = *temp.store;
    auto price = [&](int64_t at) {
        auto found = *store.price_at("h100", at);
        return found ? std::to_string(*found->micros_per_hour) + found->currency : "none";
    };
    CHECK(price(5000) == "none");
    REQUIRE(store.set_price("h100", "USD", 2'490'000, 1000));
    REQUIRE(store.set_price("a100", "EUR", 1, 1500));
    REQUIRE(store.set_price("h100", "USD", 3'000'000, 2000));
    REQUIRE(store.set_price("h100", "EUR", 1'000'000, 500));  // the clock was set back: still the latest
    REQUIRE(store.set_price("h100", "EUR", std::nullopt, 9000));
    CHECK(price(999) == "none");
    CHECK(price(1999) == "2490000USD");
    CHECK(price(2000) == "3000000USD");
    CHECK(price(2001) == "1000000EUR");
    CHECK(price(9000) == "none");
    auto history = *store.prices(0, 100);
    CHECK(history.size() == 5);
    CHECK_FALSE(history.back().micros_per_hour);
    CHECK(store.prices(history[1].id, 2)->size() == 2);
}

TEST_CASE("a price of a clock that was ahead keeps no later one from holding", "[pool]") {
    const std::string kind = GENERATE(from_range(kinds()));
    CAPTURE(kind);
    TempStore temp(kind);
    auto& store = *temp.store;
    constexpr int64_t now = 1'700'000'000'000, day = 86'400'000;
    auto price = [&](int64_t at) {
        auto found = *store.price_at("h100", at);
        return found ? *found->micros_per_hour : -1;
    };
    REQUIRE(store.set_price("h100", "USD", 1, now - day));
    REQUIRE(store.set_price("h100", "USD", 2, now + day));  // ahead
    REQUIRE(store.set_price("a100", "USD", 7, now + day));
    auto refused = store.set_price("h100", "USD", 3, now);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == tnr::Error::Kind::usage);
    CHECK(refused.error().what.find("from 2023-11-15 22:13 UTC on") != std::string::npos);
    CHECK(refused.error().hint.find("--clock-is-right") != std::string::npos);
    CHECK(store.prices(0, 100)->size() == 3);
    REQUIRE(store.set_price("h100", "USD", 3, now, true));
    CHECK(price(now - 1) == 1);
    CHECK(price(now + 1) == 3);
    CHECK(price(now + 2 * day) == 3);
    CHECK((*store.price_at("a100", now + day))->micros_per_hour == 7);
    CHECK(store.prices(0, 100)->size() == 4);
    REQUIRE(store.set_price("h100", "USD", 4, now - 30'000));  // as far as clocks may differ
    CHECK(price(now + 2) == 4);
}
