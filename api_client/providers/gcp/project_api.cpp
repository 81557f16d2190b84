// Refusals of requests and failures of operations have codes of two families, which mean the same.
#include "api_client/providers/gcp/project_api.hpp"

#include "api_client/http/oauth.hpp"
#include "api_client/providers/gcp/catalogue.hpp"

namespace tnr::gcp {
namespace {

using http::Json;
using http::understood;

constexpr int operation_seconds_max = 600;  // stopping waits 90 s for the machine's programs

// The reason in detail, else the status: "quotaExceeded", "PERMISSION_DENIED".
http::Refusal refusal_in(const Json& body) {
    if (!body.is_object() || !body.contains("error") || !body["error"].is_object()) return {};
    const Json& error = body["error"];
    http::Refusal refusal{error.value("status", ""), error.value("message", "")};
    if (error.contains("errors") && !error["errors"].empty()) refusal.code = error["errors"][0].value("reason", "");
    return refusal;
}

}  // namespace

std::string last_part(const std::string& url) {
    return url.substr(url.rfind('/') + 1);
}

ProjectApi::ProjectApi(Account& account, const CloudWorld& world)
    : account_(account),
      world_(world),
      compute_(settings("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "https://compute.googleapis.com/compute/v1"), world),
      billing_(settings("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBILLING", "https://cloudbilling.googleapis.com"), world) {
}

http::JsonApi::Settings ProjectApi::settings(const std::string& variable, const std::string& standard) const {
    const std::string other = world_.variable(variable);
    return {.cloud = "Google",
            .base = other.empty() ? standard : other,
            .sign_in = account_.sign_in(),
            .refusal = refusal_in,
            .fetch_token = [account = &account_] { return account->access_token(); }};
}

Result<Json> ProjectApi::call(const std::string& method, const std::string& rest, const Json& body, bool repeatable) {
    code_.clear();
    auto project = account_.project();
    if (!project) return project.error();
    auto reply = compute_.call(method, "/projects/" + http::escaped(*project) + rest, body, repeatable);
    if (!reply) return reply.error();
    if (reply->ok()) return reply->body;
    return understood("Google", [&]() -> Result<Json> {
        code_ = compute_.refusal(*reply).code;
        return reworded(compute_.refused(*reply), *project);
    });
}

// What a 403 means here, more exactly.
Error ProjectApi::reworded(Error error, const std::string& project) const {
    const std::string console = "https://console.cloud.google.com/";
    if (code_ == "QUOTA_EXCEEDED" || code_ == "quotaExceeded" || code_ == "limitExceeded") {
        error.kind = Error::Kind::remote;
        error.hint = "your project's quotas are at " + console + "iam-admin/quotas?project=" + project;
    } else if (code_ == "rateLimitExceeded" || code_ == "userRateLimitExceeded") {
        error.kind = Error::Kind::remote;
        error.hint = "too many requests for now; try again in a minute";
    } else if (code_ == "accessNotConfigured" || code_ == "SERVICE_DISABLED") {
        error.hint = "enable it at " + console + "apis/library/compute.googleapis.com?project=" + project;
    }
    return error;
}

bool ProjectApi::sold_out() const {
    return code_.find("RESOURCE_POOL_EXHAUSTED") != std::string::npos || code_ == "resourcesUnavailable";
}

Result<std::vector<Json>> ProjectApi::all(const std::string& rest, const std::string& list) {
    return understood("Google", [&]() -> Result<std::vector<Json>> {
        std::vector<Json> items;
        http::Pages pages;
        std::string path = rest;
        while (pages.go_on(path)) {
            auto page = call("GET", path);
            if (!page) return page.error();
            for (const auto& item : page->value(list, Json::array())) items.push_back(item);
            const std::string token = page->value("nextPageToken", "");
            if (token.empty()) return items;
            path = rest + "&pageToken=" + http::escaped(token);
        }
        return Error{Error::Kind::remote, "Google's list of " + list + " does not end"};
    });
}

Result<> ProjectApi::act(const std::string& rest, const Json& body) {
    auto operation = call("POST", rest + "?requestId=" + http::new_uuid(), body, true);
    return operation ? wait(*operation) : Result<>(operation.error());
}

Result<> ProjectApi::remove(const std::string& rest) {
    auto operation = call("DELETE", rest);
    if (operation) return wait(*operation);
    return operation.error().kind == Error::Kind::not_found ? Result<>(Ok{}) : operation.error();
}

Result<> ProjectApi::wait(Json operation) {
    return understood("Google", [&]() -> Result<> {
        const std::string zone = last_part(operation.value("zone", ""));
        const std::string rest = (zone.empty() ? "/global" : "/zones/" + zone) + "/operations/" +
                                 http::escaped(operation.at("name").get<std::string>());
        auto ended = http::poll(world_, operation_seconds_max, [&]() -> Result<bool> {
            if (operation.at("status") == "DONE") return true;
            auto now = call("GET", rest);
            if (!now) return now.error();
            operation = *now;
            return operation.at("status") == "DONE";
        });
        if (!ended) return ended.error();
        if (!*ended)
            return Error{Error::Kind::remote,
                         "Google: " + operation.value("operationType", "it") + " is still not done after 10 minutes"};
        if (!operation.contains("error")) return Ok{};
        const Json& error = operation["error"].at("errors").at(0);
        code_ = error.value("code", "");
        auto project = account_.project();
        return reworded(Error{Error::Kind::remote, "Google: " + error.value("message", code_)},
                        project ? *project : "");
    });
}

Result<http::JsonApi::Dated> ProjectApi::machine_types() {
    auto project = account_.project();
    if (!project) return project.error();
    return understood("Google", [&] {
        return compute_.daily("gcp-types-" + http::escaped(*project),
                              [&] { return ask_machine_types(compute_, "/projects/" + http::escaped(*project)); });
    });
}

Result<http::JsonApi::Dated> ProjectApi::rates() {
    return understood("Google", [&] { return billing_.daily("gcp-rates", [&] { return ask_rates(billing_); }); });
}

}  // namespace tnr::gcp
