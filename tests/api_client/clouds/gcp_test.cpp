// The driver of Google Compute Engine against a stateful mock, all of whose requests and replies are checked against Google's
// discovery documents.
#include <set>

#include "gcp_world.hpp"
#include "life.hpp"

using namespace tnr;
using namespace tnr::test;
using nlohmann::json;

namespace {

const json none = json::array();

}  // namespace

TEST_CASE("gcp: offers are x86 without GPUs and carry prices from Google's catalogue, the default first",
          "[clouds][gcp]") {
    GcpWorld cloud;
    auto provider = cloud.provider();
    CHECK(*provider->whoami() == "project my-project as tnr@my-project.iam.gserviceaccount.com");
    auto offers = provider->offers();
    REQUIRE(offers);
    std::set<std::string> names;
    for (const auto& offer : *offers) names.insert(offer.name + "@" + offer.region);
    CHECK(names == std::set<std::string>{"e2-medium@us-central1", "e2-medium@europe-west3", "e2-micro@us-central1",
                                         "e2-micro@europe-west3", "e2-standard-4@us-central1",
                                         "e2-standard-4@europe-west3", "n2-standard-2@us-central1",
                                         "c3-standard-4-lssd@us-central1"});
    CHECK(offers->size() == names.size());
    const Offer& first = offers->front();
    CHECK(first.name == "e2-medium");
    CHECK(first.region == "us-central1");
    CHECK(first.cpus == 2);
    CHECK(first.memory_mib == 4096);
    CHECK(first.disk_gib == 40);
    CHECK(first.price.currency == "USD");
    // An e2-medium is billed as one CPU; while it runs it has an address.
    CHECK(std::abs(*first.price.machine - (0.02181159 + 4 * 0.00292353 + 0.005)) < 1e-9);
    CHECK(std::abs(*first.price.stopped() - 40 * 0.1 / 730) < 1e-9);
    CHECK(first.price.date == cloud.now);
    for (const auto& offer : *offers)  // no rates there; and local disks have rates of their own
        if (offer.name == "c3-standard-4-lssd") CHECK_FALSE(offer.price.running());

    SECTION("both lists are asked for once a day") {
        REQUIRE(cloud.provider()->offers());
        CHECK(cloud.count("GET", "/v1/services/6F81-5844-456A/skus") == 2);  // its pages
        CHECK(cloud.count("GET", "/compute/v1/projects/my-project/aggregated/machineTypes") == 3);
    }
    SECTION("a region where gcloud makes things comes first; a zone can be asked for") {
        cloud.variables["CLOUDSDK_COMPUTE_ZONE"] = "europe-west3-a";
        auto near = cloud.provider()->offers();
        CHECK(near->front().region == "europe-west3");
        CHECK(near->front().name == "e2-medium");
        auto zone = cloud.provider()->offers_in("us-central1-b");
        CHECK(std::count_if(zone->begin(), zone->end(), [](const Offer& o) { return o.region == "us-central1-b"; }) ==
              4);
    }
}

TEST_CASE("gcp: without the billing catalogue prices are unknown, and everything else works", "[clouds][gcp]") {
    GcpWorld cloud;
    cloud.ask("knobs", {{"disabled", true}});
    auto offers = cloud.provider()->offers();
    REQUIRE(offers);
    CHECK(offers->front().name == "e2-medium");
    CHECK(offers->front().region == "us-central1");
    CHECK_FALSE(offers->front().price.running());
    CHECK(offers->front().price.source.find("unknown: Google: Cloud Billing API") == 0);
}

