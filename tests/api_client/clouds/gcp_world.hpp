// Google as tests have it.
#pragma once

#include "mock_world.hpp"

namespace tnr::test {

struct GcpWorld : MockCloud {
    GcpWorld() : MockCloud("gcp", "gcp_mock.py", "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "/compute/v1/") {
        url = variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"];
        url.resize(url.find("/compute"));
        variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBILLING"] = url + "/";
        variables["NO_GCE_CHECK"] = "true";  // wherever these tests run
        key = ask("key", {{"url", url}});
    }
    std::unique_ptr<Provider> provider() { return with({{"key", key.dump()}}); }
    std::unique_ptr<Provider> with(std::map<std::string, std::string> values) {
        return find_cloud("gcp")->make({std::move(values), "the test"}, world);
    }
    static Order order(const std::string& name = "demo") {
        return {
            .name = name, .region = "us-central1", .user_data = "#cloud-config\nssh_keys: PRIVATE\n", .user = "tnr"};
    }

    std::string url;
    Json key;
};

}  // namespace tnr::test
