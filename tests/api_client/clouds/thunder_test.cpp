// The driver of Thunder Compute against a stateful mock, all of whose requests and replies are checked against Thunder's own
// description.
#include "mock_world.hpp"
#include "tests/api_client/world.hpp"

using namespace tnr;
using namespace tnr::test;
using nlohmann::json;

namespace {

struct ThunderWorld : MockCloud {
    ThunderWorld() : MockCloud("thunder", "thunder_mock.py", "TNR_API_URL", "/v1") {}
    Order instance(const std::string& name = "demo") const {
        return {.name = name, .gpu = "a100xl", .gpu_count = 1, .authorised_key = "ssh-ed25519 AAAAC3Nz me@laptop"};
    }
};

}  // namespace

TEST_CASE("thunder: offers are GPUs with Thunder's own prices", "[clouds][thunder]") {
    ThunderWorld cloud;
    auto provider = cloud.provider();
    CHECK(provider->brings_gpus());
    CHECK(*provider->whoami() == "an account with 0 instances");
    auto offers = provider->offers();
    REQUIRE(offers);
    REQUIRE(offers->size() == 10);                          // five sizes, and those with more CPUs
    CHECK(offers->front().name == "a6000_x1_prototyping");  // the cheapest
    const Offer& last = offers->back();
    CHECK(last.name == "h100_x2_production");
    CHECK(last.gpu == "h100");
    CHECK(last.gpu_count == 2);
    CHECK(last.memory_mib == 36 * 5 * 1024);
    CHECK(*last.price.running() == 4.98);  // 100 GB for each GPU are in it
    CHECK(last.price.currency == "USD");
    REQUIRE(cloud.provider()->offers());
    CHECK(cloud.count("GET", "/v1/pricing") == 1);
}

TEST_CASE("thunder: a machine lives its whole life and leaves nothing", "[clouds][thunder]") {
    ThunderWorld cloud;
    auto provider = cloud.provider();
    auto made = provider->create(cloud.instance());
    REQUIRE(made);
    CHECK(made->user == "ubuntu");
    CHECK(*made->price.running() == 0.78);
    auto machine = wait_until(*provider, made->id, MachineState::running);
    CHECK(machine.name == "demo");  // out of its key's comment, for Thunder gives names of its own
    CHECK(machine.address == "192.0.2.50");
    CHECK(machine.ssh_port == 22);
    CHECK(machine.offer == "a100xl_x1_prototyping");
    CHECK(*machine.price.running() == 0.78);
    REQUIRE(provider->machines()->size() == 1);

    REQUIRE(provider->start(made->id));  // runs already
    auto stopped = provider->stop(made->id);
    REQUIRE_FALSE(stopped);
    CHECK(stopped.error().what == "Thunder cannot stop a machine; it costs until it is deleted");
    REQUIRE(provider->resize(made->id, "h100_x1_prototyping"));
    machine = wait_until(*provider, made->id, MachineState::running);
    CHECK(machine.offer == "h100_x1_prototyping");
    CHECK(*machine.price.running() == 1.38);
    REQUIRE(provider->resize(made->id, "h100_x1_prototyping_16cpus"));
    machine = wait_until(*provider, made->id, MachineState::running);
    CHECK(machine.offer == "h100_x1_prototyping_16cpus");
    CHECK(std::abs(*machine.price.running() - (1.38 + 12 * 0.04)) < 1e-9);
    REQUIRE(provider->open_ports(made->id, {8888, 9999}));
    wait_until(*provider, made->id, MachineState::running);
    REQUIRE(provider->open_ports(made->id, {9999}));
    wait_until(*provider, made->id, MachineState::running);
    REQUIRE(provider->open_ports(made->id, {9999}));  // nothing to do
    CHECK(provider->machine(made->id)->state == MachineState::running);

    REQUIRE(provider->snapshot(made->id, "before"));
    CHECK_FALSE(provider->snapshots()->front().ready);
    auto snapshots = provider->snapshots();
    CHECK(snapshots->front().ready);
    CHECK(snapshots->front().created == "2026-01-02T03:04:05Z");  // which Thunder tells in seconds
    REQUIRE(provider->destroy(made->id));
    CHECK(cloud.ask("left") == json({"before"}));
    Order again = cloud.instance("again");
    again.image = snapshots->front().id;
    auto restored = provider->create(again);
    REQUIRE(restored);
    REQUIRE(provider->destroy(restored->id));
    REQUIRE(provider->destroy(restored->id));
    REQUIRE(provider->delete_snapshot(snapshots->front().id));
    CHECK(cloud.ask("left") == json::array());
    CHECK(provider->machine(made->id).error().kind == Error::Kind::not_found);
}