TEST_CASE("gcp: a machine lives its whole life and leaves nothing", "[clouds][gcp]") {
    GcpWorld cloud;
    auto provider = cloud.provider();
    live(
        cloud, *provider,
        {.order = cloud.order(),
         .larger = "e2-standard-4",
         .left_while_it_runs = {"demo", "tnr-allow-demo", "tnr-deny-demo"},
         .left_of_copy = {"before"},
         .running =
             [&](const Machine& machine) {
                 CHECK(machine.id == "us-central1-a/demo");
                 CHECK(machine.region == "us-central1");
                 CHECK(machine.offer == "e2-medium");
                 CHECK(machine.address == "192.0.2.30");
                 CHECK(*machine.price.machine > 0.03);
                 const json instance = cloud.ask("instances")[0];
                 CHECK(instance["metadata"]["items"][0] ==
                       json{{"key", "user-data"}, {"value", cloud.order().user_data}});
                 CHECK(instance["tags"]["items"] == json({"tnr-demo"}));
                 CHECK_FALSE(instance.contains("serviceAccounts"));
                 const json walls = cloud.ask("walls");
                 CHECK(walls["tnr-allow-demo"]["allowed"] == json::array({{{"IPProtocol", "tcp"}, {"ports", {"22"}}}}));
                 for (const char* wall : {"tnr-allow-demo", "tnr-deny-demo"})
                     CHECK(walls[wall]["sourceRanges"] == json::array({"0.0.0.0/0"}));
                 CHECK(walls["tnr-deny-demo"]["priority"] > walls["tnr-allow-demo"]["priority"]);
             },
         .resized =
             [](const Machine& machine) {
                 CHECK(std::abs(*machine.price.machine - (4 * 0.02181159 + 16 * 0.00292353 + 0.005)) < 1e-9);
             },
         .open =
             [&](const Machine&) {
                 CHECK(cloud.ask("walls")["tnr-allow-demo"]["allowed"][0]["ports"] == json({"22", "8888"}));
             },
         .copied =
             [&](const Snapshot& copy) {
                 CHECK(copy.size_gib == 2.5);
                 CHECK(std::abs(*copy.per_month - 2.5 * 0.05) < 1e-9);
                 CHECK(provider->snapshot("us-central1-a/demo", "before").error().kind ==
                       Error::Kind::usage);  // the name is taken
             }});
    CHECK(provider->costs().error().kind == Error::Kind::usage);  // Google has no API for it
}

