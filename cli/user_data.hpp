// The cloud-init document every machine is configured by: login user, host key, authorised key, host name.
#pragma once

#include <string>

namespace tnr::cli {

// The user that user data makes, on every cloud.
inline constexpr const char* login_user = "tnr";

// `host_secret` is the text of an OpenSSH private key file, the other keys are public lines.
std::string user_data(const std::string& host_name, const std::string& host_secret, const std::string& host_key,
                      const std::string& authorised_key);

}  // namespace tnr::cli
