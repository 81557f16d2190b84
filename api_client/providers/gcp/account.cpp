// Key files as Google writes them: of a service account, or of a user whom gcloud has signed in.
#include "api_client/providers/gcp/account.hpp"

#include "api_client/http/oauth.hpp"
#include "api_client/http/parse.hpp"
#include "api_client/providers/gcp/federation.hpp"
#include "api_client/tool_files.hpp"

namespace tnr::gcp {
namespace {

constexpr const char* token_endpoint = "https://oauth2.googleapis.com/token";
constexpr const char* scope = "https://www.googleapis.com/auth/cloud-platform";
constexpr int token_seconds = 3600;  // the longest that Google takes
// It answers at once or it is not there.
constexpr http::Limits metadata_limits = {.connect_ms = 1000, .total_ms = 3000, .tries_max = 2};

std::string gcloud_folder(const CloudWorld& world) {
    const std::string folder = world.variable("CLOUDSDK_CONFIG");
    return folder.empty() ? world.home + "/.config/gcloud" : folder;
}

std::string first_line(const std::string& text) {
    return text.substr(0, text.find_first_of("\r\n"));
}

// The firmware of Google's machines says so; asking the network would take seconds wherever this is no such machine.
bool runs_at_google(const CloudWorld& world) {
    return world.variable("NO_GCE_CHECK").empty() &&
           first_line(small_file("/sys/class/dmi/id/product_name")) == "Google Compute Engine";
}

// What the user has set: by a variable, else in gcloud's configuration.
std::string configured(const CloudWorld& world, const char* variable, const char* section, const char* setting) {
    if (std::string value = world.variable(variable); !value.empty()) return value;
    const std::string folder = gcloud_folder(world);
    std::string name = world.variable("CLOUDSDK_ACTIVE_CONFIG_NAME");
    if (name.empty()) name = first_line(small_file(folder + "/active_config"));
    if (name.empty()) name = "default";
    return sections_of(small_file(folder + "/configurations/config_" + name))[section][setting];
}

// What `gcloud auth login` and `gcloud auth activate-service-account` leave for other tools.
std::string account_file(const CloudWorld& world) {
    const std::string account = configured(world, "CLOUDSDK_CORE_ACCOUNT", "core", "account");
    const bool is_name = !account.empty() && account.find('/') == std::string::npos;
    return is_name ? gcloud_folder(world) + "/legacy_credentials/" + account + "/adc.json" : "";
}

}  // namespace

std::optional<Credentials> standard_credentials(const CloudWorld& world) {
    if (std::string path = world.variable("GOOGLE_APPLICATION_CREDENTIALS"); !path.empty())
        return Credentials{{{"key", small_file(path)}}, "GOOGLE_APPLICATION_CREDENTIALS"};
    for (const std::string& path :
         {gcloud_folder(world) + "/application_default_credentials.json", account_file(world)})
        if (std::string key = small_file(path); !key.empty()) return Credentials{{{"key", key}}, path};
    return std::nullopt;
}

std::optional<Credentials> ambient_credentials(const CloudWorld& world) {
    std::string host = world.variable("GCE_METADATA_HOST");
    if (host.empty() && runs_at_google(world)) host = "metadata.google.internal";
    if (!host.empty()) return Credentials{{{"metadata", host}}, "the metadata server"};
    return std::nullopt;
}

Account::Account(const Credentials& credentials, const CloudWorld& world)
    : world_(world),
      source_(credentials.source),
      client_(world.http, credentials.values.count("metadata") ? metadata_limits : world.limits) {
    if (auto key = credentials.values.find("key"); key != credentials.values.end()) {
        key_ = http::parse_json(key->second);
        for (const char* secret : {"private_key", "client_secret", "refresh_token"}) client_.hide(key_value(secret));
    }
    if (auto host = credentials.values.find("metadata"); host != credentials.values.end())
        metadata_host_ = host->second;
}

std::string Account::key_value(const char* name) const {
    if (!key_.is_object() || !key_.contains(name) || !key_[name].is_string()) return "";
    return key_[name];
}

std::string Account::sign_in() const {
    return "the credentials came from " + source_ +
           "; `tnr login gcp < KEY_FILE` takes others, `gcloud auth application-default login` makes new ones";
}

std::string Account::who() const {
    for (const char* name : {"client_email", "account"})
        if (std::string email = key_value(name); !email.empty()) return email;
    // https://…/serviceAccounts/EMAIL:generateAccessToken
    const std::string url = key_value("service_account_impersonation_url"), end = ":generateAccessToken";
    return url.ends_with(end) ? url.substr(url.rfind('/') + 1, url.size() - url.rfind('/') - 1 - end.size()) : "";
}

std::string Account::zone() const {
    return configured(world_, "CLOUDSDK_COMPUTE_ZONE", "compute", "zone");
}

std::string Account::region() const {
    if (std::string zone = this->zone(); !zone.empty()) return zone.substr(0, zone.rfind('-'));
    return configured(world_, "CLOUDSDK_COMPUTE_REGION", "compute", "region");
}

Result<std::string> Account::project() {
    if (project_.empty()) project_ = world_.variable("GOOGLE_CLOUD_PROJECT");
    if (project_.empty()) project_ = world_.variable("CLOUDSDK_CORE_PROJECT");
    for (const char* name : {"project_id", "quota_project_id"})
        if (project_.empty()) project_ = key_value(name);
    if (project_.empty()) project_ = configured(world_, "CLOUDSDK_CORE_PROJECT", "core", "project");
    if (project_.empty() && !metadata_host_.empty()) {
        auto project = metadata("project/project-id");
        if (!project) return project;
        project_ = first_line(*project);
    }
    if (!project_.empty()) return project_;
    return Error{Error::Kind::usage, "Google: nothing says which project to use",
                 "set GOOGLE_CLOUD_PROJECT, or run `gcloud config set project PROJECT`"};
}

Result<std::string> Account::access_token() {
    if (!metadata_host_.empty()) {
        auto reply = metadata("instance/service-accounts/default/token");
        return reply ? http::token_in("Google", *reply) : reply;
    }
    const std::string type = key_value("type");
    if (type == "service_account") return by_service_account();
    if (type == "authorized_user") return by_refresh_token();
    const Federation federation{client_, key_, scope, sign_in()};
    if (type == "external_account") return token_of_workload(federation);
    if (type == "external_account_authorized_user") return token_of_workforce(federation);
    if (type == "impersonated_service_account") {
        auto token = source().access_token();
        return token ? impersonated(federation, *token) : token;
    }
    return Error{Error::Kind::auth,
                 type.empty() ? "Google: there is no key in what " + source_ + " gave"
                              : "Google: credentials of type '" + type + "' are not supported",
                 sign_in()};
}

// Whose token is exchanged for that of a service account. Its own credentials may not be such ones again, so this ends.
Account Account::source() const {
    nlohmann::json inner = key_.value("source_credentials", nlohmann::json::object());
    if (inner.is_object() && inner.value("type", nlohmann::json()) == key_["type"]) inner["type"] = "nested";
    return Account(Credentials{{{"key", inner.dump()}}, source_}, world_);
}

Result<std::string> Account::by_service_account() {
    std::string endpoint = key_value("token_uri");
    if (endpoint.empty()) endpoint = token_endpoint;
    const int64_t now = http::seconds_of(world_.now());
    auto assertion = http::signed_jwt({{"alg", "RS256"}, {"typ", "JWT"}, {"kid", key_value("private_key_id")}},
                                      {{"iss", key_value("client_email")},
                                       {"scope", scope},
                                       {"aud", endpoint},
                                       {"iat", now},
                                       {"exp", now + token_seconds}},
                                      key_value("private_key"));
    if (!assertion) return assertion;
    auto token = http::fetch_token(
        client_, {"Google",
                  endpoint,
                  {{"grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"}, {"assertion", *assertion}},
                  sign_in()});
    // Google bears clocks that are some minutes wrong, and no more.
    if (!token && token.error().what.find("timeframe") != std::string::npos)
        return Error{Error::Kind::auth, token.error().what, "is this computer's clock right? It says " + world_.now()};
    return token;
}

Result<std::string> Account::by_refresh_token() {
    std::string endpoint = key_value("token_uri");
    if (endpoint.empty()) endpoint = token_endpoint;
    return http::fetch_token(client_, {"Google",
                                       endpoint,
                                       {{"grant_type", "refresh_token"},
                                        {"client_id", key_value("client_id")},
                                        {"client_secret", key_value("client_secret")},
                                        {"refresh_token", key_value("refresh_token")}},
                                       sign_in()});
}

Result<std::string> Account::metadata(const std::string& path) {
    http::Request request{.url = "http://" + metadata_host_ + "/computeMetadata/v1/" + path,
                          .headers = {"Metadata-Flavor: Google"},
                          .repeatable = true,
                          .brings_secrets = true};
    auto response = client_.send(request);
    if (!response) return response.error();
    if (response->ok()) return response->body;
    return Error{Error::Kind::auth,
                 "Google: the metadata server says " + std::to_string(response->status) + " to " + path,
                 "does this machine have a service account? `tnr login gcp < KEY_FILE` takes another"};
}

}  // namespace tnr::gcp
