// https://google.aip.dev/auth/4117; the exchange is RFC 8693.
#include "api_client/providers/gcp/federation.hpp"

#include "api_client/http/json_api.hpp"
#include "api_client/http/oauth.hpp"
#include "api_client/http/parse.hpp"
#include "api_client/tool_files.hpp"

namespace tnr::gcp {
namespace {

using http::Json;
using http::text_in;

constexpr const char* sts_endpoint = "https://sts.googleapis.com/v1/token";
constexpr const char* workforce_endpoint = "https://sts.googleapis.com/v1/oauthtoken";
constexpr const char* access_token_type = "urn:ietf:params:oauth:token-type:access_token";

Json object_at(const Json& object, const char* name) {
    return object.is_object() && object.contains(name) && object[name].is_object() ? object[name] : Json::object();
}

// Clients that have a secret of their own prove it so.
std::vector<std::string> proof_of_client(const Json& key) {
    const std::string id = text_in(key, "client_id"), secret = text_in(key, "client_secret");
    if (id.empty() || secret.empty()) return {};
    return {"Authorization: Basic " + http::base64(id + ":" + secret)};
}

// The token as it is, or the member of a JSON object that `format` names.
std::string token_in_text(const std::string& text, const Json& format) {
    if (text_in(format, "type") != "json") return stripped(text);
    return text_in(http::parse_json(text), text_in(format, "subject_token_field_name"));
}

std::vector<std::string> headers_in(const Json& source) {
    std::vector<std::string> headers;
    const Json named = object_at(source, "headers");
    for (const auto& [name, text] : named.items())
        if (text.is_string()) headers.push_back(name + ": " + text.get<std::string>());
    return headers;
}

const char* way_not_done(const Json& source) {
    if (source.contains("executable")) return "from a program";
    if (source.contains("environment_id")) return "from AWS's keys";
    if (source.contains("certificate")) return "by a certificate";
    return "from nowhere";
}

Result<std::string> subject_token(const Federation& federation) {
    const Json source = object_at(federation.key, "credential_source"), format = object_at(source, "format");
    const std::string file = text_in(source, "file"), url = text_in(source, "url");
    auto no_token = [&](const std::string& why) {
        return Error{Error::Kind::auth, "Google: " + why, federation.sign_in};
    };
    std::string text;
    if (!file.empty()) {
        text = small_file(file);
    } else if (!url.empty()) {
        auto reply = federation.client.send(
            {.url = url, .headers = headers_in(source), .repeatable = true, .brings_secrets = true});
        if (!reply) return reply.error();
        if (!reply->ok()) return no_token(url + ", which is to tell who we are, says " + std::to_string(reply->status));
        text = reply->body;
    } else {
        return no_token("credentials of type 'external_account' whose token comes " +
                        std::string(way_not_done(source)) + " are not supported; from a file or an address they are");
    }
    const std::string token = token_in_text(text, format);
    if (token.empty()) return no_token("there is no token in what " + file + url + " holds");
    return token;
}

}  // namespace

Result<std::string> token_of_workload(const Federation& federation) {
    const Json& key = federation.key;
    auto subject = subject_token(federation);
    if (!subject) return subject;
    http::TokenQuestion question{"Google",
                                 text_in(key, "token_url"),
                                 {{"grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"},
                                  {"audience", text_in(key, "audience")},
                                  {"scope", federation.scope},
                                  {"requested_token_type", access_token_type},
                                  {"subject_token", *subject},
                                  {"subject_token_type", text_in(key, "subject_token_type")}},
                                 federation.sign_in,
                                 proof_of_client(key)};
    if (question.url.empty()) question.url = sts_endpoint;
    if (const std::string project = text_in(key, "workforce_pool_user_project");
        !project.empty() && question.headers.empty())
        question.form.emplace_back("options", http::escaped(Json{{"userProject", project}}.dump()));
    auto token = http::fetch_token(federation.client, question);
    if (!token || text_in(key, "service_account_impersonation_url").empty()) return token;
    return impersonated(federation, *token);
}

Result<std::string> token_of_workforce(const Federation& federation) {
    std::string url = text_in(federation.key, "token_url");
    if (url.empty()) url = workforce_endpoint;
    return http::fetch_token(federation.client, {"Google",
                                                 url,
                                                 {{"grant_type", "refresh_token"},
                                                  {"refresh_token", text_in(federation.key, "refresh_token")}},
                                                 federation.sign_in,
                                                 proof_of_client(federation.key)});
}

Result<std::string> impersonated(const Federation& federation, const std::string& token) {
    federation.client.hide(token);
    Json question = {{"scope", {federation.scope}}};
    if (const Json delegates = federation.key.value("delegates", Json()); delegates.is_array())
        question["delegates"] = delegates;
    if (const Json life =
            object_at(federation.key, "service_account_impersonation").value("token_lifetime_seconds", Json());
        life.is_number_integer())
        question["lifetime"] = std::to_string(life.get<int>()) + "s";
    auto reply = federation.client.send({.method = "POST",
                                         .url = text_in(federation.key, "service_account_impersonation_url"),
                                         .headers = {"Authorization: Bearer " + token},
                                         .body = question.dump(-1, ' ', false, Json::error_handler_t::replace),
                                         .repeatable = true,
                                         .brings_secrets = true});
    if (!reply) return reply.error();
    const Json body = http::parse_json(reply->body);
    if (const std::string of_account = text_in(body, "accessToken"); reply->ok() && !of_account.empty())
        return of_account;
    const std::string words = text_in(object_at(body, "error"), "message");
    return Error{reply->status >= 500 ? Error::Kind::remote : Error::Kind::auth,
                 "Google: no token of the service account: " +
                     federation.client.shown(words.empty() ? "status " + std::to_string(reply->status) : words),
                 "it takes the role Service Account Token Creator there; " + federation.sign_in};
}

}  // namespace tnr::gcp
