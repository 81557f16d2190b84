// The driver of Hetzner against a stateful mock, all of whose requests and replies are checked against Hetzner's own description.
#include "life.hpp"

using namespace tnr;
using namespace tnr::test;
using nlohmann::json;

namespace {

constexpr const char* some_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me";

struct HetznerWorld : MockCloud {
    HetznerWorld() : MockCloud("hetzner", "hetzner_mock.py", "HCLOUD_ENDPOINT", "/v1") {}
    Order order(const std::string& name = "demo") const {
        return {.name = name,
                .region = "fsn1",
                .user_data = "#cloud-config\nssh_keys: PRIVATE\n",
                .user = "tnr",
                .authorised_key = some_key};
    }
};

}  // namespace

TEST_CASE("hetzner: offers are x86 and carry Hetzner's own prices, the default first", "[clouds][hetzner]") {
    HetznerWorld cloud;
    auto provider = cloud.provider();
    CHECK(*provider->whoami() == "a project with 0 servers");
    auto offers = provider->offers();
    REQUIRE(offers);
    CHECK(offers->size() == 11);  // four x86 types at their places
    const Offer& first = offers->front();
    CHECK(first.name == "cx23");
    CHECK(first.cpus == 2);
    CHECK(first.memory_mib == 4096);
    CHECK(first.disk_gib == 40);
    CHECK(first.price.currency == "EUR");
    CHECK(*first.price.machine == 0.0056);
    CHECK(*first.price.address == 0.0008);
    CHECK(std::abs(*first.price.running() - 0.0064) < 1e-9);
    CHECK(*first.price.stopped() == *first.price.running());  // Hetzner bills a server until it is deleted
    CHECK(std::abs(*first.price.monthly() - 3.99) < 1e-9);
    CHECK(first.price.date == "2026-01-02T03:04:05Z");

    SECTION("prices are asked for once a day") {
        cloud.now = "2026-01-02T23:59:59Z";
        REQUIRE(cloud.provider()->offers());
        CHECK(cloud.count("GET", "/v1/pricing") == 1);
        cloud.now = "2026-01-03T00:00:00Z";
        CHECK(cloud.provider()->offers()->front().price.date == cloud.now);
        CHECK(cloud.count("GET", "/v1/pricing") == 2);
    }
}

TEST_CASE("hetzner: a machine lives its whole life and leaves nothing", "[clouds][hetzner]") {
    HetznerWorld cloud;
    auto provider = cloud.provider();
    auto tcp_ports = [&] {  // that are open
        std::vector<std::string> ports;
        const json sent = cloud.sent("POST", "/v1/firewalls");
        for (const json& rule : sent["rules"])
            if (rule["protocol"] != "icmp") ports.push_back(rule["port"]);
        return ports;
    };
    live(cloud, *provider,
         {.order = cloud.order(),
          .larger = "cpx31",
          .left_while_it_runs = {"demo", "tnr-demo", "tnr-demo"},  // server, key, firewall
          .left_of_copy = {"before"},
          .running =
              [&](const Machine& machine) {
                  CHECK(cloud.sent("POST", "/v1/servers")["user_data"] == cloud.order().user_data);
                  CHECK(tcp_ports() == std::vector<std::string>{"22"});
                  CHECK(machine.offer == "cx23");
                  CHECK(machine.address == "192.0.2.10");
                  CHECK(*machine.price.machine == 0.0056);
              },
          .resized = [](const Machine& machine) { CHECK(*machine.price.machine == 0.021); },
          .copied = [](const Snapshot& copy) { CHECK(std::abs(*copy.per_month - 2.5 * 0.011) < 1e-9); }});
}

