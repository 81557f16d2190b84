// Signing in to a cloud, and a machine there from `start` to `delete`, with the real driver and a mock of the cloud.
#include "cli/clouds.hpp"

#include <sys/stat.h>

#include "api_client/base/files.hpp"
#include "cli/commands/cloud_login.hpp"
#include "cli/commands/delete.hpp"
#include "cli/commands/start.hpp"
#include "cli/commands/status.hpp"
#include "cli/commands/stop.hpp"
#include "tests/api_client/clouds/mock_world.hpp"
#include "tests/cli/fakes.hpp"

using namespace tnr;
using nlohmann::json;

namespace {

// What start does on a machine is not what these tests are about.
class WillingAccess : public cli::MachineAccess {
public:
    explicit WillingAccess(std::string& address) : address_(address) {}
    Result<> get_in(const Machine& machine, const cli::Record&, const cli::Waiting&) override {
        address_ = machine.address;
        return Ok{};
    }
    Result<std::vector<std::string>> install(const GpuConfig&, const cli::Say&) override {
        return std::vector<std::string>{};
    }
    Result<> configure(const std::string&) override { return Ok{}; }
    Result<cli::Proof> prove() override { return cli::Proof{{{"NVIDIA H100", uint64_t{80} << 30}}}; }

private:
    std::string& address_;
};

// A session as main() makes it, but for its pool, its access to machines, and a mock where the cloud would be.
struct CloudSession {
    test::FakeSession fake;
    test::MockCloud cloud;
    std::string reached;  // the address that start got into
    cli::Session& session = fake.session;

    CloudSession(const std::string& name, const std::string& script, const std::string& variable,
                 const std::string& path)
        : cloud(name, script, variable, path) {
        session.world = cloud.world;
        session.provider_names = {name};
        session.provider = [this](const std::string& provider) { return cli::open_provider(session, provider); };
        session.access = [this] { return std::make_unique<WillingAccess>(reached); };
        auto server = wire::make_key_pair(), own = wire::make_key_pair();
        (void)session.logins().save({"tcp://gpu.example:14900", {server.public_key, own}});
    }
    void sign_in(const std::string& name, const std::string& secrets = std::string(test::MockCloud::token) + "\n") {
        fake.in.clear();
        fake.in.str(secrets);
        REQUIRE(cli::login_cloud(session, name));
    }
};

struct HetznerSession : CloudSession {
    HetznerSession() : CloudSession("hetzner", "hetzner_mock.py", "HCLOUD_ENDPOINT", "/v1") {}
};

}  // namespace

TEST_CASE("login asks the cloud, keeps the key for its owner alone, and logout forgets it", "[cli][clouds]") {
    HetznerSession world;
    auto& session = world.session;
    auto none = cli::open_provider(session, "hetzner");
    REQUIRE_FALSE(none);
    CHECK(none.error().kind == Error::Kind::auth);
    CHECK(none.error().hint.find("`tnr login hetzner`") != std::string::npos);
    CHECK(none.error().hint.find("HCLOUD_TOKEN") != std::string::npos);

    world.fake.in.str("wrong-token-wrong\n");
    auto refused = cli::login_cloud(session, "hetzner");
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == Error::Kind::auth);
    CHECK_FALSE(std::filesystem::exists(session.config_folder + "/clouds.json"));
    world.fake.in.clear();
    world.fake.in.str("\n");
    CHECK(cli::login_cloud(session, "hetzner").error().kind == Error::Kind::usage);
    CHECK(cli::login_cloud(session, "nowhere").error().hint.find("hetzner") != std::string::npos);

    world.sign_in("hetzner");
    CHECK(world.fake.said() == "Signed in to hetzner: a project with 0 servers\n");
    struct stat file = {};
    REQUIRE(::stat((session.config_folder + "/clouds.json").c_str(), &file) == 0);
    CHECK((file.st_mode & 0777) == 0600);
    session.json = true;
    REQUIRE(cli::whoami(session, "hetzner"));
    auto who = json::parse(world.fake.said())["providers"][0];
    CHECK(who["signed_in"] == true);
    CHECK(who["source"] == "`tnr login hetzner`");
    session.json = false;

    REQUIRE(cli::logout_cloud(session, "hetzner"));
    CHECK(cli::whoami(session, "hetzner").error().kind == Error::Kind::auth);
    REQUIRE(cli::logout_cloud(session, "hetzner"));
    world.cloud.variables["HCLOUD_TOKEN"] = test::MockCloud::token;
    REQUIRE(cli::whoami(session, "hetzner"));
    CHECK(world.fake.said().find("HCLOUD_TOKEN") != std::string::npos);
}

