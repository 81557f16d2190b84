// `tnr status`: the user's machines and the pools' GPUs.
#pragma once

#include "cli/session.hpp"

namespace tnr::cli {

Result<> status(Session& session);

}  // namespace tnr::cli
