// Where the keys for AWS come from: variables, profiles, roles, single sign-on, the machine's own role; regions and endpoints.
#include "api_client/providers/aws/profiles.hpp"
#include "api_client/tool_files.hpp"
#include "aws_world.hpp"
#include "tests/api_client/world.hpp"

using namespace tnr;
using namespace tnr::test;
using nlohmann::json;

namespace {

constexpr const char* role_prefix = "arn:aws:sts::123456789012:assumed-role/builder/";

struct AwsHome : AwsMock {
    AwsHome() {
        std::filesystem::create_directories(folder / ".aws/sso/cache");
        variables.erase("AWS_REGION");
    }
    void write(const std::string& name, const std::string& text) { test::write_text(folder / ".aws" / name, text); }
    std::string whoami(const std::optional<Credentials>& credentials) {
        REQUIRE(credentials);
        auto who = open(*credentials)->whoami();
        return who ? *who : who.error().what;
    }
    std::optional<Credentials> standard() { return find_cloud("aws")->standard(world); }
    std::string own_keys(const std::string& who) const {
        return "aws_access_key_id = " + keys[who]["id"].get<std::string>() +
               "\naws_secret_access_key=" + keys[who]["secret"].get<std::string>() + "\n";
    }
    void sso_token(const std::string& text, const std::string& expires) {
        write("sso/cache/0123.json", json{{"startUrl", "https://us.awsapps.com/start"},
                                          {"region", "eu-central-1"},
                                          {"accessToken", text},
                                          {"expiresAt", expires}}
                                         .dump());
    }
};

}  // namespace

TEST_CASE("aws: variables come before the profile, and the profile that is asked for counts", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsHome cloud;
    CHECK_FALSE(cloud.standard());
    cloud.write("credentials",
                "# mine\n[default]\n" + cloud.own_keys("nobody") + "[ work ]\n" + cloud.own_keys("tester"));
    cloud.write("config", "[default]\nregion = us-west-2\n[profile work]\nregion=eu-central-1\n");
    CHECK(cloud.standard()->source == "profile default of ~/.aws");
    CHECK(cloud.whoami(cloud.standard()) ==
          "arn:aws:iam::123456789012:user/nobody in account 123456789012, region us-west-2");
    cloud.variables["AWS_PROFILE"] = "work";
    CHECK(cloud.whoami(cloud.standard()) ==
          "arn:aws:iam::123456789012:user/tester in account 123456789012, region eu-central-1");
    cloud.variables["AWS_REGION"] = "us-east-1";
    CHECK(cloud.whoami(cloud.standard()).find("region us-east-1") != std::string::npos);
    cloud.variables["AWS_ACCESS_KEY_ID"] = cloud.keys["role"]["id"];
    cloud.variables["AWS_SECRET_ACCESS_KEY"] = cloud.keys["role"]["secret"];
    cloud.variables["AWS_SESSION_TOKEN"] = cloud.keys["role"]["token"];
    CHECK(cloud.standard()->source == "AWS_ACCESS_KEY_ID");
    CHECK(cloud.whoami(cloud.standard()).find(std::string(role_prefix) + "mock") == 0);
    CHECK(cloud.open(*cloud.standard())->machines());
    cloud.variables["AWS_SESSION_TOKEN"] = "another-token-another-token";
    CHECK(cloud.open(*cloud.standard())->machines().error().kind == Error::Kind::auth);
    cloud.variables.erase("AWS_ACCESS_KEY_ID");
    // What was asked for by its name is not replaced by another account.
    cloud.variables["AWS_PROFILE"] = "nosuch";
    CHECK(cloud.whoami(cloud.standard()) == "profile 'nosuch' of ~/.aws does not exist");
    CHECK(cloud.open(*cloud.standard())->whoami().error().kind == Error::Kind::auth);
    cloud.write("config", "[profile nosuch]\nregion = us-west-2\n");
    CHECK(cloud.whoami(cloud.standard()) == "profile 'nosuch' of ~/.aws has no keys, sign-in page or program");
}