TEST_CASE("gcp: what it refuses is told so that one can act on it, and leaves nothing behind", "[clouds][gcp]") {
    GcpWorld cloud;
    auto provider = cloud.provider();
    auto error_of = [&](const Order& order) {
        auto made = provider->create(order);
        REQUIRE_FALSE(made);
        return made.error();
    };
    SECTION("a key of somebody else's") {
        GcpWorld other;
        cloud.key["private_key"] = other.key["private_key"];
        auto refused = cloud.provider()->whoami();
        CHECK(refused.error().kind == Error::Kind::auth);
        CHECK(refused.error().what == "Google does not take these credentials: Invalid JWT Signature.");
        CHECK(refused.error().hint.find("tnr login gcp") != std::string::npos);
    }
    SECTION("a key that has been deleted") {
        cloud.ask("knobs", {{"revoked", true}});
        CHECK(provider->whoami().error().what.find("expired or revoked") != std::string::npos);
    }
    SECTION("a key file that is none") {
        for (const std::string text : {"", "no json", R"({"type": "external_account"})",
                                       R"({"type": "service_account"})", R"({"type": 7, "private_key": []})"}) {
            cloud.variables["GOOGLE_CLOUD_PROJECT"] = "my-project";
            auto refused = cloud.with({{"key", text}})->whoami();
            CHECK(refused.error().kind == Error::Kind::auth);
        }
    }
    SECTION("this computer's clock is wrong") {
        cloud.now = "2026-01-02T04:04:05Z";
        auto refused = provider->whoami();
        CHECK(refused.error().kind == Error::Kind::auth);
        CHECK(refused.error().hint == "is this computer's clock right? It says 2026-01-02T04:04:05Z");
    }
    SECTION("no project") {
        cloud.key.erase("project_id");
        CHECK(cloud.provider()->whoami().error().hint.find("GOOGLE_CLOUD_PROJECT") != std::string::npos);
    }
    SECTION("sold out in every zone of the region, found out by ordering") {
        cloud.ask("knobs", {{"sold_out", {"e2-medium@us-central1-a", "e2-medium@us-central1-b"}}});
        auto error = error_of(cloud.order());
        CHECK(error.what.find("'e2-medium' is sold out in us-central1 (Google: The zone") == 0);
        CHECK(error.hint == "nearest: n2-standard-2 in us-central1 (2 CPUs, 8 GiB)");
    }
    SECTION("sold out in one zone: the next one is asked") {
        cloud.ask("knobs", {{"sold_out", {"e2-medium@us-central1-a"}}});
        auto made = provider->create(cloud.order());
        REQUIRE(made);
        CHECK(made->id == "us-central1-b/demo");
        REQUIRE(provider->stop(made->id));
        cloud.ask("knobs", {{"sold_out", {"e2-medium@us-central1-b"}}});
        auto started = provider->start(made->id);
        CHECK(started.error().what.find("'e2-medium' is sold out in us-central1-b") == 0);
        REQUIRE(provider->destroy(made->id));
    }
    SECTION("no such size, no such region, a region without it, no such image") {
        Order order = cloud.order();
        order.offer = "e9-huge";
        CHECK(error_of(order).hint == "sizes: c3-standard-4-lssd, e2-medium, e2-micro, e2-standard-4, n2-standard-2");
        order.offer = "";
        order.region = "mars1";
        CHECK(error_of(order).hint == "regions: europe-west3, us-central1");
        order.offer = "n2-standard-2";
        order.region = "europe-west3";
        CHECK(error_of(order).hint == "regions that have it: us-central1");
        order = cloud.order();
        order.image = "no-such-snapshot";
        CHECK(error_of(order).kind == Error::Kind::usage);
    }
    SECTION("quota") {
        cloud.ask("knobs", {{"quota", true}});
        auto error = error_of(cloud.order());
        CHECK(error.kind == Error::Kind::remote);
        CHECK(error.what.find("Quota 'CPUS' exceeded") != std::string::npos);
        CHECK(error.hint.find("quotas?project=my-project") != std::string::npos);
    }
    SECTION("a project without a network") {
        cloud.ask("knobs", {{"no_network", true}});
        CHECK(error_of(cloud.order()).hint.find("gcloud compute networks create default") != std::string::npos);
    }
    SECTION("a name that is taken, in another zone too") {
        auto made = provider->create(cloud.order());
        REQUIRE(made);
        Order order = cloud.order();
        order.region = "europe-west3";
        CHECK(error_of(order).kind == Error::Kind::usage);
        CHECK(cloud.ask("left").size() == 3);  // and the first one keeps its rules
        REQUIRE(provider->destroy(made->id));
    }
    SECTION("malformed JSON") {
        cloud.fail_next({{"path", "/aggregated/instances$"}, {"kind", "malformed"}});
        CHECK(error_of(cloud.order()).what.find("is no JSON") != std::string::npos);
    }
    SECTION("JSON of another shape") {
        for (const json& body :
             {json{{"items", 7}}, json{{"items", {{"z", {{"instances", {1, 2}}}}}}}, json::array()}) {
            cloud.fail_next({{"path", "/aggregated/instances$"}, {"status", 200}, {"body", body}});
            CHECK(provider->machines().error().what.find("makes no sense") != std::string::npos);
        }
        cloud.fail_next({{"path", "/token$"}, {"status", 200}, {"body", {{"access_token", 7}}}});
        CHECK(cloud.provider()->whoami().error().what.find("has no token") != std::string::npos);
    }
    SECTION("a fault of the server that stays") {
        cloud.fail_next({{"path", "/instances"}, {"status", 500}, {"times", 99}, {"body", json::object()}});
        CHECK(error_of(cloud.order()).hint.find("cloud's side") != std::string::npos);
        cloud.ask("faults", json::array());
    }
    SECTION("a reply that never ends") {
        cloud.fail_next({{"path", "/aggregated/instances"}, {"kind", "endless"}});
        CHECK(error_of(cloud.order()).what.find("larger than 32 MiB") != std::string::npos);
    }
    CHECK(cloud.ask("left") == none);
}

