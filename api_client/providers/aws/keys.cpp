// Keys as they are, the portal of AWS's single sign-on, a program of the user's, the service beside a container, or the
// metadata service (IMDSv2).
#include "api_client/providers/aws/keys.hpp"

#include <filesystem>

#include "api_client/http/json_api.hpp"
#include "api_client/http/parse.hpp"
#include "api_client/providers/aws/container.hpp"
#include "api_client/providers/aws/credential_process.hpp"
#include "api_client/providers/aws/sso.hpp"
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
    if (credentials.values.count("container")) return keys_from_container(credentials, world);
    if (credentials.values.count("metadata")) return from_metadata(world);
    if (credentials.values.count("sso_start_url")) return keys_from_sso(credentials, world, endpoints);
    if (const std::string command = value(credentials, "credential_process"); !command.empty())
        return keys_from_process(command, world);
    return Keys{value(credentials, "access_key_id"), value(credentials, "secret_access_key"),
                value(credentials, "session_token")};
}

// The files' names are hashes of what the profile says. What is in them names the role, as "assumed-role/NAME/SESSION".
Result<Keys> keys_kept_by_aws(const Role& role, const Credentials& credentials, const CloudWorld& world) {
    // arn:aws:iam::123456789012:role/path/NAME
    const size_t account = role.arn.find("::"), name = role.arn.rfind('/');
    const std::string wanted = account == std::string::npos || name == std::string::npos
                                   ? "?"
                                   : role.arn.substr(account, role.arn.find(':', account + 2) - account) +
                                         ":assumed-role" + role.arn.substr(name) + "/";
    Keys newest;
    std::string expires = world.now();
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(world.home + "/.aws/cli/cache", failed)) {
        const Json file = http::parse_json(small_file(entry.path()));
        auto text = [&](const char* object, const char* member) {
            const Json inner = file.is_object() ? file.value(object, Json()) : Json();
            const Json found = inner.is_object() ? inner.value(member, Json()) : Json();
            return found.is_string() ? found.get<std::string>() : std::string();
        };
        const Keys keys{text("Credentials", "AccessKeyId"), text("Credentials", "SecretAccessKey"),
                        text("Credentials", "SessionToken")};
        if (text("AssumedRoleUser", "Arn").find(wanted) == std::string::npos || keys.id.empty() ||
            text("Credentials", "Expiration") <= expires)
            continue;
        newest = keys;
        expires = text("Credentials", "Expiration");
    }
    if (!newest.id.empty()) return newest;
    const std::string profile = value(credentials, "profile");
    return Error{Error::Kind::auth,
                 "profile '" + profile +
                     "' of ~/.aws takes a role that asks for a code (mfa_serial), and `aws` keeps " +
                     "no keys of it that are still good",
                 "run `aws sts get-caller-identity --profile " + profile + "`, which asks for the code and keeps them"};
}

}  // namespace tnr::aws