TEST_CASE("aws: what `tnr login` stores has a region, and none of it is us-east-1", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsHome cloud;
    Credentials stored{
        {{"access_key_id", cloud.keys["tester"]["id"]}, {"secret_access_key", cloud.keys["tester"]["secret"]}},
        "`tnr login aws`"};
    CHECK(cloud.whoami(stored).find("region us-east-1") != std::string::npos);
    stored.values["region"] = "eu-central-1";
    CHECK(cloud.whoami(stored).find("region eu-central-1") != std::string::npos);
}

TEST_CASE("aws: a profile may take a role with the keys of another one", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsHome cloud;
    cloud.write("credentials", "[base]\n" + cloud.own_keys("tester") + "[circle]\nrole_arn=r\nsource_profile=circle\n");
    cloud.write("config", "[profile builder]\nrole_arn = " + cloud.keys["role_arn"].get<std::string>() +
                              "\nsource_profile = base\nregion = us-west-2\n");
    cloud.variables["AWS_PROFILE"] = "builder";
    CHECK(cloud.whoami(cloud.standard()).find(std::string(role_prefix) + "tnr in account") == 0);
    CHECK(cloud.open(*cloud.standard())->machines());
    const std::string neither = "neither its source_profile nor its credential_source has keys that tnr finds";
    cloud.variables["AWS_PROFILE"] = "circle";
    CHECK(cloud.whoami(cloud.standard()) == "profile 'circle' of ~/.aws takes a role, and " + neither);
    cloud.variables.erase("AWS_PROFILE");
    cloud.write("config", "[default]\nrole_arn = r\nsource_profile = gone\n");
    CHECK(cloud.whoami(cloud.standard()) == "profile 'default' of ~/.aws takes a role, and " + neither);
    cloud.write("config", "[default]\nrole_arn = r\nsource_profile = base\nmfa_serial = arn:aws:iam::1:mfa/me\n");
    CHECK(cloud.whoami(cloud.standard()).find("asks for a code (mfa_serial)") != std::string::npos);
}

TEST_CASE("aws: a profile may name a program that prints keys", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsHome cloud;
    const json role = cloud.keys["role"];
    json printed = {{"Version", 1},
                    {"AccessKeyId", role["id"]},
                    {"SecretAccessKey", role["secret"]},
                    {"SessionToken", role["token"]}};
    auto prints = [&](const std::string& then) {
        cloud.write("printed", printed.dump());
        cloud.write("config", "[default]\nregion=eu-central-1\ncredential_process = sh -c 'cat \"" +
                                  (cloud.folder / ".aws/printed").string() + "\"; " + then + "'\n");
        return cloud.whoami(cloud.standard());
    };
    CHECK(prints("echo what helpers say >/dev/null").find(std::string(role_prefix) + "mock") == 0);
    CHECK(prints("exit 3").find("ended with code 3") != std::string::npos);
    CHECK(prints("kill -9 $$").find("credential_process of ~/.aws/config") != std::string::npos);
    printed["Expiration"] = "2001-01-01T00:00:00Z";
    CHECK(prints("true").find("expired at 2001-01-01T00:00:00Z") != std::string::npos);
    printed = {{"Version", 2}, {"AccessKeyId", "not-shown-not-shown"}};
    CHECK(prints("true").find("did not print keys") != std::string::npos);
    CHECK(prints("true").find("not-shown") == std::string::npos);
    cloud.write("credentials", "[default]\n" + cloud.own_keys("tester"));
    CHECK(cloud.whoami(cloud.standard()).find("user/tester") != std::string::npos);  // plain keys come first
}

