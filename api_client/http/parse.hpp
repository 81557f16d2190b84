// JSON from outside.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tnr::http {

// Discarded (`is_discarded()`) where the text is no JSON, or is nested so deep that walking through it could use up the
// stack: what clouds say has some ten levels.
nlohmann::json parse_json(const std::string& text);
// Empty where there is no object, no such member, or one that is no text.
std::string text_in(const nlohmann::json& object, const std::string& member);

}  // namespace tnr::http
