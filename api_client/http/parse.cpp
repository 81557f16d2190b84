// Levels are counted while parsing, by nlohmann's own parser, which needs no stack for them.
#include "api_client/http/parse.hpp"

namespace tnr::http {
namespace {

constexpr int depth_max = 100;

}  // namespace

nlohmann::json parse_json(const std::string& text) {
    using Json = nlohmann::json;
    bool too_deep = false;
    Json json = Json::parse(
        text,
        [&](int depth, Json::parse_event_t, Json&) {
            too_deep = too_deep || depth > depth_max;
            return !too_deep;
        },
        false);
    return too_deep ? Json(Json::value_t::discarded) : json;
}

std::string text_in(const nlohmann::json& object, const std::string& member) {
    auto found = object.find(member);  // end() where it is no object
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace tnr::http
