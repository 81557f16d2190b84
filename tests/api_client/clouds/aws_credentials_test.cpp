// Where the keys for AWS come from: variables, profiles, roles, single sign-on, the machine's own role; regions and endpoints.
#include "api_client/providers/aws/container.hpp"
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
    cloud.variables["AWS_SECRET_ACCESS_KEY"] += "\n";  // which is no part of it
    cloud.variables["AWS_ACCESS_KEY_ID"] += "\n";
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
    cloud.write("config", "[profile nosuch]\nlogin_session = arn:aws:iam::123456789012:user/me\n");
    CHECK(cloud.whoami(cloud.standard()).find("aws configure export-credentials --profile nosuch") !=
          std::string::npos);
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
}

TEST_CASE("aws: a role may be taken with the help of another one", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsHome cloud;
    const std::string builder = cloud.keys["role_arn"], deployer = cloud.keys["deployer_arn"];
    cloud.write("credentials", "[base]\n" + cloud.own_keys("tester"));
    cloud.write("config", "[profile deployer]\nrole_arn = " + deployer +
                              "\nsource_profile = builder\nrole_session_name = laptop\nduration_seconds = 1800\n"
                              "region = eu-central-1\n[profile builder]\nrole_arn = " +
                              builder + "\nsource_profile = base\nregion = us-west-2\n[profile direct]\nrole_arn = " +
                              deployer + "\nsource_profile = base\n");
    cloud.variables["AWS_PROFILE"] = "deployer";
    CHECK(cloud.whoami(cloud.standard()) ==
          "arn:aws:sts::123456789012:assumed-role/deployer/laptop in account "
          "123456789012, region eu-central-1");
    CHECK(cloud.count("POST", "/sts/eu-central-1/AssumeRole") == 2);
    CHECK(cloud.explained.find("DurationSeconds=1800") != std::string::npos);
    CHECK(cloud.open(*cloud.standard())->machines());
    cloud.variables["AWS_PROFILE"] = "direct";
    CHECK(cloud.whoami(cloud.standard()).find("not authorized to perform: sts:AssumeRole") != std::string::npos);
    // A circle, and more steps than anybody has.
    cloud.write("config",
                "[profile a]\nrole_arn = r\nsource_profile = b\n[profile b]\nrole_arn = r\nsource_profile = a\n");
    cloud.variables["AWS_PROFILE"] = "a";
    CHECK(cloud.whoami(cloud.standard()).find("profile 'a' of ~/.aws takes a role, and neither") == 0);
    // A source that has keys is what they say, whatever else stands there.
    cloud.write("credentials", "[b]\n" + cloud.own_keys("tester"));
    cloud.write("config", "[profile a]\nrole_arn = " + builder +
                              "\nsource_profile = b\n[profile b]\nrole_arn = r\nsource_profile = a\n");
    CHECK(cloud.whoami(cloud.standard()).find(std::string(role_prefix) + "tnr") == 0);
}

TEST_CASE("aws: a token that somebody else has signed is exchanged for a role", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsHome cloud;
    const std::string file = cloud.folder / "web-token";
    cloud.variables["AWS_WEB_IDENTITY_TOKEN_FILE"] = file;
    CHECK_FALSE(cloud.standard());  // for which role?
    cloud.variables["AWS_ROLE_ARN"] = cloud.keys["role_arn"];
    CHECK(cloud.standard()->source == "AWS_WEB_IDENTITY_TOKEN_FILE");
    CHECK(cloud.whoami(cloud.standard()).find("there is no token in " + file) == 0);
    test::write_text(file, "web.identity-token.0123456789\n");
    CHECK(cloud.whoami(cloud.standard()).find(std::string(role_prefix) + "tnr") == 0);
    cloud.variables["AWS_ROLE_SESSION_NAME"] = "ci-7";
    CHECK(cloud.whoami(cloud.standard()).find(std::string(role_prefix) + "ci-7") == 0);
    CHECK(cloud.open(*cloud.standard())->machines());
    CHECK(cloud.explained.find("identity-token") == std::string::npos);
    test::write_text(file, "web.identity-token.of-yesterday");
    auto refused = cloud.open(*cloud.standard())->whoami();
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == Error::Kind::auth);
    CHECK(refused.error().hint.find("AWS_WEB_IDENTITY_TOKEN_FILE") != std::string::npos);
    // The profile that is asked for comes first, and may name such a file itself; its role helps with another one.
    test::write_text(file, "web.identity-token.0123456789");
    cloud.variables["AWS_PROFILE"] = "deployer";
    CHECK(cloud.whoami(cloud.standard()) == "profile 'deployer' of ~/.aws does not exist");
    cloud.write("config", "[profile deployer]\nrole_arn = " + cloud.keys["deployer_arn"].get<std::string>() +
                              "\nsource_profile = ci\n[profile ci]\nrole_arn = " +
                              cloud.keys["role_arn"].get<std::string>() + "\nweb_identity_token_file = " + file + "\n");
    CHECK(cloud.whoami(cloud.standard()).find("assumed-role/deployer/tnr in account") != std::string::npos);
}

