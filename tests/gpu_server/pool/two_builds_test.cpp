// A pool whose nodes are upgraded one after the other: for a while there are two builds, which share an etcd. What today's
// build writes stands here word for word. Who changes it breaks pools that are being upgraded, and has to see to them.
#include <nlohmann/json.hpp>

#include "gpu_server/pool/sqlite.hpp"
#include "gpu_server/pool/sqlite_image.hpp"
#include "tests/gpu_server/pool/directory_world.hpp"

using namespace tnr;
using namespace tnr::server;
using namespace tnr::server::test;
using nlohmann::json;

namespace {

const std::string node_of_today =
    R"({"address":"tcp://b:1","gpus":["B1","B2"],"identity":"identity of b","kinds":["h100"],
    "name":"b","server_key":"K","types":{"h100":{"free":2,"memory_bytes":1,"total":2}},"version":"1"})";
// As older ones wrote it, without what came later.
const std::string node_of_before = R"({"address":"tcp://b:1","identity":"identity of b","name":"b","server_key":"K",
    "types":{"h100":{"free":2,"memory_bytes":1,"total":2}}})";
const std::string free_of_today = R"({"free":1,"memory_bytes":1,"total":2})";
const std::string claim_of_today = R"({"account":"alice","began_ms":1,"devices":["B1"],"gpu":"h100","id":1,
    "machine":"trainer","node":"b"})";

// With fields that nobody knows yet, in all of its objects.
json later(json value) {
    if (value.is_object()) {
        for (auto& [name, inner] : value.items()) inner = later(inner);
        value["later"] = {{"units", {"kWh", nullptr, 7}}, {"format", 99}};
    }
    return value;
}
std::string as_later(const std::string& text) {
    auto value = later(json::parse(text));
    if (value.contains("types")) value["types"].erase("later");  // names of types, not fields
    if (value.contains("version")) value["version"] = "999.0.0-later";
    return value.dump();
}

// All of `expected`, each of the type that it has there.
void check_has(const json& written, const json& expected) {
    for (auto& [name, value] : expected.items()) {
        INFO(name << " in " << written.dump());
        REQUIRE(written.contains(name));
        CHECK(written[name].type() == value.type());
    }
}

