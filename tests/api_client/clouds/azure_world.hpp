// Azure as tests have it.
#pragma once

#include "mock_world.hpp"

namespace tnr::test {

inline constexpr const char* azure_key =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me";
inline constexpr const char* azure_subscription = "00000000-1111-2222-3333-444444444444";

struct AzureWorld : MockCloud {
    AzureWorld() : MockCloud("azure", "azure_mock.py", "AZURE_RESOURCE_MANAGER_HOST", "") {
        url = variables["AZURE_RESOURCE_MANAGER_HOST"];
        variables["AZURE_AUTHORITY_HOST"] = url + "/";
        variables["AZURE_RETAIL_PRICES_HOST"] = url;
    }
    // Nothing secret of what the test gave was shown.
    ~AzureWorld() { CHECK(explained.find("hidden-") == std::string::npos); }
    std::unique_ptr<Provider> provider(const std::string& secret = "hidden-client-secret") {
        return with({{"tenant_id", "tenant-1"},
                     {"client_id", "app-1"},
                     {"client_secret", secret},
                     {"subscription_id", azure_subscription}});
    }
    std::unique_ptr<Provider> with(std::map<std::string, std::string> values) {
        return find_cloud("azure")->make({std::move(values), "the test"}, world);
    }
    static Order order(const std::string& name = "demo") {
        return {.name = name,
                .region = "eastus",
                .user_data = "#cloud-config\nssh_keys: PRIVATE\n",
                .user = "tnr",
                .authorised_key = azure_key};
    }

    std::string url;
};

}  // namespace tnr::test