TEST_CASE("gcp: passing trouble is got over", "[clouds][gcp]") {
    GcpWorld cloud;
    auto provider = cloud.provider();
    SECTION("too many requests, at the order itself") {
        cloud.fail_next(
            {{"method", "POST"}, {"path", "/instances$"}, {"status", 429}, {"headers", {{"Retry-After", "2"}}}});
    }
    SECTION("a fault while looking, a reply cut in half") {
        cloud.fail_next({{"path", "/machineTypes"}, {"status", 502}});
        cloud.fail_next({{"path", "/skus"}, {"kind", "reset"}});
        cloud.fail_next({{"path", "/aggregated/instances"}, {"kind", "half"}});
        cloud.fail_next({{"path", "/token"}, {"status", 503}});
    }
    SECTION("an order whose reply got lost: asked again, it is not done again") {
        cloud.fail_next({{"method", "POST"}, {"path", "/instances$"}, {"kind", "applied_reset"}});
        REQUIRE(provider->create(cloud.order()));
        CHECK(cloud.count("POST", "/compute/v1/projects/my-project/zones/us-central1-a/instances") == 2);
    }
    SECTION("a token that expires in between is replaced") {
        REQUIRE(provider->whoami());
        cloud.ask("knobs", {{"expire", true}});
        CHECK(provider->whoami());
        CHECK(cloud.count("POST", "/token") == 2);
    }
    if (provider->machines()->empty()) REQUIRE(provider->create(cloud.order()));
    CHECK(cloud.ask("left").size() == 3);
}

TEST_CASE("gcp: what an order that was cut off has left goes by the machine's name", "[clouds][gcp]") {
    GcpWorld cloud;
    auto provider = cloud.provider();
    cloud.fail_next({{"method", "POST"}, {"path", "/instances$"}, {"kind", "reset"}, {"times", 99}});
    CHECK(provider->create(cloud.order()).error().kind == Error::Kind::network);
    CHECK(cloud.ask("left") == json({"tnr-allow-demo", "tnr-deny-demo"}));
    cloud.ask("knobs", {{"no_faults", true}});
    CHECK(remove_what_is_left(*provider, "demo") ==
          std::vector<std::string>{"firewall rule tnr-allow-demo", "firewall rule tnr-deny-demo"});
    CHECK(cloud.ask("left") == none);
    REQUIRE(provider->create(cloud.order()));
    CHECK(provider->leftovers("demo")->empty());  // a machine that is there needs them
}

TEST_CASE("gcp: a list whose pages come again is an Error, soon", "[clouds][gcp]") {
    GcpWorld cloud;
    cloud.fail_next({{"path", "/aggregated/instances$"},
                     {"status", 200},
                     {"times", 99},
                     {"body", {{"items", json::object()}, {"nextPageToken", "again"}}}});
    CHECK(cloud.provider()->machines().error().what == "Google's list of items does not end");
    CHECK(cloud.count("GET", "/compute/v1/projects/my-project/aggregated/instances") == 2);
}

TEST_CASE("gcp: a machine deleted in the web console is gone, and destroying it cleans up after it", "[clouds][gcp]") {
    GcpWorld cloud;
    auto provider = cloud.provider();
    auto made = provider->create(cloud.order()), other = provider->create(cloud.order("other"));
    REQUIRE((made && other));
    cloud.ask("knobs", {{"console_delete", {made->id}}});
    CHECK(provider->machine(made->id).error().kind == Error::Kind::not_found);
    CHECK(provider->machines()->size() == 1);
    REQUIRE(provider->destroy(made->id));
    CHECK(cloud.ask("left") == json({"other", "tnr-allow-other", "tnr-deny-other"}));
    SECTION("lists have pages") {
        cloud.ask("many", {{"count", 1200}});
        CHECK(provider->machines()->size() == 1201);
    }
}

