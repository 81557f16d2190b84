// `tnr whoami`.
#include <mutex>
#include <set>
#include <thread>

#include "tests/api_client/clouds/mock_world.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

namespace {

nlohmann::json identity_in(const nlohmann::json& document, const std::string& provider) {
    for (const auto& each : document["providers"])
        if (each["provider"] == provider) return each;
    return {};
}

}  // namespace

TEST_CASE("whoami shows every provider, signed in or not, and what is wrong with a token", "[cli][whoami]") {
    test::MockCloud cloud("hetzner", "hetzner_mock.py", "HCLOUD_ENDPOINT", "/v1");
    test::FakeSession fake;
    fake.session.world = cloud.world;
    auto document = fake.document({"whoami"});
    CHECK(document["providers"].size() == provider_names().size());
    CHECK(document["errors"].empty());
    CHECK(identity_in(document, "local")["signed_in"] == true);
    CHECK(identity_in(document, "hetzner")["signed_in"] == false);
    CHECK(identity_in(document, "hetzner")["who"].is_null());
    CHECK(fake.tnr({"whoami", "hetzner"}) == 4);
    CHECK(fake.err.str().find("`tnr login hetzner`") != std::string::npos);

    cloud.variables["HCLOUD_TOKEN"] = "wrong-token-wrong";
    document = fake.document({"whoami"});
    REQUIRE(document["errors"].size() == 1);
    CHECK(document["errors"][0]["about"] == "hetzner");
    CHECK(document["errors"][0]["kind"] == "auth");
    CHECK(identity_in(document, "hetzner")["source"] == "HCLOUD_TOKEN");
    CHECK(fake.session.exit_code == 4);
    CHECK(fake.tnr({"whoami"}) == 4);
    CHECK(fake.out.str().find("this computer") != std::string::npos);
    CHECK(fake.err.str().find("tnr: ") == 0);
    CHECK(fake.tnr({"whoami", "hetzner"}) == 4);

    cloud.variables["HCLOUD_TOKEN"] = cloud.token;
    document = fake.document({"whoami", "hetzner"});
    CHECK(document["providers"].size() == 1);
    CHECK(identity_in(document, "hetzner")["who"] == "a project with 0 servers");
}

TEST_CASE("whoami asks all clouds at once: one that hangs holds up none of the others", "[cli][whoami]") {
    test::MockCloud hetzner("hetzner", "hetzner_mock.py", "HCLOUD_ENDPOINT", "/v1");
    test::MockCloud ocean("digitalocean", "digitalocean_mock.py", "DIGITALOCEAN_API_URL", "");
    test::FakeSession fake;
    fake.session.world = hetzner.world;
    hetzner.variables["HCLOUD_TOKEN"] = hetzner.variables["DIGITALOCEAN_TOKEN"] = test::MockCloud::token;
    hetzner.variables["DIGITALOCEAN_API_URL"] = ocean.variables["DIGITALOCEAN_API_URL"];
    std::mutex mutex;
    std::set<std::thread::id> askers;
    fake.session.world.http.explain = {};
    fake.session.world.http.on_date = [&](const std::string&) {  // of each reply
        const std::lock_guard lock(mutex);
        askers.insert(std::this_thread::get_id());
    };
    auto document = fake.document({"whoami"});
    CHECK(identity_in(document, "hetzner")["signed_in"] == true);
    CHECK(identity_in(document, "digitalocean")["signed_in"] == true);
    CHECK(askers.size() == 2);
    CHECK(fake.session.world.limits.total_ms == http::Limits{}.total_ms);
}
