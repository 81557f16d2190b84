// Errors as --json shows them: {"kind": "usage", "what": "…", "hint": "…"}.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "api_client/base/result.hpp"

namespace tnr::cli {

nlohmann::json error_json(const Error& error);

}  // namespace tnr::cli
