// The cloud-init document every machine is configured by: login user, host key, authorised key, host name.
#pragma once

#include <string>

namespace tnr::cli {

// The user that user data makes, on every cloud.
inline constexpr const char* login_user = "tnr";

// What marks keys of ours in the machine's authorized_keys: lines of which a new machine drops what its disk has brought.
inline constexpr const char* login_key_comment = "tnr";

// `host_secret` is the text of an OpenSSH private key file, the other keys are public lines.
std::string user_data(const std::string& host_name, const std::string& host_secret, const std::string& host_key,
                      const std::string& authorised_key);

}  // namespace tnr::cli
