// AWS's single sign-on: the token that `aws sso login` has left is exchanged for keys.
#pragma once

#include <map>
#include <string>

#include "api_client/cloud.hpp"
#include "api_client/providers/aws/key.hpp"

namespace tnr::aws {

// A token that is about to expire is renewed where its file has what that needs, and the new one is put into that file, as
// AWS's own tools do it. An Error of kind auth says how to sign in (again).
Result<Keys> keys_from_sso(const Credentials& credentials, const CloudWorld& world,
                           const std::map<std::string, std::string>& endpoints);

}  // namespace tnr::aws