TEST_CASE("each machine at a cloud has a key pair of its own, and both ends of it go with the machine",
          "[cli][clouds]") {
    HetznerSession world;
    auto& fake = world.fake;
    world.sign_in("hetzner");
    for (const char* name : {"one", "two"})
        REQUIRE(fake.tnr({"start", name, "--gpu", "h100", "--provider", "hetzner"}) == 0);
    CHECK((*world.session.records().find("one"))->login_key != (*world.session.records().find("two"))->login_key);
    CHECK(world.cloud.ask("left") ==
          json({"one", "two", "tnr-one", "tnr-two", "tnr-one", "tnr-two"}));  // server, key, firewall
    REQUIRE(fake.tnr({"delete", "one", "--yes"}) == 0);
    CHECK(world.cloud.ask("left") == json({"two", "tnr-two", "tnr-two"}));
    CHECK_FALSE(file_exists(world.session.config_folder + "/keys/one"));
    CHECK(file_exists(world.session.config_folder + "/keys/two"));
    REQUIRE(fake.tnr({"delete", "two", "--yes"}) == 0);
    CHECK(world.cloud.ask("left") == json::array());
}

TEST_CASE("a token that has expired hides no machine without a word", "[cli][clouds]") {
    HetznerSession world;
    auto& fake = world.fake;
    CHECK(fake.tnr({"status"}) == 0);
    CHECK(fake.err.str().find("Hetzner") == std::string::npos);  // where one is not signed in there is nothing to say
    world.cloud.variables["HCLOUD_TOKEN"] = "expired-token-expired";
    auto told = [&](const std::vector<std::string>& words, int code) {
        CHECK(fake.tnr(words) == code);
        INFO(fake.err.str());
        CHECK(fake.err.str().find("the token came from HCLOUD_TOKEN") != std::string::npos);
        CHECK(fake.err.str().find("not signed in there") == std::string::npos);
    };
    for (const char* command : {"status", "billing", "offers"}) told({command}, 4);
    told({"snapshot", "--list"}, 4);
    told({"delete", "other", "--yes"}, 4);
    CHECK(fake.document({"status"})["errors"][0]["about"] == "hetzner");
}

TEST_CASE("a machine at a cloud, from start to delete", "[cli][clouds]") {
    HetznerSession world;
    auto& session = world.session;
    world.sign_in("hetzner");
    world.fake.said();

    cli::StartOptions options{.name = "demo", .gpu = "h100", .provider = "hetzner", .region = "fsn1"};
    options.dry_run = true;
    REQUIRE(cli::start(session, options));
    const std::string plan = world.fake.said();
    CHECK(plan.find("cx23 in fsn1, 0.0064 EUR/h, 3.99 EUR a month") != std::string::npos);
    CHECK(world.cloud.ask("left") == json::array());

    options.dry_run = false;
    options.no_wait = true;
    REQUIRE(cli::start(session, options));
    CHECK(world.fake.said().find("'demo' is starting (machine: 0.0064 EUR/h); `tnr start demo`") == 0);
    CHECK(world.reached.empty());
    REQUIRE(cli::start(session, {.name = "demo"}));
    CHECK(world.reached == "192.0.2.10");
    CHECK(world.fake.said().find("1 x h100 (machine: 0.0064 EUR/h)") != std::string::npos);

    session.json = true;
    REQUIRE(cli::status(session));
    auto row = json::parse(world.fake.said())["machines"][0];
    CHECK(row["state"] == "running");
    CHECK(row["price"]["currency"] == "EUR");
    CHECK(row["price"]["per_hour"].get<double>() == Approx(0.0064));
    session.json = false;
    REQUIRE(cli::stop(session, {.names = {"demo"}}));
    REQUIRE(cli::start(session, {.name = "demo"}));
    REQUIRE(cli::delete_machines(session, {.names = {"demo"}, .yes = true}));
    CHECK(world.cloud.ask("left") == json::array());
}