TEST_CASE("thunder: what it refuses is told so that one can act on it", "[clouds][thunder]") {
    ThunderWorld cloud;
    auto provider = cloud.provider();
    auto error_of = [&](const Order& order) {
        auto made = provider->create(order);
        REQUIRE_FALSE(made);
        return made.error();
    };
    SECTION("a wrong token") {
        auto refused = cloud.provider("wrong-token-wrong")->whoami();
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind == Error::Kind::auth);
        CHECK(refused.error().hint.find("tnr login thunder") != std::string::npos);
    }
    SECTION("sold out") {
        cloud.ask("knobs", {{"sold_out", {"a100xl"}}});
        auto error = error_of(cloud.instance());
        CHECK(error.what.find("'a100xl_x1_prototyping' is sold out") == 0);
        CHECK(error.hint == "nearest: a6000_x1_prototyping");
    }
    SECTION("a GPU that it does not have, or not so many of") {
        Order order = cloud.instance();
        order.gpu = "b200";
        auto error = error_of(order);
        CHECK(error.what == "there is no machine with 1 x b200");
        CHECK(error.hint == "GPUs there: a100xl:1, a6000:1, h100:1, h100:2");
    }
    SECTION("quota") {
        cloud.ask("knobs", {{"quota", true}});
        CHECK(error_of(cloud.instance()).what.find("instance limit reached") != std::string::npos);
    }
    SECTION("a name that is taken") {
        auto made = provider->create(cloud.instance());
        REQUIRE(made);
        CHECK(error_of(cloud.instance()).kind == Error::Kind::usage);
        REQUIRE(provider->destroy(made->id));
    }
    SECTION("malformed JSON") {
        cloud.fail_next({{"path", "/specs"}, {"kind", "malformed"}});
        CHECK(error_of(cloud.instance()).what.find("is no JSON") != std::string::npos);
    }
    SECTION("JSON of another shape") {
        cloud.fail_next({{"path", "/specs"}, {"status", 200}, {"body", {{"specs", {{"h100_x1_production", 7}}}}}});
        CHECK(error_of(cloud.instance()).what.find("makes no sense") != std::string::npos);
    }
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("thunder: a price list that makes no sense is not kept, and keeps nobody from deleting",
          "[clouds][thunder]") {
    ThunderWorld cloud;
    live_without_prices(cloud, cloud.instance(), json::object({{"a100xl_x1_prototyping", "nan"}}));
}

TEST_CASE("thunder: passing trouble is got over, and an order whose reply got lost is not repeated",
          "[clouds][thunder]") {
    ThunderWorld cloud;
    auto provider = cloud.provider();
    SECTION("trouble") {
        cloud.fail_next({{"method", "POST"}, {"path", "/create$"}, {"status", 429}});
        cloud.fail_next({{"method", "GET"}, {"path", "/specs"}, {"status", 500}});
        REQUIRE(provider->create(cloud.instance()));
    }
    SECTION("a lost reply") {
        cloud.fail_next({{"method", "POST"}, {"path", "/create$"}, {"kind", "applied_reset"}});
        CHECK(provider->create(cloud.instance()).error().kind == Error::Kind::network);
        CHECK(cloud.count("POST", "/v1/instances/create") == 1);
    }
    auto machines = provider->machines();
    REQUIRE(machines->size() == 1);
    cloud.ask("knobs", {{"console_delete", {machines->front().id}}});
    CHECK(provider->machine(machines->front().id).error().kind == Error::Kind::not_found);
    REQUIRE(provider->destroy(machines->front().id));
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("thunder: the token comes from where the original tnr has it", "[clouds][thunder]") {
    ThunderWorld cloud;
    auto standard = find_cloud("thunder")->standard;
    CHECK_FALSE(standard(cloud.world));
    std::filesystem::create_directories(cloud.folder / ".thunder");
    test::write_text(cloud.folder / ".thunder/token", "t-file\n");
    CHECK(standard(cloud.world)->values["token"] == "t-file");
    test::write_text(cloud.folder / ".thunder/cli_config.json", "{\"token\": \"t-config\"}");
    CHECK(standard(cloud.world)->values["token"] == "t-config");
    cloud.variables["TNR_API_TOKEN"] = "t-variable";
    CHECK(standard(cloud.world)->source == "TNR_API_TOKEN");
}