TEST_CASE("aws: a role that asks for a code is had from what AWS's own tool keeps", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsHome cloud;
    std::filesystem::create_directories(cloud.folder / ".aws/cli/cache");
    cloud.write("credentials", "[base]\n" + cloud.own_keys("tester"));
    const std::string builder = cloud.keys["role_arn"];
    cloud.write("config", "[profile work]\nrole_arn = " + builder +
                              "\nsource_profile = base\nmfa_serial = arn:aws:iam::123456789012:mfa/me\n"
                              "[profile deployer]\nrole_arn = " +
                              cloud.keys["deployer_arn"].get<std::string>() + "\nsource_profile = work\n");
    cloud.variables["AWS_PROFILE"] = "work";
    auto refused = [&] {
        auto who = cloud.open(*cloud.standard())->whoami();
        REQUIRE_FALSE(who);
        CHECK(who.error().kind == Error::Kind::auth);
        CHECK(who.error().what.find("asks for a code (mfa_serial)") != std::string::npos);
        return who.error().hint;
    };
    const std::string what_to_run =
        "run `aws sts get-caller-identity --profile work`, which asks for the code and keeps them";
    CHECK(refused() == what_to_run);
    // As AWS's tool writes it.
    auto keep = [&](const std::string& arn, const std::string& expires) {
        const json role = cloud.keys["role"];
        cloud.write("cli/cache/40f5b1.json", json{{"Credentials",
                                                   {{"AccessKeyId", role["id"]},
                                                    {"SecretAccessKey", role["secret"]},
                                                    {"SessionToken", role["token"]},
                                                    {"Expiration", expires}}},
                                                  {"AssumedRoleUser", {{"AssumedRoleId", "AROA:s"}, {"Arn", arn}}},
                                                  {"ResponseMetadata", json::object()}}
                                                 .dump());
    };
    const std::string builder_session = "arn:aws:sts::123456789012:assumed-role/builder/botocore-session-1";
    keep(builder_session, "2026-01-02T03:04:00UTC");
    CHECK(refused() == what_to_run);  // no longer good
    keep("arn:aws:sts::999999999999:assumed-role/builder/botocore-session-1", "2026-01-02T04:00:00UTC");
    CHECK(refused() == what_to_run);  // of another account
    keep("arn:aws:sts::123456789012:assumed-role/builders/botocore-session-1", "2026-01-02T04:00:00UTC");
    CHECK(refused() == what_to_run);
    keep(builder_session, "2026-01-02T04:00:00UTC");
    CHECK(cloud.whoami(cloud.standard()).find(std::string(role_prefix) + "mock") == 0);
    CHECK(cloud.open(*cloud.standard())->machines());
    cloud.variables["AWS_PROFILE"] = "deployer";  // for which no code is asked
    CHECK(cloud.whoami(cloud.standard()).find("assumed-role/deployer/tnr in account") != std::string::npos);
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

TEST_CASE("aws: a session of single sign-on renews its token, and keeps the new one for all tools", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsHome cloud;
    cloud.write("config",
                "[profile dev]\nsso_session = us\nsso_account_id = 123456789012\nsso_role_name = builder\n"
                "[sso-session us]\nsso_region = eu-central-1\nsso_start_url = https://us.awsapps.com/start\n"
                "sso_registration_scopes = sso:account:access\n");
    cloud.variables["AWS_PROFILE"] = "dev";
    const std::string name = "sso/cache/b5e2.json";
    json token = {{"startUrl", "https://us.awsapps.com/start"},
                  {"region", "eu-central-1"},
                  {"accessToken", "sso-token-of-yesterday"},
                  {"expiresAt", "2026-01-02T03:00:00Z"},
                  {"clientId", "sso-client"},
                  {"clientSecret", "sso-client-secret"},
                  {"registrationExpiresAt", "2026-03-01T00:00:00Z"},
                  {"refreshToken", "sso-refresh-token-0"}};
    auto kept = [&] { return json::parse(tnr::small_file(cloud.folder / ".aws" / name)); };
    auto whoami = [&](const json& stored) {
        cloud.write(name, stored.dump());
        return cloud.whoami(cloud.standard());
    };
    const std::string me = std::string(role_prefix) + "mock in account 123456789012, region us-east-1";
    CHECK(whoami(token) == me);
    CHECK(kept()["accessToken"] == "sso-token-renewed-1");
    CHECK(kept()["expiresAt"] == "2026-01-02T04:04:05Z");
    CHECK(kept()["refreshToken"] == "sso-refresh-token-1");  // the one before is used up
    CHECK(kept()["clientSecret"] == "sso-client-secret");
    CHECK((std::filesystem::status(cloud.folder / ".aws" / name).permissions() & std::filesystem::perms::mask) ==
          std::filesystem::perms(0600));
    CHECK(cloud.whoami(cloud.standard()) == me);  // it is good for an hour
    CHECK(cloud.count("POST", "/oidc/any/CreateToken") == 1);
    cloud.now = "2026-01-02T03:55:00Z";  // the hour is nearly over
    CHECK(cloud.whoami(cloud.standard()) == me);
    CHECK(kept()["accessToken"] == "sso-token-renewed-2");
    for (const char* secret : {"sso-refresh-token", "sso-client-secret", "sso-token"})
        CHECK(cloud.explained.find(secret) == std::string::npos);
    // AWS is out of order: a token that is still good will do, one that is not does not become a wrong sign-in.
    json stored = kept();
    cloud.now = "2026-01-02T04:50:00Z";
    cloud.fail_next({{"path", "/oidc/"}, {"status", 503}, {"times", 9}});
    CHECK(whoami(stored) == me);
    cloud.now = "2026-01-02T06:00:00Z";
    CHECK(whoami(stored).find("cannot renew your sign-in now (status 503)") != std::string::npos);
    cloud.ask("knobs", {{"no_faults", true}});
    // What cannot be renewed.
    const std::string expired = "your sign-in at AWS's sign-in page has expired";
    stored["refreshToken"] = "sso-refresh-token-0";
    CHECK(whoami(stored) == expired);
    CHECK(kept() == stored);
    // Another program has renewed it a moment ago, and so has used the refresh token up.
    const auto explain = cloud.world.http.explain;
    cloud.world.http.explain = [&](const std::string& line) {
        json fresh = stored;
        fresh["accessToken"] = "sso-token-0123456789";
        fresh["expiresAt"] = "2026-01-02T07:00:00Z";
        if (line.find("/token") != std::string::npos) cloud.write(name, fresh.dump());
        explain(line);
    };
    CHECK(whoami(stored) == me);
    cloud.world.http.explain = explain;
    stored["refreshToken"] = "sso-refresh-token-2";
    stored["registrationExpiresAt"] = "2026-01-02T05:00:00Z";
    CHECK(whoami(stored) == expired);
    stored["registrationExpiresAt"] = "2026-03-01T00:00:00Z";
    CHECK(whoami(stored) == me);
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

TEST_CASE("aws: a container's role is told by the service beside it", "[clouds][aws]") {
    if (!AwsMock::is_there()) return;
    AwsHome cloud;
    auto ambient = find_cloud("aws")->ambient;
    auto& variables = cloud.variables;
    const std::string me = std::string(role_prefix) + "mock in account 123456789012, region us-west-2",
                      service = variables["AWS_ENDPOINT_URL"] + "/v2/credentials/builder",
                      token = "container-token-0123456789";
    variables["AWS_REGION"] = "us-west-2";
    variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = service;
    SECTION("its token comes from a variable, or from a file that is read each time") {
        variables["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = token;
        REQUIRE(ambient(cloud.world));
        CHECK(ambient(cloud.world)->source == "the role of this container");
        CHECK(cloud.whoami(ambient(cloud.world)) == me);
        variables["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = cloud.folder / ".aws/token";
        CHECK(cloud.whoami(ambient(cloud.world)).find("there is no token in ") != std::string::npos);
        cloud.write("token", "an-older-one");
        CHECK(cloud.whoami(ambient(cloud.world)).find("refuses with status 401") != std::string::npos);
        cloud.write("token", token + "\n");
        CHECK(cloud.whoami(ambient(cloud.world)) == me);
        CHECK(cloud.explained.find(token) == std::string::npos);
    }
    SECTION("before that of the machine, after all that the user has set; a profile may ask for it") {
        variables["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = token;
        variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = variables["AWS_ENDPOINT_URL"];
        CHECK(ambient(cloud.world)->source == "the role of this container");
        cloud.write("config", "[default]\nrole_arn = " + cloud.keys["deployer_arn"].get<std::string>() +
                                  "\ncredential_source = EcsContainer\n");
        CHECK(cloud.whoami(cloud.standard()).find("assumed-role/deployer/tnr") != std::string::npos);
        variables.erase("AWS_CONTAINER_CREDENTIALS_FULL_URI");
        CHECK(cloud.whoami(cloud.standard()).find("takes a role, and neither") != std::string::npos);
    }
    SECTION("the short address is one of ECS, and counts alone") {
        variables["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/v2/credentials/x";
        CHECK(ambient(cloud.world)->values["container"] == "http://169.254.170.2/v2/credentials/x");
    }
    SECTION("no address but this computer's, or one of https, is told the token") {
        variables["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = token;
        for (const char* elsewhere :
             {"http://192.0.2.7/keys", "http://169.254.170.2@192.0.2.7/", "http://169.254.170.2:80@192.0.2.7/",
              "http://169.254.170.20/", "http://[fd00:ec2::24]/", "ftp://127.0.0.1/", "127.0.0.1/keys",
              "http://169.254.170.2.example/"}) {
            variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = elsewhere;
            INFO(elsewhere);
            CHECK(cloud.whoami(ambient(cloud.world)).find("may not be asked") != std::string::npos);
        }
        for (const char* beside :
             {"http://169.254.170.2/", "http://169.254.170.23:80/v1/credentials",
              "http://[fd00:ec2::23]/v1/credentials", "http://localhost:1/", "http://[::1]:1/", "https://192.0.2.7:1/"})
            CHECK(aws::may_tell_container_token(beside));
    }
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
