// Three ways in which Azure says that something is not done yet, and one table of versions.
#include "api_client/providers/azure/arm_api.hpp"

#include <algorithm>
#include <array>

#include "api_client/http/oauth.hpp"

namespace tnr::azure {
namespace {

using http::Json;
using http::understood;

constexpr int operation_seconds_max = 1200;  // a resource group takes minutes to go

// Each part of the API has versions of its own; the first that is in the path counts.
constexpr std::pair<const char*, const char*> versions[] = {{"Microsoft.Compute/skus", "2021-07-01"},
                                                            {"Microsoft.Compute/snapshots", "2024-03-02"},
                                                            {"Microsoft.Compute/", "2024-07-01"},
                                                            {"Microsoft.Network/", "2024-05-01"},
                                                            {"Microsoft.CostManagement/", "2023-11-01"},
                                                            {"/resourceGroups", "2022-09-01"},
                                                            {"/subscriptions", "2022-12-01"}};

constexpr std::array sold_out_codes = {"SkuNotAvailable", "AllocationFailed", "ZonalAllocationFailed",
                                       "OverconstrainedAllocationRequest", "OverconstrainedZonalAllocationRequest"};
constexpr std::array quota_codes = {"QuotaExceeded", "OperationNotAllowed", "PublicIPCountLimitReached",
                                    "ResourceGroupQuotaExceeded"};

template <class List>
bool contains(const List& list, const std::string& word) {
    return std::find(list.begin(), list.end(), word) != list.end();
}

std::string versioned(const std::string& path) {
    for (const auto& [part, version] : versions)
        if (path.find(part) != std::string::npos)
            return path + (path.find('?') == std::string::npos ? "?" : "&") + "api-version=" + version;
    return path;
}

http::Refusal refusal_in(const Json& body) {
    if (!body.is_object() || !body.contains("error") || !body["error"].is_object()) return {};
    return {body["error"].value("code", ""), body["error"].value("message", "")};
}

std::string header(const http::Reply& reply, const char* name) {
    auto found = reply.headers.find(name);
    return found == reply.headers.end() ? "" : found->second;
}

}  // namespace

ArmApi::ArmApi(Identity& identity, const CloudWorld& world)
    : identity_(identity),
      world_(world),
      base_(identity.manager()),
      api_({.cloud = "Azure",
            .base = base_,
            .sign_in = identity.sign_in(),
            .refusal = refusal_in,
            .fetch_token = [&identity] { return identity.access_token(); }},
           world) {}

Result<http::Reply> ArmApi::call(const std::string& method, const std::string& path, const Json& body) {
    code_.clear();
    return api_.call(method, path, body, true);
}

Result<Json> ArmApi::accepted(const Result<http::Reply>& reply) {
    if (!reply) return reply.error();
    if (reply->ok()) return reply->body;
    return understood("Azure", [&]() -> Result<Json> {
        code_ = api_.refusal(*reply).code;
        return reworded(api_.refused(*reply));
    });
}

Result<std::string> ArmApi::subscription() {
    if (subscription_.empty()) subscription_ = identity_.subscription();
    if (!subscription_.empty()) return subscription_;
    auto all = accepted(call("GET", versioned("/subscriptions")));
    if (!all) return all.error();
    return understood("Azure", [&]() -> Result<std::string> {
        const Json& found = all->at("value");
        if (found.size() == 1) return subscription_ = found[0].at("subscriptionId").get<std::string>();
        std::string ids;
        for (const auto& each : found) ids += (ids.empty() ? "" : ", ") + each.at("subscriptionId").get<std::string>();
        return Error{
            found.empty() ? Error::Kind::auth : Error::Kind::usage,
            found.empty() ? "Azure: these credentials may see no subscription"
                          : "Azure: nothing says which subscription to use",
            found.empty() ? "give them the role Contributor in one" : "set AZURE_SUBSCRIPTION_ID to one of " + ids};
    });
}

Result<std::string> ArmApi::id_of(const std::string& rest) {
    auto id = subscription();
    return id ? Result<std::string>("/subscriptions/" + http::escaped(*id) + rest) : id;
}

Result<Json> ArmApi::get(const std::string& rest) {
    auto path = id_of(rest);
    return path ? accepted(call("GET", versioned(*path))) : Result<Json>(path.error());
}

Result<std::vector<Json>> ArmApi::list(const std::string& rest) {
    auto first = id_of(rest);
    if (!first) return first.error();
    return understood("Azure", [&]() -> Result<std::vector<Json>> {
        std::vector<Json> items;
        std::string path = versioned(*first);
        http::Pages pages;
        while (pages.go_on(path)) {
            auto page = accepted(call("GET", path));
            if (!page) return page.error();
            for (const auto& item : page->at("value")) items.push_back(item);
            const std::string next = page->contains("nextLink") ? page->at("nextLink").get<std::string>() : "";
            if (next.empty()) return items;
            auto following = path_of(next);
            if (!following) return following.error();
            path = *following;
        }
        return Error{Error::Kind::remote, "Azure's list of " + rest + " does not end"};
    });
}

Result<std::string> ArmApi::path_of(const std::string& address) const {
    if (address.compare(0, base_.size() + 1, base_ + "/") == 0) return address.substr(base_.size());
    return Error{Error::Kind::remote, "Azure points from " + base_ + " to another host: " + address};
}

Result<Json> ArmApi::act(const std::string& method, const std::string& rest, const Json& body) {
    auto id = id_of(rest);
    if (!id) return id.error();
    return understood("Azure", [&]() -> Result<Json> {
        const std::string path = versioned(*id);
        auto reply = call(method, path, body);
        auto done = accepted(reply);
        if (!done) return done;
        if (auto ended = wait(path, *reply); !ended) return ended.error();
        return done;
    });
}

// By the operation's address where there is one; by the result's, which is 202 until it is there; else by looking at what
// is being made.
Result<> ArmApi::wait(const std::string& path, const http::Reply& begun) {
    const std::string operation = header(begun, "azure-asyncoperation"), location = header(begun, "location");
    const std::string address = !operation.empty() ? operation : begun.status == 202 ? location : "";
    auto look = address.empty() ? Result<std::string>(path) : path_of(address);
    if (!look) return look.error();
    Json now = begun.body;
    auto ended = http::poll(world_, operation_seconds_max, [&]() -> Result<bool> {
        if (address.empty()) {
            const Json properties = now.is_object() ? now.value("properties", Json::object()) : Json::object();
            const std::string state = properties.value("provisioningState", "Succeeded");
            if (state == "Succeeded" || state == "Failed" || state == "Canceled") return true;
        }
        auto reply = call("GET", *look);
        // The result of a removal may go with what it removed.
        if (operation.empty() && reply && reply->status == 404) return true;
        auto body = accepted(reply);
        if (!body) return body.error();
        now = *body;
        if (!operation.empty()) return now.at("status") != "InProgress" && now["status"] != "Running";
        return !address.empty() && reply->status != 202;
    });
    if (!ended) return ended.error();
    if (!*ended) return Error{Error::Kind::remote, "Azure: it is still not done after 20 minutes"};
    if (!operation.empty() && now.at("status") != "Succeeded") return failed(now.value("error", Json::object()));
    if (address.empty() && now.is_object() &&
        now.value("properties", Json::object()).value("provisioningState", "Succeeded") != "Succeeded")
        return failed(Json::object());
    return Ok{};
}

Error ArmApi::failed(const Json& error) {
    code_ = error.value("code", "");
    return reworded(Error{Error::Kind::remote, "Azure: " + error.value("message", "the operation failed")});
}

Error ArmApi::reworded(Error error) const {
    if (contains(quota_codes, code_)) {
        error.kind = Error::Kind::remote;
        error.hint = "your quotas are at https://portal.azure.com under Quotas";
    } else if (code_ == "MissingSubscriptionRegistration") {
        error.hint = "`az provider register --namespace Microsoft.Compute` and likewise Microsoft.Network";
    }
    return error;
}

bool ArmApi::sold_out() const {
    return contains(sold_out_codes, code_);
}

Result<http::JsonApi::Dated> ArmApi::daily(const std::string& name, const std::function<Result<Json>()>& ask) {
    return understood("Azure", [&] { return api_.daily(name, ask); });
}

}  // namespace tnr::azure
