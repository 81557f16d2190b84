// Who we are at AWS and where it is, as AWS's own tools find out: variables, then the profile in ~/.aws.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api_client/cloud.hpp"

namespace tnr::aws {

// Credentials::values are what `tnr login` asks for, or one of these:
//   sso_start_url, sso_region, sso_account_id, sso_role_name: what to ask AWS's sign-in page's cache and portal for
//   credential_process: the program that prints keys
//   web_identity_token_file: a file with a token that somebody else has signed, which is exchanged for the first role
//   unusable: why the profile that is meant gives no keys
//   container: the address that tells the keys of this container's role (container.hpp)
//   metadata: the computer is a machine at AWS that has a role
// They are exchanged for the roles that stand beside them, one with the help of the one before (roles_in). `profile` is for
// messages.
struct Role {
    std::string arn = {}, external_id = {}, session_name = {}, duration_s = {}, mfa = {};  // empty: not said
};
std::vector<Role> roles_in(const Credentials& credentials);

std::optional<Credentials> standard(const CloudWorld& world);
// The role of the container or machine that tnr runs on.
std::optional<Credentials> ambient(const CloudWorld& world);

// Empty: not said.
std::string configured_region(const Credentials& credentials, const CloudWorld& world);
// Other addresses than AWS's own, by the name that requests are signed for: "ec2", "sts", "pricing", "ce", "portal", "oidc".
std::map<std::string, std::string> configured_endpoints(const CloudWorld& world);
// The configured address of `service`, else AWS's own one, which begins with `host`.
std::string endpoint_of(const std::map<std::string, std::string>& endpoints, const std::string& service,
                        const std::string& host, const std::string& region);

}  // namespace tnr::aws
