// The store of keys, through two handles as `serve` and `enroll` have them.
#include "gpu_server/pool/store.hpp"

#include <stdlib.h>

#include <filesystem>
#include "tests/support/catch.hpp"

using namespace tnr::server;

struct TempStore {
    TempStore() {
        std::string name = (std::filesystem::temp_directory_path() / "tnr-store-XXXXXX").string();
        folder = mkdtemp(name.data());
        store = open();
    }
    ~TempStore() { std::filesystem::remove_all(folder); }
    std::unique_ptr<Store> open() const {
        auto opened = open_sqlite_store(folder + "/pool.db");
        REQUIRE(opened);
        return std::move(*opened);
    }
    std::string folder;
    std::unique_ptr<Store> store;
};

TEST_CASE("a key is known from the moment another process enrolled it", "[pool]") {
    TempStore temp;
    CHECK_FALSE(*temp.store->find_key("K1"));
    REQUIRE(temp.open()->add_account("alice", "K1", false));
    auto owner = *temp.store->find_key("K1");
    REQUIRE(owner);
    CHECK(owner->role == Owner::Role::account);
    CHECK(owner->account == "alice");
}

TEST_CASE("an account's new key takes the place of its old one and of all that this one enrolled", "[pool]") {
    TempStore temp;
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
    TempStore temp;
    auto& store = *temp.store;
    REQUIRE(store.add_account("alice", "A1", false));
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
    TempStore temp;
    auto& store = *temp.store;
    REQUIRE(store.add_account("alice", "A1", false));
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
    CHECK(store.keys()->size() == 2);
}

TEST_CASE("an account goes with its machines, and nobody else does", "[pool]") {
    TempStore temp;
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
    TempStore temp;
    CHECK_FALSE(open_sqlite_store(temp.folder));
    CHECK_FALSE(open_sqlite_store(temp.folder + "/not/there"));
}
