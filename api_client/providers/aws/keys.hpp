// The keys that requests are signed with, from what is known of who we are.
#pragma once

#include <map>
#include <string>

#include "api_client/cloud.hpp"
#include "api_client/providers/aws/key.hpp"

namespace tnr::aws {

// May ask AWS's sign-in portal or the machine's metadata service. An Error of kind auth says how to sign in (again).
Result<Keys> obtain_keys(const Credentials& credentials, const CloudWorld& world,
                         const std::map<std::string, std::string>& endpoints);

}  // namespace tnr::aws
