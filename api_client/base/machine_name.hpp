// What a machine may be called: the one rule, for the command line and for every provider.
#pragma once

#include <string>

#include "api_client/base/result.hpp"

namespace tnr {

// A host name's label holds 63; the rest is for what clouds put around a name ("tnr-NAME-boot-disk").
inline constexpr size_t machine_name_bytes_max = 31;

// A machine's name becomes its host name, a file's and an argument: small letters, digits and dashes.
Result<> check_machine_name(const std::string& name);

// What a machine is called that has nothing but a number there, since its cloud's own tool made it: "thunder-0".
std::string name_of_number(const std::string& cloud, const std::string& number);

}  // namespace tnr
