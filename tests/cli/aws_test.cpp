// AWS from the command line: what it would cost, a machine from start to delete, one that this computer knows nothing of.
#include "cli/clouds.hpp"
#include "tests/api_client/clouds/aws_world.hpp"
#include "tests/cli/fakes.hpp"

using namespace tnr;
using nlohmann::json;

namespace {

// The real driver and sessions as main() makes them, but for the pool and what happens on the machine.
struct AwsSession {
    test::FakeSession fake;
    test::AwsMock cloud;

    AwsSession() {
        auto& session = fake.session;
        session.world = cloud.world;
        session.provider_names = {"aws"};
        session.provider = [this](const std::string& name) { return cli::open_provider(fake.session, name); };
        auto server = wire::make_key_pair(), own = wire::make_key_pair();
        (void)session.logins().save({"tcp://gpu.example:14900", {server.public_key, own}});
    }
    int login(const std::string& answers) {
        fake.in.clear();
        fake.in.str(answers);
        return fake.tnr({"login", "aws"});
    }
    void sign_in() {
        REQUIRE(login(cloud.keys["tester"]["id"].get<std::string>() + "\n" +
                      cloud.keys["tester"]["secret"].get<std::string>() + "\n\neu-central-1\n") == 0);
    }
};

bool contains(const std::ostringstream& said, const std::string& part) {
    INFO(said.str());
    return said.str().find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("tnr login aws asks for keys, of which some may be empty, and for the region", "[cli][clouds][aws]") {
    if (!test::AwsMock::is_there()) return;
    AwsSession world;
    world.cloud.variables.erase("AWS_REGION");
    CHECK(world.fake.tnr({"whoami", "aws"}) == 4);
    CHECK(world.login("AKIAWRONG\nwrong-secret-wrong\n\n\n") == 4);
    CHECK(world.login("AKIAWRONG\n\n\n\n") == 2);
    world.sign_in();
    CHECK(world.fake.tnr({"whoami", "aws"}) == 0);
    CHECK(
        contains(world.fake.out, "arn:aws:iam::123456789012:user/tester in account 123456789012, region eu-central-1"));
    CHECK(contains(world.fake.out, "`tnr login aws`"));
    const json role = world.cloud.keys["role"];
    CHECK(world.login(role["id"].get<std::string>() + "\n" + role["secret"].get<std::string>() + "\n" +
                      role["token"].get<std::string>() + "\n") == 0);
    CHECK(contains(world.fake.out, "assumed-role/builder/mock"));
    CHECK(world.fake.tnr({"login", "aws", "--help"}) == 0);
    CHECK(contains(world.fake.out, "access key id, secret access key, session token (may be empty)"));
    CHECK(world.fake.tnr({"logout", "aws"}) == 0);
    // The role of the machine that tnr runs on is what is left.
    world.cloud.variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = world.cloud.variables["AWS_ENDPOINT_URL"];
    CHECK(world.fake.tnr({"whoami", "aws"}) == 0);
    CHECK(contains(world.fake.out, "the role of this machine"));
}

TEST_CASE("tnr start at AWS says what it costs before, and delete leaves nothing", "[cli][clouds][aws]") {
    if (!test::AwsMock::is_there()) return;
    AwsSession world;
    world.sign_in();
    CHECK(world.fake.tnr({"start", "demo", "--gpu", "h100", "--provider", "aws", "--dry-run"}) == 0);
    CHECK(contains(world.fake.out, "t3.medium in us-east-1, $0.05098/h, $37.22 a month"));
    CHECK(world.fake.tnr(
              {"start", "demo", "--gpu", "h100", "--provider", "aws", "--region", "eu-central-1", "--dry-run"}) == 0);
    CHECK(contains(world.fake.out, "t3.medium in eu-central-1, $0.05788/h"));
    CHECK(world.fake.tnr({"start", "demo", "--gpu", "h100", "--provider", "aws", "--region", "mars-1", "--dry-run"}) ==
          2);
    CHECK(contains(world.fake.err, "regions: eu-central-1, us-east-1, us-west-2"));
    CHECK(world.cloud.ask("left") == json::array());

    CHECK(world.fake.tnr({"start", "demo", "--gpu", "h100", "--provider", "aws", "--no-wait"}) == 0);
    const json row = world.fake.document({"status"})["machines"][0];
    CHECK(row["name"] == "demo");
    CHECK(row["provider"] == "aws");
    CHECK(row["price"]["per_hour"].get<double>() == Approx(0.0416 + 0.005 + 40 * 0.08 / 730));
    CHECK(world.fake.tnr({"delete", "demo", "--yes"}) == 0);
    CHECK(world.cloud.ask("left") == json::array());
}

TEST_CASE("tnr delete finds a machine at AWS by its tag, in whatever region", "[cli][clouds][aws]") {
    if (!test::AwsMock::is_there()) return;
    AwsSession world;
    world.sign_in();
    CHECK(world.fake.tnr(
              {"start", "demo", "--gpu", "h100", "--provider", "aws", "--region", "eu-central-1", "--no-wait"}) == 0);
    REQUIRE(world.fake.session.records().remove("demo"));
    CHECK(world.fake.tnr({"delete", "demo", "--provider", "aws", "--yes"}) == 0);
    CHECK(world.cloud.ask("left") == json::array());
}
