// Requests with a token, replies as JSON, pages, and a day's cache.
#include "api_client/http/json_api.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <stdexcept>

#include "api_client/base/files.hpp"
#include "api_client/http/parse.hpp"

namespace tnr::http {
namespace {

constexpr size_t pages_max = 1000;
constexpr size_t refusal_bytes_max = 2000;  // of words, for a terminal
constexpr double money_max = 1e12;          // of any currency, and of no cloud's customer

std::string with_id(const std::string& words, const std::string& request_id) {
    return request_id.empty() ? words : words + " (request " + request_id + ")";
}

std::string day_of(const std::string& time) {
    return time.substr(0, 10);
}

// What is kept of this day, from there. Nothing where the file is another one's, or damaged.
std::optional<Dated> kept_today(const std::filesystem::path& file, const std::string& base, const std::string& now) {
    auto kept = read_file(file, Limits{}.reply_bytes_max);
    const Json old = kept ? Json::parse(*kept, nullptr, false) : Json();
    const std::string date = text_in(old, "date");
    if (text_in(old, "base") != base || day_of(date) != day_of(now) || !old.contains("body")) return std::nullopt;
    return Dated{old["body"], date};
}

}  // namespace

bool Pages::go_on(const std::string& page) {
    return seen_.size() < pages_max && seen_.insert(page).second;
}

JsonApi::JsonApi(Settings settings, const CloudWorld& world)
    : settings_(std::move(settings)), client_(world.http, world.limits), world_(world) {
    client_.hide(settings_.token);
    while (!settings_.base.empty() && settings_.base.back() == '/') settings_.base.pop_back();
}

Result<Reply> JsonApi::call(const std::string& method, const std::string& path, const Json& body, bool repeatable) {
    Request request;
    request.method = method;
    request.url = settings_.base + path;
    if (!body.is_null()) request.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
    request.repeatable = repeatable || method != "POST";
    auto response = send(std::move(request));
    if (!response) return response.error();
    Reply reply{response->status, Json(), response->request_id(), response->headers};
    if (response->body.empty()) return reply;
    reply.body = parse_json(response->body);
    if (!reply.body.is_discarded()) return reply;
    if (!reply.ok()) {  // a proxy's page; its status says enough
        reply.body = Json();
        return reply;
    }
    return Error{Error::Kind::remote,
                 with_id(settings_.cloud + "'s reply to " + method + " " + path + " is no JSON", reply.request_id)};
}

// A request whose token was refused has done nothing, so it may be sent once more.
Result<Response> JsonApi::send(Request request) {
    if (settings_.token.empty() && settings_.fetch_token)
        if (auto renewed = renew_token(); !renewed) return renewed.error();
    for (bool renewed = false;; renewed = true) {
        request.headers = {"Accept: application/json"};
        if (!settings_.token.empty()) request.headers.push_back("Authorization: Bearer " + settings_.token);
        auto response = client_.send(request);
        if (renewed || !settings_.fetch_token || !response || response->status != 401) return response;
        if (auto got = renew_token(); !got) return got.error();
    }
}

Result<> JsonApi::renew_token() {
    auto token = settings_.fetch_token();
    if (!token) return token.error();
    settings_.token = *token;
    client_.hide(*token);
    return Ok{};
}

Error JsonApi::refused(const Reply& reply) const {
    auto refusal = understood(settings_.cloud, [&]() -> Result<Refusal> { return settings_.refusal(reply.body); });
    std::string words = refusal && !refusal->words.empty() ? refusal->words : "status " + std::to_string(reply.status);
    if (words.size() > refusal_bytes_max) words = words.substr(0, refusal_bytes_max) + "…";
    words = client_.shown(with_id(settings_.cloud + ": " + words, reply.request_id));
    if (reply.status >= 300 && reply.status < 400)
        return Error{Error::Kind::remote, settings_.base + " answers with a redirect",
                     "the address of a cloud's API does not move: is the endpoint that you set right?"};
    switch (reply.status) {
        case 401:
        case 403:
            return Error{Error::Kind::auth, words, settings_.sign_in};
        case 404:
            return Error{Error::Kind::not_found, words};
        case 429:
            return Error{Error::Kind::remote, words, "too many requests for now; try again in a minute"};
        default:
            return Error{Error::Kind::remote, words,
                         reply.status >= 500 ? "the trouble is on the cloud's side; try again in a while" : ""};
    }
}

Result<Json> JsonApi::accepted(Result<Reply> reply) const {
    if (!reply) return reply.error();
    if (!reply->ok()) return refused(*reply);
    return reply->body;
}

Result<Json> JsonApi::get(const std::string& path) {
    return accepted(call("GET", path));
}
Result<Json> JsonApi::post(const std::string& path, const Json& body, bool repeatable) {
    return accepted(call("POST", path, body, repeatable));
}
Result<Json> JsonApi::put(const std::string& path, const Json& body) {
    return accepted(call("PUT", path, body));
}

Result<> JsonApi::remove(const std::string& path) {
    auto reply = call("DELETE", path);
    if (!reply) return reply.error();
    if (reply->ok() || reply->status == 404) return Ok{};
    return refused(*reply);
}

Result<std::vector<Json>> JsonApi::all(const std::string& path, const std::string& list,
                                       const std::function<std::string(const Json&)>& next) {
    return understood(settings_.cloud, [&]() -> Result<std::vector<Json>> {
        std::vector<Json> items;
        Pages pages;
        std::string here = path;
        while (!here.empty() && pages.go_on(here)) {
            auto body = get(here);
            if (!body) return body.error();
            for (auto& item : body->at(list)) items.push_back(item);
            here = next(*body);
        }
        if (here.empty()) return items;
        return Error{Error::Kind::remote, settings_.cloud + "'s list of " + list + " does not end"};
    });
}

double balance_in(const Json& amount) {
    const std::string text = amount.is_string() ? amount.get<std::string>() : amount.dump();
    char* end = nullptr;
    const bool number = !text.empty() && text.find_first_not_of("0123456789+-.eE") == std::string::npos;
    const double value = number ? std::strtod(text.c_str(), &end) : 0;
    if (number && *end == '\0' && std::abs(value) < money_max) return value;
    throw std::range_error("an amount of money of " + text.substr(0, 40));
}

double amount_in(const Json& price) {
    const double amount = balance_in(price);
    if (amount >= 0) return amount;
    throw std::range_error("a price of " + price.dump());
}

std::string utc_in(const Json& time) {
    std::tm parts{};
    time_t seconds = 0;
    if (time.is_number_integer()) {
        seconds = time.get<time_t>();
    } else {
        const std::string text = time.is_string() ? time.get<std::string>() : "";
        const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
        if (!rest) return "";
        if (*rest == '.') rest += 1 + std::strspn(rest + 1, "0123456789");
        int hours = 0, minutes = 0;
        char sign = '+';
        if (std::strcmp(rest, "Z") != 0 && std::sscanf(rest, "%c%2d:%2d", &sign, &hours, &minutes) != 3) return "";
        seconds = ::timegm(&parts) - (sign == '-' ? -1 : 1) * (hours * 60 + minutes) * 60;
    }
    char text[40];
    if (!::gmtime_r(&seconds, &parts) || parts.tm_year > 9999 - 1900) return "";
    return std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) ? text : "";
}

Result<bool> poll(const CloudWorld& world, int seconds_max, const std::function<Result<bool>()>& done) {
    constexpr int second_ms = 1000;  // clouds count requests
    for (int asked = 0; asked < seconds_max; ++asked) {
        auto answer = done();
        if (!answer || *answer) return answer;
        if (!world.http.pause(second_ms)) return Error{Error::Kind::internal, "interrupted"};
    }
    return false;
}

Result<Dated> JsonApi::daily(const std::string& name, const std::function<Result<Json>()>& ask) {
    return http::daily(world_, name, settings_.base, ask);
}

Result<Dated> daily(const CloudWorld& world, const std::string& name, const std::string& base,
                    const std::function<Result<Json>()>& ask) {
    namespace fs = std::filesystem;
    const fs::path file = fs::path(world.cache_folder) / "prices" / (name + ".json");
    const std::string now = world.now();
    if (auto kept = kept_today(file, base, now)) return *kept;
    auto body = ask();
    if (!body) return body.error();
    // A cache that cannot be written costs a request the next time, and nothing else.
    (void)write_file(file, Json{{"base", base}, {"date", now}, {"body", *body}}.dump(), 0600);
    return Dated{*body, now};
}

}  // namespace tnr::http
