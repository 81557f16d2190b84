// Who has no key of Google's: another provider's token, or another identity's word, is exchanged for one of Google's.
#include "gcp_world.hpp"
#include "tests/api_client/world.hpp"

using namespace tnr;
using namespace tnr::test;
using nlohmann::json;

namespace {

struct FederatedWorld : GcpWorld {
    FederatedWorld() { variables["GOOGLE_CLOUD_PROJECT"] = "my-project"; }
    ~FederatedWorld() { CHECK(explained.find("hidden-") == std::string::npos); }

    json file_of(const json& source, const std::string& provider = "by-account") {
        return ask("federated", {{"url", url}, {"source", source}, {"provider", provider}});
    }
    // As the driver finds it in GOOGLE_APPLICATION_CREDENTIALS.
    Result<std::string> whoami(const json& credentials) {
        test::write_text(folder / "credentials.json", credentials.dump(2));
        variables["GOOGLE_APPLICATION_CREDENTIALS"] = folder / "credentials.json";
        auto gcp = find_cloud("gcp");
        return gcp->make(*gcp->standard(world), world)->whoami();
    }
    std::string refusal(const json& credentials) {
        auto who = whoami(credentials);
        REQUIRE_FALSE(who);
        CHECK(who.error().kind == Error::Kind::auth);
        CHECK(who.error().hint.find("GOOGLE_APPLICATION_CREDENTIALS") != std::string::npos);
        return who.error().what;
    }
};

constexpr const char* as_account = "project my-project as tnr@my-project.iam.gserviceaccount.com";

}  // namespace

TEST_CASE("gcp: another provider's token in a file is exchanged for one of Google's", "[clouds][gcp]") {
    FederatedWorld cloud;
    const auto subject = cloud.folder / "subject";
    const json source = {{"file", subject.string()}};
    CHECK(cloud.refusal(cloud.file_of(source)) == "Google: there is no token in what " + subject.string() + " holds");
    test::write_text(subject, "hidden-subject-token\n");
    CHECK(*cloud.whoami(cloud.file_of(source, "direct")) == "project my-project");
    CHECK(cloud.count("POST", "/sts/v1/token") == 1);
    CHECK(*cloud.whoami(cloud.file_of(source)) == as_account);
    const json in_json = {{"file", subject.string()},
                          {"format", {{"type", "json"}, {"subject_token_field_name", "id_token"}}}};
    CHECK(cloud.refusal(cloud.file_of(in_json)).find("there is no token") != std::string::npos);
    test::write_text(subject, json{{"id_token", "hidden-subject-token"}}.dump());
    CHECK(*cloud.whoami(cloud.file_of(in_json)) == as_account);
    test::write_text(subject, json{{"id_token", "hidden-old-token"}}.dump());
    CHECK(cloud.refusal(cloud.file_of(in_json)) ==
          "Google does not take these credentials: The ID Token (hidden) issued by https://idp.example has expired.");
}

TEST_CASE("gcp: another provider's token is asked for at an address", "[clouds][gcp]") {
    FederatedWorld cloud;
    json source = {{"url", cloud.url + "/subject"},
                   {"headers", {{"Authorization", "Bearer hidden-request-token"}}},
                   {"format", {{"type", "json"}, {"subject_token_field_name", "value"}}}};
    CHECK(*cloud.whoami(cloud.file_of(source)) == as_account);
    source["format"]["subject_token_field_name"] = "count";  // no text
    CHECK(cloud.refusal(cloud.file_of(source)).find("there is no token in what " + cloud.url) != std::string::npos);
    source["headers"] = {{"Authorization", "Bearer hidden-wrong-token"}};
    CHECK(cloud.refusal(cloud.file_of(source)).find("says 401") != std::string::npos);
    source["url"] = "http://idp.example/subject";  // a network would be shown the token
    CHECK(cloud.whoami(cloud.file_of(source)).error().kind == Error::Kind::usage);
}

TEST_CASE("gcp: ways to federate that are not there are named", "[clouds][gcp]") {
    FederatedWorld cloud;
    auto way = [&](const json& source) { return cloud.refusal(cloud.file_of(source)); };
    CHECK(way({{"executable", {{"command", "/bin/true"}}}}).find("whose token comes from a program") !=
          std::string::npos);
    CHECK(way({{"environment_id", "aws1"}}).find("from AWS's keys are not supported") != std::string::npos);
    CHECK(way({{"certificate", json::object()}}).find("by a certificate") != std::string::npos);
    CHECK(way(json::array()).find("from nowhere") != std::string::npos);
    CHECK(cloud.refusal({{"type", "gdch_service_account"}}).find("'gdch_service_account'") != std::string::npos);
}

TEST_CASE("gcp: a service account on whose behalf one acts, and who is signed in as one of a workforce",
          "[clouds][gcp]") {
    FederatedWorld cloud;
    json user = cloud.ask("key");
    user["token_uri"] = cloud.url + "/token";
    const json behalf = {{"type", "impersonated_service_account"},
                         {"delegates", json::array()},
                         {"service_account_impersonation_url",
                          cloud.url + "/iam/v1/projects/-/serviceAccounts/tnr@my-project.iam.gserviceaccount.com:"
                                      "generateAccessToken"},
                         {"source_credentials", user}};
    CHECK(cloud.refusal(behalf).find("Permission 'iam.serviceAccounts.getAccessToken' denied") != std::string::npos);
    cloud.ask("knobs", {{"impersonator", std::string("Bearer ") + MockCloud::token}});
    CHECK(*cloud.whoami(behalf) == as_account);
    json nested = behalf;
    nested["source_credentials"] = behalf;
    CHECK(cloud.refusal(nested).find("'nested'") != std::string::npos);
    nested["source_credentials"] = 7;
    CHECK(cloud.refusal(nested).find("there is no key") != std::string::npos);

    json workforce = {{"type", "external_account_authorized_user"},
                      {"token_url", cloud.url + "/sts/v1/token"},
                      {"refresh_token", "hidden-refresh-token"},
                      {"client_id", "client-0"},
                      {"client_secret", "hidden-client-secret"}};
    CHECK(*cloud.whoami(workforce) == "project my-project");
    workforce["client_secret"] = "hidden-other-secret";
    CHECK(cloud.refusal(workforce).find("Bad Request") != std::string::npos);
}
