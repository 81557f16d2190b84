// The keys that requests are signed with, from what is known of who we are.
#pragma once

#include <map>
#include <string>

#include "api_client/cloud.hpp"
#include "api_client/providers/aws/key.hpp"
#include "api_client/providers/aws/profiles.hpp"

namespace tnr::aws {

// May ask AWS's sign-in portal or the machine's metadata service. An Error of kind auth says how to sign in (again).
Result<Keys> obtain_keys(const Credentials& credentials, const CloudWorld& world,
                         const std::map<std::string, std::string>& endpoints);

// Of a role that asks for a code (mfa_serial): those that `aws` keeps once it has asked. tnr asks nobody for codes, since most of
// its commands have to work without a terminal. An Error of kind auth says what to run where there are none.
Result<Keys> keys_kept_by_aws(const Role& role, const Credentials& credentials, const CloudWorld& world);

}  // namespace tnr::aws