TEST_CASE("gcp: credentials come from where Google's own tools have them", "[clouds][gcp]") {
    GcpWorld cloud;
    auto standard = find_cloud("gcp")->standard;
    CHECK_FALSE(standard(cloud.world));
    SECTION("the metadata server") {
        cloud.variables["GCE_METADATA_HOST"] = cloud.url.substr(7);
        CHECK_FALSE(standard(cloud.world));
        auto credentials = find_cloud("gcp")->ambient(cloud.world);
        CHECK(credentials->source == "the metadata server");
        CHECK(*find_cloud("gcp")->make(*credentials, cloud.world)->whoami() == "project my-project");
        // A machine without one.
        cloud.fail_next({{"path", "/computeMetadata/"}, {"status", 404}, {"body", "no such thing"}});
        CHECK(find_cloud("gcp")->make(*credentials, cloud.world)->whoami().error().kind == Error::Kind::auth);
    }
    SECTION("gcloud's user, its project and zone") {
        json user = cloud.ask("key");
        user["token_uri"] = cloud.url + "/token";
        user.erase("quota_project_id");
        std::filesystem::create_directories(cloud.folder / ".config/gcloud/configurations");
        test::write_text(cloud.folder / ".config/gcloud/application_default_credentials.json", user.dump());
        auto credentials = standard(cloud.world);
        REQUIRE(credentials);
        auto provider = find_cloud("gcp")->make(*credentials, cloud.world);
        CHECK(provider->whoami().error().what.find("which project") != std::string::npos);
        test::write_text(
            cloud.folder / ".config/gcloud/configurations/config_default",
            "[core]\naccount = me@example.com\nproject = my-project\n\n[compute]\nzone = europe-west3-a\n");
        provider = find_cloud("gcp")->make(*credentials, cloud.world);
        CHECK(*provider->whoami() == "project my-project as me@example.com");
        CHECK(provider->offers()->front().region == "europe-west3");
        CHECK(cloud.explained.find("hidden-") == std::string::npos);
        user["refresh_token"] = "hidden-other-token";
        CHECK(cloud.with({{"key", user.dump()}})->whoami().error().kind == Error::Kind::auth);
    }
    SECTION("whom gcloud itself is signed in as, and its settings by their sections") {
        const auto gcloud = cloud.folder / ".config/gcloud";
        std::filesystem::create_directories(gcloud / "configurations");
        std::filesystem::create_directories(gcloud / "legacy_credentials/tnr@my-project.iam.gserviceaccount.com");
        test::write_text(gcloud / "legacy_credentials/tnr@my-project.iam.gserviceaccount.com/adc.json",
                         cloud.key.dump());
        CHECK_FALSE(standard(cloud.world));  // of nobody in particular
        test::write_text(gcloud / "active_config", "work");
        test::write_text(gcloud / "configurations/config_work",
                         "[core]\naccount = tnr@my-project.iam.gserviceaccount.com\nproject = my-project\n\n"
                         "[run]\nregion = asia-east1\n\n[compute]\nregion = europe-west3\n");
        auto credentials = standard(cloud.world);
        REQUIRE(credentials);
        auto provider = find_cloud("gcp")->make(*credentials, cloud.world);
        CHECK(*provider->whoami() == "project my-project as tnr@my-project.iam.gserviceaccount.com");
        CHECK(provider->offers()->front().region == "europe-west3");
        cloud.variables["CLOUDSDK_CORE_ACCOUNT"] = "another@example.com";
        CHECK_FALSE(standard(cloud.world));
        cloud.variables["CLOUDSDK_CORE_ACCOUNT"] = "../../../key";
        CHECK_FALSE(standard(cloud.world));
    }
    SECTION("the variable comes first, also where its file cannot be read") {
        cloud.variables["GOOGLE_APPLICATION_CREDENTIALS"] = (cloud.folder / "key.json").string();
        auto credentials = standard(cloud.world);
        CHECK(credentials->source == "GOOGLE_APPLICATION_CREDENTIALS");
        auto provider = find_cloud("gcp")->make(*credentials, cloud.world);
        cloud.variables["GOOGLE_CLOUD_PROJECT"] = "my-project";
        CHECK(provider->whoami().error().kind == Error::Kind::auth);
        test::write_text(cloud.folder / "key.json", cloud.key.dump());
        CHECK(find_cloud("gcp")->make(*standard(cloud.world), cloud.world)->whoami());
    }
}