TEST_CASE("hetzner: a server that does not hear the power button is switched off", "[clouds][hetzner]") {
    HetznerWorld cloud;
    auto provider = cloud.provider();
    auto made = provider->create(cloud.order());
    REQUIRE(made);
    wait_until(*provider, made->id, MachineState::running);
    cloud.ask("knobs", {{"deaf", true}});
    REQUIRE(provider->stop(made->id));
    CHECK(cloud.paused_ms >= 60'000);
    CHECK(provider->machine(made->id)->state == MachineState::stopped);
}

TEST_CASE("hetzner: what it refuses is told so that one can act on it, and leaves nothing behind",
          "[clouds][hetzner]") {
    HetznerWorld cloud;
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
        CHECK(refused.error().what.find("unable to authenticate (request req-") != std::string::npos);
        CHECK(refused.error().hint.find("tnr login hetzner") != std::string::npos);
    }
    SECTION("sold out, found out by ordering") {
        cloud.ask("knobs", {{"sold_out", {"cx23@fsn1"}}});
        auto error = error_of(cloud.order());
        CHECK(error.what.find("'cx23' is sold out in fsn1") == 0);
        CHECK(error.hint == "nearest: cpx21 in fsn1 (3 CPUs, 4 GiB)");
    }
    SECTION("sold out, as the list says: another size is taken unless this one was asked for") {
        cloud.ask("knobs", {{"listed_sold_out", {"cx23@fsn1"}}});
        Order order = cloud.order();
        order.offer = "cx23";
        CHECK(error_of(order).hint == "nearest: cpx21 in fsn1 (3 CPUs, 4 GiB)");
        order.offer = "";
        CHECK(provider->create(order)->offer == "cpx21");
        REQUIRE(provider->destroy(provider->machines()->front().id));
    }
    SECTION("no such size, no such region, a region without it") {
        Order order = cloud.order();
        order.offer = "cx99";
        CHECK(error_of(order).hint == "sizes: cpx11, cpx21, cpx31, cx23");
        order.offer = "";
        order.region = "mars1";
        CHECK(error_of(order).hint == "regions: ash, fsn1, nbg1");
        order.offer = "cx23";
        order.region = "ash";
        CHECK(error_of(order).hint == "regions that have it: fsn1, nbg1");
    }
    SECTION("quota") {
        cloud.ask("knobs", {{"quota", true}});
        auto error = error_of(cloud.order());
        CHECK(error.kind == Error::Kind::remote);  // signing in again would not help
        CHECK(error.what.find("server limit reached") != std::string::npos);
        CHECK(error.hint.find("Limits") != std::string::npos);
    }
    SECTION("a name that is taken") {
        auto made = provider->create(cloud.order());
        REQUIRE(made);
        CHECK(error_of(cloud.order()).kind == Error::Kind::usage);
        CHECK(cloud.ask("left").size() == 3);  // and the first one keeps its firewall
        REQUIRE(provider->destroy(made->id));
    }
    SECTION("malformed JSON") {
        cloud.fail_next({{"path", "^/v1/servers$"}, {"kind", "malformed"}});
        auto error = error_of(cloud.order());
        CHECK(error.kind == Error::Kind::remote);
        CHECK(error.what.find("is no JSON") != std::string::npos);
    }
    SECTION("JSON of another shape") {
        cloud.fail_next({{"path", "^/v1/servers$"}, {"status", 200}, {"body", {{"servers", "none"}, {"meta", 7}}}});
        CHECK(provider->machines().error().what.find("makes no sense") != std::string::npos);
    }
    SECTION("a fault of the server that stays") {
        cloud.fail_next({{"path", "/servers"}, {"status", 500}, {"times", 99}, {"body", json::object()}});
        CHECK(error_of(cloud.order()).hint.find("cloud's side") != std::string::npos);
        cloud.ask("faults", json::array());
    }
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("hetzner: a price list that makes no sense is not kept, and keeps nobody from deleting",
          "[clouds][hetzner]") {
    HetznerWorld cloud;
    live_without_prices(cloud, cloud.order(), json::object({{"currency", 7}}));
}

TEST_CASE("hetzner: passing trouble is got over", "[clouds][hetzner]") {
    HetznerWorld cloud;
    auto provider = cloud.provider();
    SECTION("too many requests, at the order itself") {
        cloud.fail_next(
            {{"method", "POST"}, {"path", "/servers$"}, {"status", 429}, {"headers", {{"Retry-After", "2"}}}});
        CHECK(provider->create(cloud.order()));
    }
    SECTION("a fault while looking") {
        cloud.fail_next({{"method", "GET"}, {"path", "/server_types"}, {"status", 502}});
        cloud.fail_next({{"method", "GET"}, {"path", "/pricing"}, {"kind", "reset"}});
        CHECK(provider->create(cloud.order()));
    }
    CHECK(cloud.count("POST", "/v1/servers") <= 2);
    CHECK(cloud.ask("left").size() == 3);
}

TEST_CASE("hetzner: an order whose reply got lost is not repeated, and can be found by its name", "[clouds][hetzner]") {
    HetznerWorld cloud;
    auto provider = cloud.provider();
    cloud.fail_next({{"method", "POST"}, {"path", "/servers$"}, {"kind", "applied_reset"}});
    auto lost = provider->create(cloud.order());
    REQUIRE_FALSE(lost);
    CHECK(lost.error().kind == Error::Kind::network);
    CHECK(cloud.count("POST", "/v1/servers") == 1);
    auto machines = provider->machines();
    REQUIRE(machines->size() == 1);
    CHECK(machines->front().name == "demo");
    REQUIRE(provider->destroy(machines->front().id));
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("hetzner: a machine deleted in the web console is gone, and destroying it cleans up after it",
          "[clouds][hetzner]") {
    HetznerWorld cloud;
    auto provider = cloud.provider();
    auto made = provider->create(cloud.order()), other = provider->create(cloud.order("other"));
    REQUIRE((made && other));
    cloud.ask("knobs", {{"console_delete", {made->id}}});
    CHECK(provider->machine(made->id).error().kind == Error::Kind::not_found);
    CHECK(provider->machines()->size() == 1);
    REQUIRE(provider->destroy(made->id));
    CHECK(cloud.ask("left") == json({"other", "tnr-other"}));  // the key was the first one's
}

TEST_CASE("hetzner: what an order that was cut off has left is found by the machine's name", "[clouds][hetzner]") {
    HetznerWorld cloud;
    auto provider = cloud.provider();
    Order other = cloud.order("other");
    other.authorised_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA other";
    REQUIRE(provider->create(other));
    cloud.fail_next({{"method", "POST"}, {"path", "/servers$"}, {"kind", "reset"}, {"times", 99}});
    CHECK(provider->create(cloud.order("demo")).error().kind == Error::Kind::network);
    cloud.ask("knobs", {{"no_faults", true}});
    CHECK(remove_what_is_left(*provider, "demo") == std::vector<std::string>{"SSH key tnr-demo", "firewall tnr-demo"});
    CHECK(provider->leftovers("other")->empty());  // a machine that is there needs them
    CHECK(provider->leftovers("nosuch")->empty());
}

TEST_CASE("hetzner: a list whose pages come again is an Error, soon", "[clouds][hetzner]") {
    HetznerWorld cloud;
    cloud.fail_next({{"path", "/servers$"},
                     {"status", 200},
                     {"times", 99},
                     {"body", {{"servers", json::array()}, {"meta", {{"pagination", {{"next_page", 2}}}}}}}});
    CHECK(cloud.provider()->machines().error().what == "Hetzner's list of servers does not end");
    CHECK(cloud.count("GET", "/v1/servers") == 2);
}

TEST_CASE("hetzner: the token comes from where Hetzner's own tool has it", "[clouds][hetzner]") {
    HetznerWorld cloud;
    auto standard = find_cloud("hetzner")->standard;
    CHECK_FALSE(standard(cloud.world));
    std::filesystem::create_directories(cloud.folder / ".config/hcloud");
    test::write_text(
        cloud.folder / ".config/hcloud/cli.toml",
        "active_context = 'work'\n\n[[contexts]]\n  name = \"home\"\n  token = \"t-home\"\n\n[[contexts]]\n  name = "
        "\"work\"\n  token = \"t-work\"\n");
    CHECK(standard(cloud.world)->values["token"] == "t-work");
    cloud.variables["HCLOUD_CONTEXT"] = "home";
    CHECK(standard(cloud.world)->values["token"] == "t-home");
    // By hand, the token may stand first; and whose context is gone is not signed in as another one.
    test::write_text(
        cloud.folder / ".config/hcloud/cli.toml",
        "active_context = \"home\"\n[[contexts]]\ntoken = \"t-home\"\nname = \"home\"\n[[contexts]]\ntoken = "
        "\"t-work\"\nname = \"work\"\n[[contexts]]\nname = \"empty\"\n");
    CHECK(standard(cloud.world)->values["token"] == "t-home");
    for (const char* none : {"empty", "gone"}) {
        cloud.variables["HCLOUD_CONTEXT"] = none;
        CHECK_FALSE(standard(cloud.world));
    }
    cloud.variables["HCLOUD_TOKEN"] = std::string(MockCloud::token) + "\r\n";
    CHECK(standard(cloud.world)->source == "HCLOUD_TOKEN");
    CHECK(find_cloud("hetzner")->make(*standard(cloud.world), cloud.world)->whoami());  // without the line break
}
