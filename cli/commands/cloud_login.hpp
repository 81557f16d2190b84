// `tnr login PROVIDER`, `tnr logout PROVIDER` and `tnr whoami`: signing in to clouds.
#pragma once

#include "cli/session.hpp"

namespace tnr::cli {

// Asks for the cloud's secrets on session.in, one a line; unseen on a terminal. Stored only when the cloud knows them.
Result<> login_cloud(Session& session, const std::string& name);
// Forgets what `tnr login` stored; succeeds when that was nothing.
Result<> logout_cloud(Session& session, const std::string& name);
// Who we are at `name`, or at every provider where it is empty.
Result<> whoami(Session& session, const std::string& name);

}  // namespace tnr::cli
