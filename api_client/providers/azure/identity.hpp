// Who we are at Azure: a client secret, whom the `az` command has signed in, or the identity of the machine that we run on.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "api_client/cloud.hpp"
#include "api_client/providers/azure/environment.hpp"

namespace tnr::azure {

// tenant_id, client_id, client_secret and, where it is known, subscription_id; or `cli`, az's folder.
std::optional<Credentials> standard_credentials(const CloudWorld& world);
// `identity`: the endpoint that IDENTITY_ENDPOINT names.
std::optional<Credentials> ambient_credentials(const CloudWorld& world);

class Identity {
public:
    Identity(const Credentials& credentials, const CloudWorld& world);

    // For the resource manager. Asks for one each time, except for what az has stored and is still good.
    Result<std::string> access_token();
    // As the variable or az's default says; empty where nothing does.
    std::string subscription() const;
    // Where az makes things unless told; empty: nowhere.
    std::string location() const;
    // Of the resource manager.
    std::string manager() const { return environment_ ? environment_->manager : ""; }
    // For refusals.
    std::string sign_in() const;

private:
    Result<std::string> by_secret();
    Result<std::string> by_secret(const std::string& tenant, const std::string& client, const std::string& secret);
    Result<std::string> by_cli();
    Result<std::string> by_cli_service(const std::string& tenant, const std::string& client);
    Result<std::string> by_endpoint();
    Result<std::string> ask(const std::string& tenant, std::vector<std::pair<std::string, std::string>> form);
    std::string value(const char* name) const;
    // az's default subscription, or the one that the variable names: {"id", "tenantId", "user", …}.
    nlohmann::json cli_profile() const;

    Credentials credentials_;
    CloudWorld world_;
    Result<Environment> environment_;
    std::string given_out_;  // the stored token: one that is asked for again has been refused
    http::Client client_;
};

}  // namespace tnr::azure