// The node b as another build's server has it in etcd.
void write_b(const OwnEtcd& server, const std::string& node, const std::string& free, const std::string& claim) {
    etcd::Client client(server.address(), {.total_ms = 5'000});
    auto lease = client.grant_lease(60);
    REQUIRE(lease);
    const auto under = server.address().prefix;
    etcd::Txn txn;
    txn.put(under + "view/nodes/b", node, *lease).put(under + "members/b", "identity of b");
    txn.put(under + "gpus/B1", "b").put(under + "gpus/B2", "b").put(under + "held/B1", "b/1", *lease);
    txn.put(under + "free/h100/b", free, *lease);
    for (auto* where : {"claims/b/1", "owners/alice/b/1"}) txn.put(under + where, claim, *lease);
    REQUIRE(client.commit(txn));
}

}  // namespace

TEST_CASE("nodes of another build are seen with what they have, and who has it", "[pool][builds]") {
    if (!OwnEtcd::is_there()) return;
    struct Build {
        const char* name;
        std::string node, free, claim;
    };
    const Build builds[] = {
        {"today's", node_of_today, free_of_today, claim_of_today},
        {"an older one", node_of_before, free_of_today, claim_of_today},
        {"a newer one", as_later(node_of_today), as_later(free_of_today), as_later(claim_of_today)}};
    for (auto& build : builds) {
        DYNAMIC_SECTION(build.name) {
            EtcdWorld world;
            auto a = world.open();
            join(world, *a, node("a", {"A1"}));
            write_b(world.etcd, build.node, build.free, build.claim);
            REQUIRE(world.inbox.run_until([&] { return a->nodes().count("b") == 1; }));
            look(world, *a, {.accounts = {"alice"}, .free = {{"h100", 1}}});
            CHECK(a->nodes().at("b").types.at("h100") == TypeCount{2, 1, 1});
            CHECK(a->nodes().at("b").address == "tcp://b:1");
            REQUIRE(a->claims().count("b/1") == 1);  // it counts against alice's limit, and her programs join it
            CHECK(a->claims().at("b/1").machine == "trainer");
            CHECK(a->claims().at("b/1").devices == std::vector<std::string>{"B1"});
            auto seen = world.admin()->view();
            REQUIRE(seen);
            CHECK(seen->nodes.at("b").fence > 0);
            CHECK(seen->claims.size() == 1);

            // The GPUs stay b's, and a server of this build takes b's place as if it had written all of that itself.
            auto other = world.open();
            join(world, *other, node("other", {"B1"}));
            CHECK(other->standing().refused == std::vector<std::string>{"B1"});
            auto b = world.open();
            join(world, *b, node("b", {"B1", "B2"}));
            CHECK(sees(world, *a, [&] { return a->claims().empty(); }));
            CHECK(add(world, *b, claim("b", 2, {"B1"})));
        }
    }
}

TEST_CASE("what this build writes has all that nodes of before read", "[pool][builds]") {
    auto self = node("b", {"B1", "B2"});
    self.kinds = {"h100"};
    check_has(json::parse(to_text(self)), json::parse(node_of_today));
    check_has(json::parse(to_text(self))["types"]["h100"], json::parse(free_of_today));
    check_has(json::parse(to_text(TypeCount{2, 1, 1})), json::parse(free_of_today));
    check_has(json::parse(to_text(claim("b", 1, {"B1"}))), json::parse(claim_of_today));
}

TEST_CASE("a node whose entry makes no sense is left out, and takes nobody along", "[pool][builds]") {
    if (!OwnEtcd::is_there()) return;
    EtcdWorld world;
    auto a = world.open();
    join(world, *a, node("a", {"A1"}));
    write_b(world.etcd, R"({"format":99,"name":["b"]})", "none", "[]");
    auto c = world.open();
    join(world, *c, node("c", {"C1"}));
    REQUIRE(world.inbox.run_until([&] { return a->nodes().size() == 2 && c->nodes().size() == 2; }));
    look(world, *a);
    CHECK(a->nodes().count("b") == 0);
    CHECK(a->claims().empty());
    CHECK(add(world, *a, claim("a", 1, {"A1"})));
    CHECK(world.admin()->view()->nodes.at("b").fence == 0);
}

namespace {

std::string value_in(sqlite3* database, const char* sql) {
    Statement row(database, sql, {});
    REQUIRE(row.next());
    return row.text(0);
}

Database opened(const std::string& image) {
    sqlite3* database = nullptr;
    REQUIRE(sqlite3_open(":memory:", &database) == SQLITE_OK);
    const auto size = static_cast<sqlite3_int64>(image.size());
    auto* copy = static_cast<unsigned char*>(sqlite3_malloc64(image.size()));
    std::copy(image.begin(), image.end(), copy);
    REQUIRE(sqlite3_deserialize(database, "main", copy, size, size,
                                SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE) == SQLITE_OK);
    return Database(database);
}

// What a newer build has made of them: more columns, and a table of its own.
std::string with_later_columns(const std::string& image) {
    auto database = opened(image);
    for (auto* table : {"keys", "limits", "tokens", "prices"})
        REQUIRE(sqlite3_exec(database.get(),
                             (std::string("ALTER TABLE ") + table + " ADD COLUMN later INTEGER NOT NULL DEFAULT 0; " +
                              "UPDATE " + table + " SET later = 7")
                                 .c_str(),
                             nullptr, nullptr, nullptr) == SQLITE_OK);
    REQUIRE(sqlite3_exec(database.get(), "CREATE TABLE later (what TEXT); INSERT INTO later VALUES ('kept')", nullptr,
                         nullptr, nullptr) == SQLITE_OK);
    sqlite3_int64 size = 0;
    auto* bytes = sqlite3_serialize(database.get(), "main", &size, 0);
    std::string text(reinterpret_cast<char*>(bytes), static_cast<size_t>(size));
    sqlite3_free(bytes);
    return text;
}

}  // namespace

// The accounts are one database for all nodes, whichever build has changed them last.
TEST_CASE("accounts that a newer build has changed are used and changed, and what only that one knows stays",
          "[pool][builds]") {
    std::string image;
    {
        auto ours = open_store_image("");
        REQUIRE(ours);
        REQUIRE(ours->store->add_account("alice", "A1", false));
        REQUIRE(ours->store->put_machine("alice", "trainer", "M1"));
        REQUIRE(ours->store->set_limits("alice", {.gpus_max = 1, .weight = 2}));
        REQUIRE(ours->store->set_price("h100", "USD", 1, 1));
        image = with_later_columns(ours->image());
    }
    auto ours = open_store_image(image);
    REQUIRE(ours);
    auto& store = *ours->store;
    CHECK(store.limits("alice")->gpus_max == 1);
    REQUIRE(store.set_limits("alice", {.gpus_max = 3, .weight = 1, .priority = 5}));
    REQUIRE(store.put_machine("alice", "trainer", "M2"));
    REQUIRE(store.add_token({"T1", "bob", 1, 1000}, false));
    REQUIRE(store.redeem_token("T1", "B1", 5));
    REQUIRE(store.set_price("h100", "USD", 2, 2));
    CHECK((*store.find_key("B1"))->account == "bob");
    CHECK(store.limits("alice")->priority == 5);

    auto database = opened(ours->image());
    CHECK(value_in(database.get(), "SELECT later FROM limits WHERE account = 'alice'") == "7");
    CHECK(value_in(database.get(), "SELECT gpus_max FROM limits WHERE account = 'alice'") == "3");
    CHECK(value_in(database.get(), "SELECT later FROM keys WHERE public_key = 'M2'") == "7");
    CHECK(value_in(database.get(), "SELECT what FROM later") == "kept");
}
