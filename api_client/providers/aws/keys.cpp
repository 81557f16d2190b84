// Keys as they are, the portal of AWS's single sign-on, a program of the user's, or the metadata service (IMDSv2).
#include "api_client/providers/aws/keys.hpp"

#include <filesystem>

#include "api_client/http/json_api.hpp"
#include "api_client/http/parse.hpp"
#include "api_client/providers/aws/credential_process.hpp"
#include "api_client/tool_files.hpp"

namespace tnr::aws {
namespace {

using http::Json;

// It is a hop away, or it is not there.
constexpr http::Limits metadata_limits = {.connect_ms = 1000, .total_ms = 2000, .tries_max = 2};
constexpr const char* metadata_address = "http://169.254.169.254";

std::string value(const Credentials& credentials, const std::string& name) {
    auto found = credentials.values.find(name);
    return found == credentials.values.end() ? "" : found->second;
}

Error sign_in_again(const Credentials& credentials, const std::string& what) {
    return Error{Error::Kind::auth, what, "run `aws sso login --profile " + value(credentials, "profile") + "`"};
}

// The newest token for that start page among those that `aws sso login` has left. The files' names are hashes of what differs
// between versions of its configuration; what is in them says it plainly.
struct SsoToken {
    std::string text = {}, expires = {};
};
SsoToken cached_token(const std::string& folder, const std::string& start_url) {
    SsoToken newest;
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
        const Json file = http::parse_json(small_file(entry.path()));
        if (!file.is_object() || file.value("startUrl", Json()) != start_url) continue;
        const Json text = file.value("accessToken", Json()), expires = file.value("expiresAt", Json());
        if (text.is_string() && expires.is_string() && expires.get<std::string>() > newest.expires)
            newest = {text, expires};
    }
    return newest;
}

Result<Keys> from_portal(const Credentials& credentials, const CloudWorld& world,
                         const std::map<std::string, std::string>& endpoints) {
    const SsoToken token = cached_token(world.home + "/.aws/sso/cache", value(credentials, "sso_start_url"));
    if (token.text.empty()) return sign_in_again(credentials, "you have not signed in at AWS's sign-in page yet");
    if (token.expires < world.now())
        return sign_in_again(credentials, "your sign-in at AWS's sign-in page has expired");
    auto own = endpoints.find("portal");
    const std::string base = own == endpoints.end()
                                 ? "https://portal.sso." + value(credentials, "sso_region") + ".amazonaws.com"
                                 : own->second;
    http::Client client(world.http, world.limits);
    client.hide(token.text);
    auto reply = client.send(
        {.url = base + "/federation/credentials?account_id=" + http::escaped(value(credentials, "sso_account_id")) +
                "&role_name=" + http::escaped(value(credentials, "sso_role_name")),
         .headers = {"x-amz-sso_bearer_token: " + token.text},
         .repeatable = true});
    if (!reply) return reply.error();
    if (reply->status == 401)
        return sign_in_again(credentials, "AWS's sign-in page does not know your sign-in any more");
    return http::understood("AWS's sign-in portal", [&]() -> Result<Keys> {
        const Json body = http::parse_json(reply->body);
        if (!reply->ok())
            return Error{Error::Kind::auth, "AWS's sign-in portal refuses account " +
                                                value(credentials, "sso_account_id") + " with role " +
                                                value(credentials, "sso_role_name") + " (status " +
                                                std::to_string(reply->status) + ")"};
        const Json& keys = body.at("roleCredentials");
        return Keys{keys.at("accessKeyId"), keys.at("secretAccessKey"), keys.at("sessionToken")};
    });
}

Result<Keys> from_metadata(const CloudWorld& world) {
    std::string base = world.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    if (base.empty()) base = metadata_address;
    base.erase(base.find_last_not_of('/') + 1);
    http::Client client(world.http, metadata_limits);
    auto token = client.send({.method = "PUT",
                              .url = base + "/latest/api/token",
                              .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 300"},
                              .repeatable = true});
    if (!token) return token.error();
    client.hide(token->body);
    auto ask = [&](const std::string& path) {
        return client.send({.url = base + "/latest/meta-data/" + path,
                            .headers = {"X-aws-ec2-metadata-token: " + token->body},
                            .repeatable = true});
    };
    auto role = ask("iam/security-credentials/");
    if (!role) return role.error();
    if (!role->ok() || role->body.empty())
        return Error{Error::Kind::auth, "this machine has no role at AWS",
                     "run `tnr login aws`, or attach an instance profile to the machine"};
    auto keys = ask("iam/security-credentials/" + http::escaped(role->body));
    if (!keys) return keys.error();
    auto region = ask("placement/region");
    if (!region) return region.error();
    return http::understood("the metadata service", [&]() -> Result<Keys> {
        const Json body = http::parse_json(keys->body);
        return Keys{body.at("AccessKeyId"), body.at("SecretAccessKey"), body.at("Token"),
                    region->ok() ? region->body : ""};
    });
}

}  // namespace

Result<Keys> obtain_keys(const Credentials& credentials, const CloudWorld& world,
                         const std::map<std::string, std::string>& endpoints) {
    if (const std::string why = value(credentials, "unusable"); !why.empty())
        return Error{Error::Kind::auth, "profile '" + value(credentials, "profile") + "' of ~/.aws " + why,
                     "`aws configure list-profiles` shows those there are; AWS_PROFILE chooses one"};
    if (credentials.values.count("metadata")) return from_metadata(world);
    if (credentials.values.count("sso_start_url")) return from_portal(credentials, world, endpoints);
    if (const std::string command = value(credentials, "credential_process"); !command.empty())
        return keys_from_process(command, world);
    return Keys{value(credentials, "access_key_id"), value(credentials, "secret_access_key"),
                value(credentials, "session_token")};
}

}  // namespace tnr::aws
