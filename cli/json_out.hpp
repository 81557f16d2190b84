// What --json prints.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>

#include "api_client/base/result.hpp"
#include "api_client/provider.hpp"

namespace tnr::cli {

// {"kind": "usage", "what": "…", "hint": "…"}, as in control messages.
nlohmann::json error_json(const Error& error);

// {"currency": "EUR", "per_hour": 0.0066, …}; what is unknown is null.
nlohmann::json price_json(const Price& price);

// One document, indented, and a newline. Bytes that are not UTF-8 (a mistyped name, a server's words) become U+FFFD:
// whatever happened, scripts get a document that they can parse.
void print_json(std::ostream& out, const nlohmann::json& document);

}  // namespace tnr::cli
