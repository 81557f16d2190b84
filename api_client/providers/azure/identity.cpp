// az keeps MSAL's cache of tokens as plain JSON on Linux, beside a list of subscriptions.
#include "api_client/providers/azure/identity.hpp"

#include "api_client/base/files.hpp"
#include "api_client/http/oauth.hpp"
#include "api_client/http/parse.hpp"
#include "api_client/tool_files.hpp"

namespace tnr::azure {
namespace {

using http::text_in;
using nlohmann::json;

// az's own, which its refresh tokens belong to.
constexpr const char* az_client = "04b07795-8ddb-461a-bbee-02f9e1bf7b46";
constexpr int seconds_left_min = 300;

json parsed(std::string text) {
    if (text.compare(0, 3, "\xef\xbb\xbf") == 0) text.erase(0, 3);  // az begins its profile so
    json value = http::parse_json(text);
    return value.is_object() ? value : json::object();
}

int64_t number_in(const json& object, const char* name) {
    const std::string text = text_in(object, name);
    return text.empty() || text.size() > 12 || text.find_first_not_of("0123456789") != std::string::npos
               ? 0
               : std::stoll(text);
}

// The account that a user name stands for in az's cache, which keeps the tokens of all that are signed in; empty: it is not there.
std::string home_account(const json& cache, const std::string& user) {
    for (const json& account : cache.value("Account", json::object()))
        if (text_in(account, "username") == user) return text_in(account, "home_account_id");
    return "";
}

}  // namespace

std::optional<Credentials> standard_credentials(const CloudWorld& world) {
    const std::string tenant = world.variable("AZURE_TENANT_ID"), client = world.variable("AZURE_CLIENT_ID"),
                      secret = world.variable("AZURE_CLIENT_SECRET");
    if (!tenant.empty() && !client.empty() && !secret.empty())
        return Credentials{{{"tenant_id", tenant}, {"client_id", client}, {"client_secret", secret}},
                           "AZURE_CLIENT_SECRET"};
    const std::string folder = az_folder(world);
    for (const char* name : {"/msal_token_cache.json", "/service_principal_entries.json"})
        if (file_exists(folder + name) && file_exists(folder + "/azureProfile.json"))
            return Credentials{{{"cli", folder}}, folder + name};
    return std::nullopt;
}

std::optional<Credentials> ambient_credentials(const CloudWorld& world) {
    const std::string endpoint = world.variable("IDENTITY_ENDPOINT");
    if (endpoint.empty()) return std::nullopt;
    return Credentials{{{"identity", endpoint}}, "IDENTITY_ENDPOINT"};
}

Identity::Identity(const Credentials& credentials, const CloudWorld& world)
    : credentials_(credentials), world_(world), environment_(environment(world)), client_(world.http, world.limits) {
    client_.hide(value("client_secret"));
}

std::string Identity::value(const char* name) const {
    auto found = credentials_.values.find(name);
    return found == credentials_.values.end() ? "" : found->second;
}

std::string Identity::sign_in() const {
    return "the credentials came from " + credentials_.source +
           "; `tnr login azure` takes a client secret, or run `az login`";
}

json Identity::cli_profile() const {
    if (value("cli").empty()) return json::object();
    const json profile = parsed(small_file(value("cli") + "/azureProfile.json"));
    if (!profile.contains("subscriptions") || !profile["subscriptions"].is_array()) return json::object();
    const std::string wanted = world_.variable("AZURE_SUBSCRIPTION_ID");
    json chosen = json::object();
    for (const json& each : profile["subscriptions"]) {
        // az keeps those of all of Azure's clouds in one file.
        const std::string of_cloud = text_in(each, "environmentName");
        if (environment_ && !of_cloud.empty() && of_cloud != environment_->name) continue;
        if (!wanted.empty() && text_in(each, "id") == wanted) return each;
        if (each.is_object() && each.value("isDefault", json()) == true) chosen = each;
    }
    return chosen;
}

std::string Identity::subscription() const {
    if (std::string id = world_.variable("AZURE_SUBSCRIPTION_ID"); !id.empty()) return id;
    if (std::string id = value("subscription_id"); !id.empty()) return id;
    return text_in(cli_profile(), "id");
}

std::string Identity::location() const {
    if (std::string location = world_.variable("AZURE_DEFAULTS_LOCATION"); !location.empty()) return location;
    return sections_of(small_file(az_folder(world_) + "/config"))["defaults"]["location"];
}

Result<std::string> Identity::access_token() {
    if (!environment_) return environment_.error();
    if (!value("identity").empty()) return by_endpoint();
    return value("cli").empty() ? by_secret() : by_cli();
}

Result<std::string> Identity::ask(const std::string& tenant, std::vector<std::pair<std::string, std::string>> form) {
    auto token = http::fetch_token(
        client_, {"Azure", environment_->authority + "/" + http::escaped(tenant) + "/oauth2/v2.0/token",
                  std::move(form), sign_in()});
    if (token || token.error().kind != Error::Kind::auth) return token;
    Error error = token.error();
    error.what = error.what.substr(0, error.what.find_first_of("\r\n"));  // lines with ids and times follow
    if (error.what.find("AADSTS7000222") != std::string::npos)
        error.hint = "the client secret has expired: make a new one, then `tnr login azure`";
    return error;
}

Result<std::string> Identity::by_secret() {
    return by_secret(value("tenant_id"), value("client_id"), value("client_secret"));
}

Result<std::string> Identity::by_secret(const std::string& tenant, const std::string& client,
                                        const std::string& secret) {
    return ask(tenant, {{"grant_type", "client_credentials"},
                        {"client_id", client},
                        {"client_secret", secret},
                        {"scope", environment_->resource + ".default"}});
}

// `az login --service-principal` keeps the secret, as az does itself.
Result<std::string> Identity::by_cli_service(const std::string& tenant, const std::string& client) {
    const json entries = http::parse_json(small_file(value("cli") + "/service_principal_entries.json"));
    for (const json& entry : entries.is_array() ? entries : json::array()) {
        const std::string secret = text_in(entry, "client_secret");
        if (text_in(entry, "client_id") != client || text_in(entry, "tenant") != tenant || secret.empty()) continue;
        client_.hide(secret);
        return by_secret(tenant, client, secret);
    }
    return Error{Error::Kind::auth, "Azure: az is signed in as service principal " + client + ", but not with a secret",
                 "`tnr login azure` takes a client secret"};
}

// The stored token while it is good, else a new one for the stored refresh token. Nothing is written back: az's refresh
// tokens stay good after use.
Result<std::string> Identity::by_cli() {
    const json cache = parsed(small_file(value("cli") + "/msal_token_cache.json")), profile = cli_profile();
    const std::string tenant = text_in(profile, "tenantId");
    const json user = profile.value("user", json::object());
    if (text_in(user, "type") == "servicePrincipal") return by_cli_service(tenant, text_in(user, "name"));
    const std::string account = home_account(cache, text_in(user, "name"));
    auto is_users = [&](const json& token) { return account.empty() || text_in(token, "home_account_id") == account; };
    const int64_t now = http::seconds_of(world_.now());
    for (const json& token : cache.value("AccessToken", json::object())) {
        const std::string target = text_in(token, "target"), secret = text_in(token, "secret");
        const bool for_us = target.find(environment_->resource) != std::string::npos ||
                            target.find(environment_->core) != std::string::npos;
        const bool ours = for_us && text_in(token, "realm") == tenant && is_users(token);
        if (!ours || secret == given_out_ || number_in(token, "expires_on") < now + seconds_left_min) continue;
        return given_out_ = secret;
    }
    for (const json& token : cache.value("RefreshToken", json::object())) {
        if (text_in(token, "secret").empty() || !is_users(token)) continue;
        return ask(tenant, {{"grant_type", "refresh_token"},
                            {"client_id", az_client},
                            {"refresh_token", text_in(token, "secret")},
                            {"scope", environment_->core + "/.default"}});
    }
    return Error{Error::Kind::auth, "Azure: az's token has expired, and there is none to renew it with",
                 "run `az login`"};
}

Result<std::string> Identity::by_endpoint() {
    const std::string header = world_.variable("IDENTITY_HEADER");
    client_.hide(header);
    http::Request request{
        .url = value("identity") + "?api-version=2019-08-01&resource=" + http::escaped(environment_->resource),
        .headers = {"X-IDENTITY-HEADER: " + header},
        .repeatable = true,
        .brings_secrets = true};
    auto response = client_.send(request);
    if (!response) return response.error();
    if (response->ok()) return http::token_in("Azure", response->body);
    return Error{Error::Kind::auth, "Azure: the identity endpoint says " + std::to_string(response->status), sign_in()};
}

}  // namespace tnr::azure
