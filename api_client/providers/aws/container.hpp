// The keys that AWS gives to containers (ECS, EKS): a service beside each container tells those of its role.
#pragma once

#include <optional>
#include <string>

#include "api_client/cloud.hpp"
#include "api_client/providers/aws/key.hpp"

namespace tnr::aws {

// Where the variables name such a service; its address is Credentials::values["container"].
std::optional<Credentials> container_credentials(const CloudWorld& world);

// https, or plain http to this computer and to the services beside containers: no network may see the token.
bool may_tell_container_token(const std::string& url);

// An Error of kind auth says why there are no keys: an address that may not be told the container's token, a token that is not
// there, a service that refuses us.
Result<Keys> keys_from_container(const Credentials& credentials, const CloudWorld& world);

}  // namespace tnr::aws
