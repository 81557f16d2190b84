// Reads one name out of a cloud-config document.
#include "api_client/providers/local/user_data.hpp"

#include <nlohmann/json.hpp>
#include <sstream>

namespace tnr::local {
namespace {

using nlohmann::json;

constexpr const char* image_default = "debian";

std::string name_in(const json& user) {
    if (user.is_object()) return user.value("name", json()).is_string() ? user["name"].get<std::string>() : "";
    return user.is_string() && user != "default" ? user.get<std::string>() : "";
}

std::string from_json(const json& document) {
    if (document.contains("users") && document["users"].is_array())
        for (const json& user : document["users"])
            if (const std::string name = name_in(user); !name.empty()) return name;
    return document.contains("user") ? name_in(document["user"]) : "";
}

// The value of `key:` on this line, in the list item or mapping it belongs to; quotes removed.
std::string value_of(const std::string& line, const std::string& key) {
    const size_t begin = line.find_first_not_of(" -\t");
    if (begin == std::string::npos || line.compare(begin, key.size() + 1, key + ":") != 0) return "";
    const size_t value = line.find_first_not_of(" \t\"'", begin + key.size() + 1);
    if (value == std::string::npos) return "";
    return line.substr(value, line.find_first_of(" \t\"'#\r", value) - value);
}

std::string from_lines(const std::string& user_data) {
    std::istringstream lines(user_data);
    bool in_users = false;
    for (std::string line; std::getline(lines, line);) {
        const bool top_level = !line.empty() && std::string(" -#\t").find(line[0]) == std::string::npos;
        if (top_level) in_users = line.rfind("users:", 0) == 0;
        if (top_level && !in_users)
            if (std::string name = value_of(line, "user"); !name.empty()) return name;
        if (!top_level && in_users)
            if (std::string name = value_of(line, "name"); !name.empty()) return name;
    }
    return "";
}

}  // namespace

std::string login_user(const std::string& user_data) {
    const size_t body = user_data.find('\n');  // after "#cloud-config"
    const json document = json::parse(body == std::string::npos ? "" : user_data.substr(body), nullptr, false);
    const std::string name = document.is_object() ? from_json(document) : from_lines(user_data);
    return name.empty() ? image_default : name;
}

}  // namespace tnr::local
