// https://docs.aws.amazon.com/sdkref/latest/guide/understanding-sso.html; the renewal is CreateToken of the service SSO OIDC.
#include "api_client/providers/aws/sso.hpp"

#include <filesystem>

#include "api_client/base/files.hpp"
#include "api_client/http/json_api.hpp"
#include "api_client/http/oauth.hpp"
#include "api_client/http/parse.hpp"
#include "api_client/providers/aws/profiles.hpp"
#include "api_client/tool_files.hpp"

namespace tnr::aws {
namespace {

using http::Json;

constexpr int64_t renewed_before_s = 15 * 60;  // as AWS's SDKs

std::string said(const Credentials& credentials, const std::string& name) {
    auto found = credentials.values.find(name);
    return found == credentials.values.end() ? "" : found->second;
}

Error sign_in_again(const Credentials& credentials, const std::string& what) {
    return Error{Error::Kind::auth, what, "run `aws sso login --profile " + said(credentials, "profile") + "`"};
}

struct SsoToken {
    std::filesystem::path file = {};
    Json body = Json::object();

    std::string at(const char* name) const { return http::text_in(body, name); }
    std::string text() const { return at("accessToken"); }
    int64_t seconds_left(const CloudWorld& world) const {
        return http::seconds_of(at("expiresAt")) - http::seconds_of(world.now());
    }
    // The client that `aws sso login` has registered is good for some weeks.
    bool can_be_renewed(const CloudWorld& world) const {
        const std::string registered_until = at("registrationExpiresAt");
        return !at("refreshToken").empty() && !at("clientId").empty() && !at("clientSecret").empty() &&
               (registered_until.empty() || http::seconds_of(registered_until) > http::seconds_of(world.now()));
    }
};

// The newest token for that start page among those that `aws sso login` has left. The files' names are hashes of what differs
// between versions of its configuration; what is in them says it plainly.
SsoToken cached_token(const CloudWorld& world, const std::string& start_url) {
    SsoToken newest;
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(world.home + "/.aws/sso/cache", failed)) {
        SsoToken token{entry.path(), http::parse_json(small_file(entry.path()))};
        if (!token.body.is_object() || token.at("startUrl") != start_url || token.text().empty()) continue;
        if (token.at("expiresAt") > newest.at("expiresAt")) newest = token;
    }
    return newest;
}

// The new token, put into the old one's file. An Error of kind auth: AWS does not renew it.
Result<SsoToken> renewed(http::Client& client, SsoToken token, const CloudWorld& world, const std::string& base) {
    for (const char* secret : {"refreshToken", "clientSecret"}) client.hide(token.at(secret));
    const Json question = {{"clientId", token.at("clientId")},
                           {"clientSecret", token.at("clientSecret")},
                           {"grantType", "refresh_token"},
                           {"refreshToken", token.at("refreshToken")}};
    // Sent twice, the second one would bring a refresh token that has been used up.
    auto reply =
        client.send({.method = "POST", .url = base + "/token", .body = question.dump(), .brings_secrets = true});
    if (!reply) return reply.error();
    if (reply->status >= 500 || reply->status == 429)
        return Error{Error::Kind::remote,
                     "AWS's sign-in page cannot renew your sign-in now (status " + std::to_string(reply->status) + ")"};
    return http::understood("AWS's sign-in page", [&]() -> Result<SsoToken> {
        const Json body = http::parse_json(reply->body);
        if (!reply->ok()) return Error{Error::Kind::auth, "status " + std::to_string(reply->status)};
        token.body["accessToken"] = body.at("accessToken").get<std::string>();
        token.body["expiresAt"] = http::utc_in(http::seconds_of(world.now()) + body.at("expiresIn").get<int64_t>());
        if (body.contains("refreshToken")) token.body["refreshToken"] = body["refreshToken"].get<std::string>();
        // One that cannot be kept is good for this command.
        (void)write_file(token.file, token.body.dump(), 0600);
        return token;
    });
}

Result<SsoToken> usable_token(http::Client& client, const Credentials& credentials, const CloudWorld& world,
                              const std::map<std::string, std::string>& endpoints) {
    const std::string start_url = said(credentials, "sso_start_url");
    const SsoToken token = cached_token(world, start_url);
    if (token.text().empty()) return sign_in_again(credentials, "you have not signed in at AWS's sign-in page yet");
    const bool good = token.seconds_left(world) > 0;
    if (token.seconds_left(world) < renewed_before_s && token.can_be_renewed(world)) {
        auto fresh =
            renewed(client, token, world, endpoint_of(endpoints, "oidc", "oidc", said(credentials, "sso_region")));
        if (fresh) return fresh;
        if (!good && fresh.error().kind != Error::Kind::auth) return fresh;
        // Each refresh token is good for once; another program may have used it a moment ago.
        const SsoToken now = cached_token(world, start_url);
        if (now.text() != token.text() && now.seconds_left(world) > 0) return now;
    }
    if (!good) return sign_in_again(credentials, "your sign-in at AWS's sign-in page has expired");
    return token;
}

}  // namespace

Result<Keys> keys_from_sso(const Credentials& credentials, const CloudWorld& world,
                           const std::map<std::string, std::string>& endpoints) {
    http::Client client(world.http, world.limits);
    auto token = usable_token(client, credentials, world, endpoints);
    if (!token) return token.error();
    client.hide(token->text());
    const std::string account = said(credentials, "sso_account_id"), role = said(credentials, "sso_role_name");
    auto reply = client.send({.url = endpoint_of(endpoints, "portal", "portal.sso", said(credentials, "sso_region")) +
                                     "/federation/credentials?account_id=" + http::escaped(account) +
                                     "&role_name=" + http::escaped(role),
                              .headers = {"x-amz-sso_bearer_token: " + token->text()},
                              .repeatable = true});
    if (!reply) return reply.error();
    if (reply->status == 401)
        return sign_in_again(credentials, "AWS's sign-in page does not know your sign-in any more");
    return http::understood("AWS's sign-in portal", [&]() -> Result<Keys> {
        const Json body = http::parse_json(reply->body);
        if (!reply->ok())
            return Error{Error::Kind::auth, "AWS's sign-in portal refuses account " + account + " with role " + role +
                                                " (status " + std::to_string(reply->status) + ")"};
        const Json& keys = body.at("roleCredentials");
        return Keys{keys.at("accessKeyId"), keys.at("secretAccessKey"), keys.at("sessionToken")};
    });
}

}  // namespace tnr::aws
