// Several clouds and pools asked at once, so that the slowest decides how long it takes and not the sum.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/session.hpp"

namespace tnr::cli {

// Runs all of them at once (api_client/base/at_once.hpp). One after the other under --explain,
// whose lines would mingle. They must not touch the session.
void side_by_side(const Session& session, const std::vector<std::function<void()>>& questions);

// A provider to be asked beside others: one that does not answer is given up within seconds instead of minutes.
Result<std::unique_ptr<Provider>> open_to_ask(Session& session, const std::string& name);
// The same of a cloud whose credentials are at hand.
std::unique_ptr<Provider> open_to_ask(Session& session, const Cloud& cloud, const Credentials& credentials);

}  // namespace tnr::cli
