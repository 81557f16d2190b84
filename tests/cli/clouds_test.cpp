// Signing in to a cloud, and a machine there from `start` to `delete`, with the real driver and a mock of the cloud.
#include "cli/clouds.hpp"

#include <sys/stat.h>

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
    void sign_in(const std::string& name) {
        fake.in.clear();
        fake.in.str(std::string(test::MockCloud::token) + "\n");
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

TEST_CASE("where a cloud has GPUs of its own, start says so before it orders one", "[cli][clouds]") {
    CloudSession world("thunder", "thunder_mock.py", "TNR_API_URL", "/v1");
    world.sign_in("thunder");
    auto refused = cli::start(world.session, {.name = "demo", .gpu = "h100", .provider = "thunder"});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == Error::Kind::usage);
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
}
