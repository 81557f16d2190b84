// The driver of DigitalOcean against a stateful mock, all of whose requests and replies are checked against DigitalOcean's own
// description.
#include "life.hpp"

using namespace tnr;
using namespace tnr::test;
using nlohmann::json;

namespace {

struct DigitalOceanWorld : MockCloud {
    DigitalOceanWorld() : MockCloud("digitalocean", "digitalocean_mock.py", "DIGITALOCEAN_API_URL", "") {}
    Order droplet(const std::string& name = "demo") const {
        return {
            .name = name,
            .region = "fra1",
            .user_data = "#cloud-config\nssh_keys: PRIVATE\n",
            .user = "tnr",
            .authorised_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me"};
    }
};

}  // namespace

TEST_CASE("digitalocean: offers carry DigitalOcean's own prices, the default first, GPUs by their model",
          "[clouds][digitalocean]") {
    DigitalOceanWorld cloud;
    auto provider = cloud.provider();
    CHECK(*provider->whoami() == "sammy@example.com, team My Team");
    auto offers = provider->offers();
    REQUIRE(offers);
    CHECK(offers->size() == 8);
    const Offer& first = offers->front();
    CHECK(first.name == "s-2vcpu-4gb");
    CHECK(first.memory_mib == 4096);
    CHECK(first.price.currency == "USD");
    CHECK(*first.price.running() == 0.03571);
    CHECK(*first.price.stopped() == 0.03571);  // billed until it is deleted
    CHECK(*first.price.monthly() == 24.0);
    CHECK(offers->back().gpu == "nvidia_h100");
    auto costs = provider->costs();
    REQUIRE(costs);
    CHECK(*costs->this_month == 11.21);
    CHECK(*costs->balance == 12.23);
}

TEST_CASE("digitalocean: a machine lives its whole life and leaves nothing", "[clouds][digitalocean]") {
    DigitalOceanWorld cloud;
    auto provider = cloud.provider();
    auto tcp_ports = [&] {  // that are open
        std::vector<std::string> ports;
        const json sent = cloud.sent("POST", "/v2/firewalls");
        for (const json& rule : sent["inbound_rules"])
            if (rule["protocol"] != "icmp") ports.push_back(rule["ports"]);
        return ports;
    };
    live(cloud, *provider,
         {.order = cloud.droplet(),
          .larger = "s-4vcpu-8gb",
          .left_while_it_runs = {"demo", "tnr-demo", "tnr-demo", "tnr-machine:demo"},
          .left_of_copy = {"tnr:before"},
          .running =
              [&](const Machine& machine) {
                  CHECK(cloud.sent("POST", "/v2/droplets")["user_data"] == cloud.droplet().user_data);
                  CHECK(tcp_ports() == std::vector<std::string>{"22"});
                  CHECK(machine.address == "192.0.2.20");  // the public one
                  CHECK(machine.region == "fra1");
              },
          .resized = [](const Machine& machine) { CHECK(*machine.price.machine == 0.07143); },
          .copied = [](const Snapshot& copy) { CHECK_FALSE(copy.per_month); }});  // unknown, not free
}

TEST_CASE("digitalocean: what it refuses is told so that one can act on it, and leaves nothing behind",
          "[clouds][digitalocean]") {
    DigitalOceanWorld cloud;
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
        CHECK(refused.error().hint.find("tnr login digitalocean") != std::string::npos);
    }
    SECTION("sold out, found out by ordering") {
        cloud.ask("knobs", {{"sold_out", {"s-2vcpu-4gb@fra1"}}});
        auto error = error_of(cloud.droplet());
        CHECK(error.what.find("'s-2vcpu-4gb' is sold out in fra1") == 0);
        CHECK(error.hint == "nearest: s-4vcpu-8gb in fra1 (4 CPUs, 8 GiB)");
    }
    SECTION("sold out, as the list says") {
        cloud.ask("knobs", {{"listed_sold_out", {"s-2vcpu-4gb"}}});
        Order order = cloud.droplet();
        order.offer = "s-2vcpu-4gb";
        CHECK(error_of(order).hint == "nearest: s-4vcpu-8gb in fra1 (4 CPUs, 8 GiB)");
    }
    SECTION("a region without the type") {
        Order order = cloud.droplet();
        order.offer = "gpu-h100x1-80gb";
        CHECK(error_of(order).hint == "regions that have it: nyc3");
    }
    SECTION("an image that there is not, also where its number is none of theirs") {
        for (const char* image : {"debian-99", "123456789", "12345678901234567890"}) {
            Order order = cloud.droplet();
            order.image = image;
            CHECK(error_of(order).what.find("invalid image") != std::string::npos);
        }
    }
    SECTION("quota") {
        cloud.ask("knobs", {{"quota", true}});
        auto error = error_of(cloud.droplet());
        CHECK(error.what.find("droplet limit") != std::string::npos);
        CHECK(error.hint.find("https://cloud.digitalocean.com") != std::string::npos);
    }
    SECTION("a name that is taken: names are not unique there, so we look") {
        auto made = provider->create(cloud.droplet());
        REQUIRE(made);
        CHECK(error_of(cloud.droplet()).kind == Error::Kind::usage);
        CHECK(cloud.ask("left").size() == 4);
        REQUIRE(provider->destroy(made->id));
    }
    SECTION("malformed JSON") {
        cloud.fail_next({{"path", "^/v2/sizes"}, {"kind", "malformed"}});
        CHECK(error_of(cloud.droplet()).what.find("is no JSON") != std::string::npos);
    }
    SECTION("JSON of another shape") {
        cloud.fail_next({{"path", "balance"}, {"status", 200}, {"body", {{"month_to_date_usage", "much"}}}});
        CHECK(provider->costs().error().what.find("makes no sense") != std::string::npos);
    }
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("digitalocean: passing trouble is got over, and an order whose reply got lost is not repeated",
          "[clouds][digitalocean]") {
    DigitalOceanWorld cloud;
    auto provider = cloud.provider();
    SECTION("too many requests, at the order itself; a fault while looking") {
        cloud.fail_next(
            {{"method", "POST"}, {"path", "/droplets$"}, {"status", 429}, {"headers", {{"Retry-After", "2"}}}});
        cloud.fail_next({{"method", "GET"}, {"path", "/sizes"}, {"status", 503}});
        REQUIRE(provider->create(cloud.droplet()));
        CHECK(cloud.count("POST", "/v2/droplets") == 2);
    }
    SECTION("a lost reply") {
        cloud.fail_next({{"method", "POST"}, {"path", "/droplets$"}, {"kind", "applied_reset"}});
        auto lost = provider->create(cloud.droplet());
        REQUIRE_FALSE(lost);
        CHECK(lost.error().kind == Error::Kind::network);
        CHECK(cloud.count("POST", "/v2/droplets") == 1);
    }
    auto machines = provider->machines();
    REQUIRE(machines->size() == 1);
    REQUIRE(provider->destroy(machines->front().id));
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("digitalocean: a droplet deleted in the web console is gone, and destroying it cleans up after it",
          "[clouds][digitalocean]") {
    DigitalOceanWorld cloud;
    auto provider = cloud.provider();
    auto made = provider->create(cloud.droplet());
    REQUIRE(made);
    cloud.ask("knobs", {{"console_delete", {made->id}}});
    CHECK(provider->machine(made->id).error().kind == Error::Kind::not_found);
    REQUIRE(provider->destroy(made->id));
    CHECK(cloud.ask("left") == json::array());
}

TEST_CASE("digitalocean: a name is free again as soon as its droplet is deleted", "[clouds][digitalocean]") {
    DigitalOceanWorld cloud;
    auto provider = cloud.provider();
    auto made = provider->create(cloud.droplet());
    REQUIRE(made);
    REQUIRE(provider->destroy(made->id));
    cloud.ask("list_again");
    CHECK(provider->create(cloud.droplet()));
}

TEST_CASE("digitalocean: lists of many pages are read to their end", "[clouds][digitalocean]") {
    DigitalOceanWorld cloud;
    auto provider = cloud.provider();
    auto made = provider->create(cloud.droplet());
    REQUIRE(made);
    auto more = cloud.ask("many", {{"count", 450}});
    CHECK(provider->machines()->size() == 451);
    CHECK(cloud.count("GET", "/v2/droplets") >= 3);
}

TEST_CASE("digitalocean: what an order that was cut off has left is found by the machine's name",
          "[clouds][digitalocean]") {
    DigitalOceanWorld cloud;
    auto provider = cloud.provider();
    Order other = cloud.droplet("other");
    other.authorised_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA other";
    REQUIRE(provider->create(other));
    cloud.fail_next({{"method", "POST"}, {"path", "/droplets$"}, {"kind", "reset"}, {"times", 99}});
    CHECK(provider->create(cloud.droplet("demo")).error().kind == Error::Kind::network);
    cloud.ask("knobs", {{"no_faults", true}});
    CHECK(remove_what_is_left(*provider, "demo") ==
          std::vector<std::string>{"SSH key tnr-demo", "firewall tnr-demo", "tag tnr-machine:demo"});
    CHECK(provider->leftovers("other")->empty());  // a machine that is there needs them
    CHECK(provider->leftovers("nosuch")->empty());
}

TEST_CASE("digitalocean: a list whose pages come again is an Error, soon", "[clouds][digitalocean]") {
    auto list_says = [](const std::string& next) {
        DigitalOceanWorld cloud;
        cloud.fail_next({{"path", "/v2/droplets$"},
                         {"status", 200},
                         {"times", 5000},
                         {"body", {{"droplets", json::array()}, {"links", {{"pages", {{"next", next}}}}}}}});
        const auto machines = cloud.provider()->machines();
        CHECK(cloud.count("GET", "/v2/droplets") < 5);
        return machines ? std::string() : machines.error().what;
    };
    CHECK(list_says("https://api.digitalocean.com/v2/droplets?page=2&per_page=200") ==
          "DigitalOcean's list of droplets does not end");
    CHECK(list_says("https://api.digitalocean.com/v2/droplets?per_page=200&page=1") ==
          "DigitalOcean's list of droplets does not end");
    CHECK(list_says("https://api.digitalocean.com/v2/droplets").find("makes no sense") != std::string::npos);
}

TEST_CASE("digitalocean: the token comes from where DigitalOcean's own tool has it", "[clouds][digitalocean]") {
    DigitalOceanWorld cloud;
    auto standard = find_cloud("digitalocean")->standard;
    CHECK_FALSE(standard(cloud.world));
    const auto in_snap = cloud.folder / "snap/doctl/current/.config/doctl";
    std::filesystem::create_directories(in_snap);
    test::write_text(in_snap / "config.yaml", "access-token: t-snap\ncontext: default\n");
    CHECK(standard(cloud.world)->values["token"] == "t-snap");
    CHECK(standard(cloud.world)->source == in_snap / "config.yaml");
    std::filesystem::create_directories(cloud.folder / ".config/doctl");
    test::write_text(cloud.folder / ".config/doctl/config.yaml",
                     "access-token: t-default\nauth-contexts:\n    work: t-work\ncontext: default\n");
    CHECK(standard(cloud.world)->values["token"] == "t-default");
    cloud.variables["DIGITALOCEAN_CONTEXT"] = "work";
    CHECK(standard(cloud.world)->values["token"] == "t-work");
    cloud.variables["DIGITALOCEAN_ACCESS_TOKEN"] = std::string(MockCloud::token) + "\n";
    CHECK(standard(cloud.world)->source == "DIGITALOCEAN_ACCESS_TOKEN");
    CHECK(find_cloud("digitalocean")->make(*standard(cloud.world), cloud.world)->whoami());  // without the line break
}
