// `credential_process` of a profile: a program of the user's own that prints keys, as AWS's own tools run it.
#pragma once

#include <string>

#include "api_client/cloud.hpp"
#include "api_client/providers/aws/key.hpp"

namespace tnr::aws {

// Runs `command` by the shell; what it says on stderr is for the user. An Error of kind auth says what went wrong, without
// what it printed: there may be secrets in it.
Result<Keys> keys_from_process(const std::string& command, const CloudWorld& world);

}  // namespace tnr::aws
