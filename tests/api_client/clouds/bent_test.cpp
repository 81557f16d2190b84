// Every driver against replies that make no sense (bent.py): each call ends with a result or an Error, nothing is thrown, no
// secret is shown, and when the cloud makes sense again, so does the driver at once.
#include <cmath>

#include "aws_world.hpp"

using namespace tnr;
using namespace tnr::test;
using nlohmann::json;

namespace {

constexpr const char* bent_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me";
constexpr int lives = 60, pauses_max = 30;

// Makes a driver anew, as each `tnr` does.
using Open = std::function<std::unique_ptr<Provider>()>;

void check_price(const Price& price) {
    for (const auto& amount : {price.machine, price.disk, price.address, price.month})
        if (amount) CHECK((std::isfinite(*amount) && *amount >= 0));
}

// All that can be asked of a driver, whatever came before.
void ask_all(const Open& open, const Order& order) {
    auto provider = open();
    (void)provider->whoami();
    if (auto offers = provider->offers())
        for (const auto& offer : *offers) check_price(offer.price);
    (void)provider->check(order);
    auto made = provider->create(order);
    std::string id = made ? made->id : "none";
    if (auto machines = open()->machines())
        for (const auto& machine : *machines) {
            check_price(machine.price);
            if (machine.name == order.name) id = machine.id;
        }
    (void)provider->machine(id);
    (void)provider->open_ports(id, {8888});
    (void)provider->stop(id);
    (void)provider->resize(id, "nothing");
    (void)provider->start(id);
    (void)provider->snapshot(id, "copy");
    if (auto copies = open()->snapshots())
        for (const auto& copy : *copies) (void)provider->delete_snapshot(copy.id);
    (void)provider->costs();
    (void)provider->destroy(id);
    (void)open()->remove_leftovers(order.name);
}

void live_bent(MockCloud& cloud, const Open& open, Order order) {
    int pauses = 0;  // who waits for what never comes is interrupted
    cloud.world.http.pause = [&](int milliseconds) { return milliseconds == 0 || ++pauses < pauses_max; };
    for (int seed = 0; seed < lives; ++seed) {
        INFO("bent by " << seed);
        pauses = 0;
        cloud.ask("knobs", {{"bend", seed}});
        order.name = "bent-" + std::to_string(seed);
        cloud.explained.clear();
        ask_all(open, order);
        CHECK(cloud.explained.find(MockCloud::token) == std::string::npos);
        cloud.ask("knobs", {{"bend", nullptr}});
        pauses = 0;
        auto offers = open()->offers();
        INFO((offers ? "" : offers.error().what));
        REQUIRE(offers);
        auto machines = open()->machines();
        INFO((machines ? "" : machines.error().what));
        REQUIRE(machines);
        for (const auto& machine : *machines)
            if (machine.state != MachineState::gone) REQUIRE(open()->destroy(machine.id));
        auto left = open()->machines();
        REQUIRE(left);
        for (const auto& machine : *left) CHECK(machine.state == MachineState::gone);
    }
}

}  // namespace

TEST_CASE("hetzner: replies that make no sense end in Errors, and are forgotten", "[clouds][bent][hetzner]") {
    MockCloud cloud("hetzner", "hetzner_mock.py", "HCLOUD_ENDPOINT", "/v1");
    live_bent(cloud, [&] { return cloud.provider(); }, {.authorised_key = bent_key});
}

TEST_CASE("digitalocean: replies that make no sense end in Errors, and are forgotten", "[clouds][bent][digitalocean]") {
    MockCloud cloud("digitalocean", "digitalocean_mock.py", "DIGITALOCEAN_API_URL", "");
    live_bent(cloud, [&] { return cloud.provider(); }, {.authorised_key = bent_key});
}

TEST_CASE("thunder: replies that make no sense end in Errors, and are forgotten", "[clouds][bent][thunder]") {
    MockCloud cloud("thunder", "thunder_mock.py", "TNR_API_URL", "/v1");
    live_bent(cloud, [&] { return cloud.provider(); }, {.gpu = "a100xl", .gpu_count = 1, .authorised_key = bent_key});
}

TEST_CASE("gcp: replies that make no sense end in Errors, and are forgotten", "[clouds][bent][gcp]") {
    MockCloud cloud("gcp", "gcp_mock.py", "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "/compute/v1/");
    std::string url = cloud.variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"];
    url.resize(url.find("/compute"));
    cloud.variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBILLING"] = url + "/";
    cloud.variables["NO_GCE_CHECK"] = "true";
    const Credentials credentials{{{"key", cloud.ask("key", {{"url", url}}).dump()}}, "the test"};
    live_bent(cloud, [&] { return find_cloud("gcp")->make(credentials, cloud.world); }, {.region = "us-central1"});
}

TEST_CASE("azure: replies that make no sense end in Errors, and are forgotten", "[clouds][bent][azure]") {
    MockCloud cloud("azure", "azure_mock.py", "AZURE_RESOURCE_MANAGER_HOST", "");
    const std::string url = cloud.variables["AZURE_RESOURCE_MANAGER_HOST"];
    cloud.variables["AZURE_AUTHORITY_HOST"] = url + "/";
    cloud.variables["AZURE_RETAIL_PRICES_HOST"] = url;
    const Credentials credentials{{{"tenant_id", "tenant-1"},
                                   {"client_id", "app-1"},
                                   {"client_secret", "hidden-client-secret"},
                                   {"subscription_id", "00000000-1111-2222-3333-444444444444"}},
                                  "the test"};
    live_bent(cloud, [&] { return find_cloud("azure")->make(credentials, cloud.world); },
              {.region = "eastus", .authorised_key = bent_key});
}

TEST_CASE("aws: replies that make no sense end in Errors, and are forgotten", "[clouds][bent][aws]") {
    if (!AwsMock::is_there()) return;
    AwsMock cloud;
    live_bent(cloud, [&] { return cloud.as("tester"); }, {});
}