TEST_CASE("a pool that a cloud's machine cannot reach is told before anything is made", "[cli][clouds]") {
    HetznerSession world;
    world.sign_in("hetzner");
    auto refused = cli::start(world.session,
                              {.name = "demo", .gpu = "h100", .pool = "tcp://127.0.0.1:14900", .provider = "hetzner"});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().what.find("the machine cannot reach it") != std::string::npos);
    CHECK(world.cloud.ask("left") == json::array());
}

TEST_CASE("a machine at DigitalOcean, from start to delete", "[cli][clouds]") {
    CloudSession world("digitalocean", "digitalocean_mock.py", "DIGITALOCEAN_API_URL", "");
    world.sign_in("digitalocean");
    REQUIRE(cli::start(world.session, {.name = "demo", .gpu = "h100", .provider = "digitalocean", .region = "fra1"}));
    CHECK(world.reached == "192.0.2.20");
    CHECK(world.fake.said().find("$0.03571/h") != std::string::npos);
    REQUIRE(cli::stop(world.session, {.names = {"demo"}}));
    REQUIRE(cli::delete_machines(world.session, {.names = {"demo"}, .yes = true}));
    CHECK(world.cloud.ask("left") == json::array());
}

namespace {

// From the plan to the end, with the record lost in between.
void live_through(CloudSession& world, const std::string& provider, const std::string& region, const std::string& plan,
                  const std::string& address) {
    cli::StartOptions options{.name = "demo", .gpu = "h100", .provider = provider, .region = region};
    options.dry_run = true;
    REQUIRE(cli::start(world.session, options));
    const std::string said = world.fake.said();
    INFO(said);
    CHECK(said.find(plan) != std::string::npos);
    CHECK(world.cloud.ask("left") == json::array());
    options.dry_run = false;
    REQUIRE(cli::start(world.session, options));
    CHECK(world.reached == address);
    REQUIRE(cli::stop(world.session, {.names = {"demo"}}));
    REQUIRE(cli::start(world.session, {.name = "demo"}));
    REQUIRE(world.session.records().remove("demo"));
    cli::DeleteOptions doomed{.names = {"demo"}, .yes = true};
    doomed.provider = provider;
    REQUIRE(cli::delete_machines(world.session, doomed));
    CHECK(world.cloud.ask("left") == json::array());
}

}  // namespace

