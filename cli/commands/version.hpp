// `tnr version`: what this is, and what it carries for machines.
#pragma once

#include "cli/session.hpp"

namespace tnr::cli {

Result<> version(Session& session);

}  // namespace tnr::cli