TEST_CASE("aws: single sign-on's cached token is exchanged for keys", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsHome cloud;
    cloud.write("config",
                "[profile dev]\nsso_session = us\nsso_account_id = 123456789012\nsso_role_name = builder\n"
                "[sso-session us]\nsso_region = eu-central-1\nsso_start_url = https://us.awsapps.com/start\n");
    cloud.variables["AWS_PROFILE"] = "dev";
    REQUIRE(cloud.standard());
    auto refused = [&] {
        auto who = cloud.open(*cloud.standard())->whoami();
        REQUIRE_FALSE(who);
        CHECK(who.error().kind == Error::Kind::auth);
        CHECK(who.error().hint == "run `aws sso login --profile dev`");
        return who.error().what;
    };
    CHECK(refused() == "you have not signed in at AWS's sign-in page yet");
    cloud.sso_token("sso-token-0123456789", "2026-01-02T03:00:00Z");
    CHECK(refused() == "your sign-in at AWS's sign-in page has expired");
    cloud.sso_token("sso-token-of-yesterday", "2026-01-02T04:00:00Z");
    CHECK(refused() == "AWS's sign-in page does not know your sign-in any more");
    cloud.sso_token("sso-token-0123456789", "2026-01-02T04:00:00Z");
    CHECK(cloud.whoami(cloud.standard()).find(std::string(role_prefix) + "mock") == 0);
    CHECK(cloud.open(*cloud.standard())->machines());
    CHECK(cloud.explained.find("sso-token-0123456789") == std::string::npos);
}

TEST_CASE("aws: the role of the machine that tnr runs on is asked last, and not waited for elsewhere",
          "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsHome cloud;
    auto ambient = find_cloud("aws")->ambient;
    cloud.variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = cloud.variables["AWS_ENDPOINT_URL"];
    CHECK(cloud.whoami(ambient(cloud.world)) ==
          std::string(role_prefix) + "mock in account 123456789012, region us-west-2");
    CHECK(cloud.count("PUT", "/metadata/latest/api/token") == 1);
    cloud.fail_next({{"path", "/metadata/latest/meta-data/iam"}, {"status", 404}});
    CHECK(cloud.open(*ambient(cloud.world))->whoami().error().what == "this machine has no role at AWS");
    cloud.variables["AWS_EC2_METADATA_DISABLED"] = "true";
    CHECK_FALSE(ambient(cloud.world));
}

TEST_CASE("aws: endpoints come from variables, then from the profile", "[aws]") {
    const std::string home = std::filesystem::temp_directory_path() / "tnr-aws-nowhere";
    std::map<std::string, std::string> variables = {{"AWS_CONFIG_FILE", home + ".config"}};
    CloudWorld world;
    world.home = home;
    world.variable = [&](const std::string& name) { return variables[name]; };
    test::write_text(
        home + ".config",
        "[default]\nendpoint_url = https://all.example/\nservices = lab\n"
        "[services lab]\nec2 =\n  endpoint_url = https://ec2.example\nsts =\n  endpoint_url = https://sts.example\n");
    auto found = aws::configured_endpoints(world);
    CHECK(found["ec2"] == "https://ec2.example");
    CHECK(found["sts"] == "https://sts.example");
    CHECK(found["pricing"] == "https://all.example");
    variables["AWS_ENDPOINT_URL"] = "https://proxy.example";
    variables["AWS_ENDPOINT_URL_COST_EXPLORER"] = "https://ce.example/";
    found = aws::configured_endpoints(world);
    CHECK(found["ec2"] == "https://proxy.example");
    CHECK(found["ce"] == "https://ce.example");
    variables["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"] = "true";
    CHECK(aws::configured_endpoints(world).empty());
    std::filesystem::remove(home + ".config");
}

TEST_CASE("aws: settings below another one belong to it", "[aws]") {
    auto sections =
        tnr::sections_of("[a]\nx=1 # no comment\n;no\ns3 =\n  deep = 2\n\ty = 3\nz = = 4\nno equals\n[b c]\nX = 5");
    CHECK(sections["a"] == tnr::Section{{"x", "1 # no comment"}, {"s3.deep", "2"}, {"s3.y", "3"}, {"z", "= 4"}});
    CHECK(sections["b c"] == tnr::Section{{"x", "5"}});
    CHECK(tnr::sections_of("[").size() == 0);
}
