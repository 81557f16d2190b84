// Who we are at Google: credentials where Google's own tools keep them, the project, access tokens.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "api_client/cloud.hpp"

namespace tnr::gcp {

// A key file's text as `key`.
std::optional<Credentials> standard_credentials(const CloudWorld& world);
// A metadata server's host as `metadata`.
std::optional<Credentials> ambient_credentials(const CloudWorld& world);

class Account {
public:
    Account(const Credentials& credentials, const CloudWorld& world);

    // Asks Google for one, each time.
    Result<std::string> access_token();
    // From the variables, the key, gcloud's configuration, or the metadata server: the first that names one.
    Result<std::string> project();
    // "tnr@my-project.iam.gserviceaccount.com"; empty where nothing tells.
    std::string who() const;
    // Where gcloud makes things unless told; empty: nowhere.
    std::string zone() const;
    std::string region() const;
    // For refusals.
    std::string sign_in() const;

private:
    Result<std::string> metadata(const std::string& path);
    Result<std::string> by_service_account();
    Result<std::string> by_refresh_token();
    Account source() const;
    std::string key_value(const char* name) const;

    CloudWorld world_;
    std::string source_, metadata_host_, project_;
    nlohmann::json key_;
    http::Client client_;
};

}  // namespace tnr::gcp
