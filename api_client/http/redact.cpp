// Hiding by name and by value.
#include "api_client/http/redact.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "api_client/http/parse.hpp"

namespace tnr::http {
namespace {

using Json = nlohmann::json;

constexpr std::string_view hidden_word = "(hidden)";
constexpr size_t shown_bytes_max = 2000;

// `key`: Thunder answers with a private key of that name. Those that begin with a capital are AWS's.
constexpr std::array secret_fields = {
    "user_data",      "password",     "root_password",   "token",           "private_key",   "key",
    "secret",         "access_token", "id_token",        "refresh_token",   "client_secret", "customData",
    "private_key_id", "Token",        "SecretAccessKey", "secretAccessKey", "sessionToken",  "accessToken",
    "refreshToken",   "clientSecret", "idToken"};

bool is_secret(const std::string& name) {
    return std::find(secret_fields.begin(), secret_fields.end(), name) != secret_fields.end();
}

void hide_fields(Json& json) {
    // Google's metadata is a list of such pairs: their keys are names, and what is secret is the value.
    if (json.is_object() && json.contains("key") && json.contains("value")) {
        json["value"] = hidden_word;
        return;
    }
    for (auto& [name, value] : json.items()) {
        if (value.is_structured())
            hide_fields(value);
        else if (json.is_object() && value.is_string() && is_secret(name))
            value = hidden_word;
    }
}

}  // namespace

std::string without(std::string text, const std::vector<std::string>& secrets) {
    for (const auto& secret : secrets)
        for (size_t at = text.find(secret); at != std::string::npos; at = text.find(secret, at + hidden_word.size()))
            text.replace(at, secret.size(), hidden_word);
    return text;
}

std::string redacted(const std::string& body, const std::vector<std::string>& secrets) {
    Json json = parse_json(body);
    // Half a reply has its secrets, too, and no names by which to find them.
    if (json.is_discarded()) return "(" + std::to_string(body.size()) + " bytes that are no JSON)";
    hide_fields(json);
    std::string text = without(json.dump(-1, ' ', false, Json::error_handler_t::replace), secrets);
    if (text.size() <= shown_bytes_max) return text;
    return text.substr(0, shown_bytes_max) + "… (" + std::to_string(text.size()) + " bytes)";
}

}  // namespace tnr::http
