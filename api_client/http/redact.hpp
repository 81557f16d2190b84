// What may be shown of requests and replies.
#pragma once

#include <string>
#include <vector>

namespace tnr::http {

// A body as `--explain` shows it: fields that hold secrets (passwords, keys, user data with a machine's host key) are
// hidden by their names, `secrets` wherever they stand, and a long one is cut. Of
// what is no JSON only the length is shown.
std::string redacted(const std::string& body, const std::vector<std::string>& secrets);

// `text` with each of `secrets`, none of them empty, hidden.
std::string without(std::string text, const std::vector<std::string>& secrets);

}  // namespace tnr::http
