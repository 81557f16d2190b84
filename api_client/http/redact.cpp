// Hiding by name and by value.
#include "api_client/http/redact.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <regex>

namespace tnr::http {
namespace {

using Json = nlohmann::json;

constexpr const char* hidden_word = "(hidden)";
constexpr size_t shown_bytes_max = 2000;

// `key`: Thunder answers with a private key of that name.
constexpr std::array secret_fields = {"user_data",   "userdata",      "password", "root_password", "token",
                                      "private_key", "key",           "secret",   "client_secret", "access_token",
                                      "assertion",   "refresh_token", "UserData"};

bool is_secret(const std::string& name) {
    return std::find(secret_fields.begin(), secret_fields.end(), name) != secret_fields.end();
}

void hide_fields(Json& json) {
    for (auto& [name, value] : json.items()) {
        if (value.is_structured())
            hide_fields(value);
        else if (json.is_object() && value.is_string() && is_secret(name))
            value = hidden_word;
    }
}

// A form, as AWS takes it.
std::string hide_in_form(const std::string& form) {
    static const std::regex field("(^|&)(UserData|assertion|client_secret|refresh_token|password)=[^&]*");
    return std::regex_replace(form, field, std::string("$1$2=") + hidden_word);
}

}  // namespace

std::string without(std::string text, const std::vector<std::string>& secrets) {
    for (const auto& secret : secrets)
        for (size_t at = text.find(secret); at != std::string::npos; at = text.find(secret, at))
            text.replace(at, secret.size(), hidden_word);
    return text;
}

std::string redacted(const std::string& body, const std::vector<std::string>& secrets) {
    Json json = Json::parse(body, nullptr, false);
    std::string text;
    if (json.is_discarded()) {
        text = hide_in_form(body);
    } else {
        hide_fields(json);
        text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
    text = without(std::move(text), secrets);
    if (text.size() <= shown_bytes_max) return text;
    return text.substr(0, shown_bytes_max) + "… (" + std::to_string(text.size()) + " bytes)";
}

}  // namespace tnr::http
