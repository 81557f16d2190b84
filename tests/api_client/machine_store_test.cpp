// Folders of local machines.
#include "api_client/providers/local/machine_store.hpp"

#include "tests/support/catch.hpp"

#include "world.hpp"

using namespace tnr;
using namespace tnr::local;
using namespace tnr::test;

TEST_CASE("a machine appears when it is published and disappears without a trace", "[store]") {
    const TemporaryFolder folder;
    const MachineStore store(folder / "local");
    auto lock = store.lock("demo");
    REQUIRE(lock);
    auto unborn = store.begin("demo");
    REQUIRE(unborn);
    REQUIRE(store.write(*unborn, {.name = "demo", .instance_id = "demo-1", .user = "me", .cpus = 2, .ssh_port = 2222}));
    CHECK(!store.exists("demo"));
    CHECK(store.names().empty());

    REQUIRE(store.publish("demo"));
    CHECK(store.names() == std::vector<std::string>{"demo"});
    auto record = store.read("demo");
    REQUIRE(record);
    CHECK(record->user == "me");
    CHECK(record->ssh_port == 2222);

    REQUIRE(store.remove("demo"));
    store.forget_lock("demo");
    CHECK(std::filesystem::is_empty(folder / "local"));
}

TEST_CASE("what an interrupted creation left is no machine and is in nobody's way", "[store]") {
    const TemporaryFolder folder;
    const MachineStore store(folder / "local");
    REQUIRE(store.begin("demo"));
    test::write_text(folder / "local/.new-demo/disk.qcow2", "half a disk");
    CHECK(store.names().empty());
    auto again = store.begin("demo");
    REQUIRE(again);
    CHECK(std::filesystem::is_empty(*again));
    REQUIRE(store.remove("demo"));
    CHECK(std::filesystem::is_empty(folder / "local"));
}