TEST_CASE("a machine at Google, from the key file to delete by its tag", "[cli][clouds]") {
    CloudSession world("gcp", "gcp_mock.py", "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "/compute/v1/");
    auto& variables = world.cloud.variables;
    std::string url = variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"];
    url.resize(url.find("/compute"));
    variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBILLING"] = url;
    variables["NO_GCE_CHECK"] = "true";
    world.fake.in.str("");
    CHECK(cli::login_cloud(world.session, "gcp").error().kind == Error::Kind::usage);
    const std::string key = world.cloud.ask("key", {{"url", url}}).dump(2);  // on many lines, as Google writes it
    REQUIRE(write_file(world.cloud.folder / "key.json", key));
    world.session.in_is_terminal = true;  // where the file's name is asked for
    world.sign_in("gcp", (world.cloud.folder / "key.json").string() + "\n");
    world.fake.in.clear();
    world.fake.in.str("/no/such/file\n");
    CHECK(cli::login_cloud(world.session, "gcp").error().what.find("/no/such/file") != std::string::npos);
    world.session.in_is_terminal = false;
    world.fake.said();
    world.sign_in("gcp", key);
    CHECK(world.fake.said() == "Signed in to gcp: project my-project as tnr@my-project.iam.gserviceaccount.com\n");
    REQUIRE(cli::whoami(world.session, "gcp"));
    CHECK(world.fake.said().find("project my-project") != std::string::npos);
    live_through(world, "gcp", "us-central1", "e2-medium in us-central1, $0.04399/h", "192.0.2.30");
}

TEST_CASE("a machine at Azure, from the client secret to delete by its tag", "[cli][clouds]") {
    CloudSession world("azure", "azure_mock.py", "AZURE_RESOURCE_MANAGER_HOST", "");
    auto& variables = world.cloud.variables;
    variables["AZURE_AUTHORITY_HOST"] = variables["AZURE_RETAIL_PRICES_HOST"] =
        variables["AZURE_RESOURCE_MANAGER_HOST"];
    const std::string subscription = "00000000-1111-2222-3333-444444444444";
    world.sign_in("azure", "tenant-1\napp-1\nhidden-client-secret\n" + subscription + "\n");
    CHECK(world.fake.said() == "Signed in to azure: subscription Pay-As-You-Go (" + subscription + ")\n");
    REQUIRE(cli::whoami(world.session, "azure"));
    CHECK(world.fake.said().find("Pay-As-You-Go") != std::string::npos);
    live_through(world, "azure", "eastus", "Standard_B2s in eastus, $0.05318/h", "192.0.2.40");
}

TEST_CASE("an order that is refused leaves no machine, and start says what to do instead", "[cli][clouds]") {
    HetznerSession world;
    world.sign_in("hetzner");
    world.cloud.ask("knobs", {{"sold_out", {"cx23@fsn1"}}});
    auto refused = cli::start(world.session, {.name = "demo", .gpu = "h100", .provider = "hetzner", .region = "fsn1"});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().what.find("sold out") != std::string::npos);
    CHECK(refused.error().hint.find("nearest: cpx21 in fsn1") == 0);
    CHECK(refused.error().hint.find("no machine was made") != std::string::npos);
    CHECK(world.cloud.ask("left") == json::array());
}

TEST_CASE("an order whose reply got lost is found again by the next start", "[cli][clouds]") {
    HetznerSession world;
    world.sign_in("hetzner");
    world.cloud.fail_next({{"method", "POST"}, {"path", "/servers$"}, {"kind", "applied_reset"}});
    cli::StartOptions options{.name = "demo", .gpu = "h100", .provider = "hetzner"};
    auto lost = cli::start(world.session, options);
    REQUIRE_FALSE(lost);
    CHECK(lost.error().hint.find("may exist at provider hetzner") != std::string::npos);
    REQUIRE(cli::start(world.session, {.name = "demo"}));
    CHECK(world.cloud.count("POST", "/v1/servers") == 1);
    REQUIRE(cli::delete_machines(world.session, {.names = {"demo"}, .yes = true}));
    CHECK(world.cloud.ask("left") == json::array());
}

TEST_CASE("machines at a cloud are shown on a computer that did not make them", "[cli][clouds]") {
    HetznerSession world;
    world.sign_in("hetzner");
    REQUIRE(cli::start(world.session, {.name = "demo", .gpu = "h100", .provider = "hetzner"}));
    REQUIRE(world.session.records().remove("demo"));
    world.fake.said();
    REQUIRE(cli::status(world.session));
    CHECK(world.fake.said().find("demo") != std::string::npos);
    REQUIRE(cli::delete_machines(world.session, {.names = {"demo"}, .provider = "hetzner", .yes = true}));
    CHECK(world.cloud.ask("left") == json::array());
}

TEST_CASE("--explain shows what goes over the wire, without the token", "[cli][clouds]") {
    HetznerSession world;
    world.session.explain = true;
    world.sign_in("hetzner");
    const std::string shown = world.fake.err.str();
    CHECK(shown.find("> GET http://127.0.0.1:") != std::string::npos);
    CHECK(shown.find("/v1/servers?per_page=1") != std::string::npos);
    CHECK(shown.find(test::MockCloud::token) == std::string::npos);
    world.cloud.fail_next({{"path", "/servers$"}, {"status", 418}, {"body", {{"words", "\033[2J\u009b31m\u202e"}}}});
    CHECK(world.fake.tnr({"--explain", "whoami", "hetzner"}) == 1);
    CHECK(world.fake.err.str().find("\\302\\23331m") != std::string::npos);
    for (const char* obeyed : {"\033", "\u009b", "\u202e"})
        CHECK(world.fake.err.str().find(obeyed) == std::string::npos);
}
