// Access tokens from an OAuth 2 token endpoint (RFC 6749, 7523): what Google and Azure sign in with.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "api_client/http/http.hpp"

namespace tnr::http {

using Form = std::vector<std::pair<std::string, std::string>>;

// As application/x-www-form-urlencoded.
std::string encoded(const Form& form);

struct TokenQuestion {
    std::string cloud;  // as users know it
    std::string url;
    Form form;
    std::string sign_in;                    // hint when the credentials are refused
    std::vector<std::string> headers = {};  // beside those that say what the form is
};
// A refusal is an Error of kind auth with the endpoint's own words. Secrets in the form are hidden from then on.
Result<std::string> fetch_token(Client& client, const TokenQuestion& question);

// The access token in what an endpoint has said.
Result<std::string> token_in(const std::string& cloud, const std::string& reply);

// A JSON Web Token of these claims, signed with RS256. The key is PEM; one that cannot be read is an Error of kind auth.
Result<std::string> signed_jwt(const nlohmann::json& header, const nlohmann::json& claims, const std::string& key_pem);

// Seconds since 1970 of a UTC time in ISO 8601; 0 where it is none.
int64_t seconds_of(const std::string& utc);

std::string base64(const std::string& bytes);

// A random one, for requests that clouds do only once for each.
std::string new_uuid();

}  // namespace tnr::http
