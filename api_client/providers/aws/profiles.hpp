// Who we are at AWS and where it is, as AWS's own tools find out: variables, then the profile in ~/.aws.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "api_client/cloud.hpp"

namespace tnr::aws {

// Credentials::values are what `tnr login` asks for, or one of these:
//   sso_start_url, sso_region, sso_account_id, sso_role_name: what to ask AWS's sign-in page's cache and portal for
//   credential_process: the program that prints keys
//   unusable: why the profile that is meant gives no keys
//   metadata: the computer is a machine at AWS that has a role
// With role_arn beside them, they are exchanged for that role. `profile` is for messages.
std::optional<Credentials> standard(const CloudWorld& world);
// The role of the machine that tnr runs on.
std::optional<Credentials> ambient(const CloudWorld& world);

// Empty: not said.
std::string configured_region(const Credentials& credentials, const CloudWorld& world);
// Other addresses than AWS's own, by the name that requests are signed for: "ec2", "sts", "pricing", "ce", "portal".
std::map<std::string, std::string> configured_endpoints(const CloudWorld& world);

}  // namespace tnr::aws
