// `tnr login pool`: remember a pool of GPUs and our key for it.
#pragma once

#include "cli/session.hpp"

namespace tnr::cli {

struct LoginOptions {
    std::string address;
    std::string server_key;
    // A key, or a token to be traded for one. Empty: the first line of the file, or of standard input if there is none or
    // it is "-". A command line can be read by everybody on the computer.
    std::string client_secret;
    std::string secret_file = {};
    // In place of a secret: whichever of the keys in pool.json is let in there, as at another node of one of those pools.
    bool same_key = false;
};

Result<> login_pool(Session& session, const LoginOptions& options);
// Removes the key from this computer; succeeds when there is none.
Result<> logout_pool(Session& session, const std::string& address);

}  // namespace tnr::cli
