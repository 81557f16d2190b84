// Azure has clouds beside the public one, with addresses of their own.
#include "api_client/providers/azure/environment.hpp"
#include "azure_world.hpp"
#include "tests/api_client/world.hpp"

using namespace tnr;
using namespace tnr::test;
using nlohmann::json;

namespace {

struct AzHome {
    AzHome() {
        world.home = folder.path();
        world.variable = [this](const std::string& name) { return variables.count(name) ? variables[name] : ""; };
        std::filesystem::create_directories(folder.path() + "/.azure");
    }
    void write(const std::string& name, const std::string& text) {
        write_text(folder.path() + "/.azure/" + name, text);
    }
    // Name, authority, manager.
    std::string found() {
        auto environment = azure::environment(world);
        return environment ? environment->name + " " + environment->authority + " " + environment->manager
                           : environment.error().what;
    }

    TemporaryFolder folder;
    std::map<std::string, std::string> variables;
    CloudWorld world;
};

}  // namespace

TEST_CASE("azure: the cloud that az is set to has its own addresses", "[azure]") {
    AzHome az;
    const std::string government =
        "AzureUSGovernment https://login.microsoftonline.us https://management.usgovcloudapi.net";
    CHECK(az.found() == "AzureCloud https://login.microsoftonline.com https://management.azure.com");
    az.write("config", "[cloud]\nname = AzureUSGovernment\n\n[defaults]\nlocation = usgovvirginia\n");
    CHECK(az.found() == government);
    CHECK(azure::environment(az.world)->core == "https://management.core.usgovcloudapi.net/");
    az.variables["AZURE_CLOUD_NAME"] = "AzureChinaCloud";
    CHECK(az.found() == "AzureChinaCloud https://login.chinacloudapi.cn https://management.chinacloudapi.cn");
    CHECK(azure::environment(az.world)->resource == "https://management.chinacloudapi.cn/");
    // Without az: as Azure's libraries are told.
    az.variables.clear();
    az.write("config", "");
    az.variables["AZURE_AUTHORITY_HOST"] = "login.microsoftonline.us";
    CHECK(az.found() == government);
    // A proxy is another address of the same cloud.
    az.variables = {{"AZURE_CLOUD_NAME", "AzureUSGovernment"},
                    {"AZURE_AUTHORITY_HOST", "https://proxy.example/"},
                    {"AZURE_RESOURCE_MANAGER_HOST", "arm.example"}};
    CHECK(az.found() == "AzureUSGovernment https://proxy.example https://arm.example");
    CHECK(azure::environment(az.world)->resource == "https://management.usgovcloudapi.net/");
}

TEST_CASE("azure: a company's own cloud is as `az cloud register` has written it, or is named", "[azure]") {
    AzHome az;
    az.write("config", "[cloud]\nname = Stack\n");
    CHECK(az.found() == "Azure: az is set to the cloud 'Stack', whose addresses nothing tells");
    CHECK(azure::environment(az.world).error().hint.find("AzureCloud, AzureUSGovernment, AzureChinaCloud") !=
          std::string::npos);
    az.write("clouds.config",
             "[AzureCloud]\nsubscription = 1\n\n[Stack]\nendpoint_management = https://m.example/\n"
             "endpoint_resource_manager = https://arm.example\n"
             "endpoint_active_directory = https://login.example/adfs\n"
             "endpoint_active_directory_resource_id = https://management.example/1\n");
    CHECK(az.found() == "Stack https://login.example/adfs https://arm.example");
    az.write("config", "[cloud]\nname = AzureGermanCloud\n");
    CHECK(az.found().find("'AzureGermanCloud'") != std::string::npos);
}

TEST_CASE("azure: at a government's cloud tokens are asked for what is there", "[clouds][azure]") {
    AzureWorld cloud;
    std::filesystem::create_directories(cloud.folder / ".azure");
    test::write_text(cloud.folder / ".azure/config", "[cloud]\nname = AzureUSGovernment\n");
    CHECK(cloud.provider()->whoami().error().what.find("AADSTS7000215") != std::string::npos);  // for the public one
    cloud.ask("knobs", {{"cloud", "usgovcloudapi.net"}});
    CHECK(cloud.provider()->whoami());
    // What az keeps of both clouds.
    auto token = [](const std::string& core, const std::string& secret) {
        return json{{"secret", secret},
                    {"target", core + "/user_impersonation " + core + "/.default"},
                    {"realm", "tenant-1"},
                    {"expires_on", "1767326645"}};
    };
    const json cache = {{"AccessToken",
                         {{"1", token("https://management.core.windows.net/", "hidden-public-one")},
                          {"2", token("https://management.core.usgovcloudapi.net/", MockCloud::token)}}},
                        {"RefreshToken", {{"1", {{"secret", "hidden-refresh-token"}}}}}};
    auto subscription = [](const char* id, const char* tenant, const char* environment) {
        return json{{"id", id}, {"isDefault", true}, {"tenantId", tenant}, {"environmentName", environment}};
    };
    const json profile = {{"subscriptions",
                           {subscription(azure_subscription, "tenant-1", "AzureUSGovernment"),
                            subscription("another", "tenant-2", "AzureCloud")}}};
    test::write_text(cloud.folder / ".azure/msal_token_cache.json", cache.dump());
    test::write_text(cloud.folder / ".azure/azureProfile.json", profile.dump());
    auto azure = find_cloud("azure");
    auto whoami = [&] { return azure->make(*azure->standard(cloud.world), cloud.world)->whoami(); };
    CHECK(whoami());
    CHECK(cloud.count("POST", "/tenant-1/oauth2/v2.0/token") == 2);  // the two questions above
    for (const json& request : cloud.ask("log"))                     // none was made with the other cloud's token
        CHECK((request["status"] != 401 || request["path"] == "/tenant-1/oauth2/v2.0/token"));
    cloud.now = "2026-01-02T05:00:00Z";  // the token's time is over
    CHECK(whoami());
    CHECK(cloud.count("POST", "/tenant-1/oauth2/v2.0/token") == 3);
    test::write_text(cloud.folder / ".azure/config", "[cloud]\nname = Nowhere\n");
    CHECK(whoami().error().what.find("'Nowhere'") != std::string::npos);
}

TEST_CASE("azure: a list whose pages come again is an Error, soon", "[clouds][azure]") {
    AzureWorld cloud;
    const std::string groups = std::string("/subscriptions/") + azure_subscription + "/resourcegroups";
    cloud.fail_next({{"path", "(?i)/resourcegroups$"},
                     {"status", 200},
                     {"times", 99},
                     {"body", {{"value", json::array()}, {"nextLink", cloud.url + groups + "?page=2"}}}});
    CHECK(cloud.provider()->machines().error().what.find("does not end") != std::string::npos);
}
