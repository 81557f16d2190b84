// A cloud's REST API that speaks JSON and takes a token: what the drivers of such clouds share.
#pragma once

#include <nlohmann/json.hpp>
#include <set>

#include "api_client/cloud.hpp"

namespace tnr::http {

using Json = nlohmann::json;

struct Reply {
    int status = 0;
    Json body = {};  // null where there was none
    std::string request_id = {};
    std::map<std::string, std::string> headers = {};  // names in small letters
    bool ok() const { return status >= 200 && status < 300; }
};

// What a cloud says when it refuses.
struct Refusal {
    std::string code = {};  // for programs: "uniqueness_error"
    std::string words = {};
};

// A reply kept for a day, and the time when the cloud gave it.
struct Dated {
    Json body;
    std::string date;
};
// What changes rarely, such as prices, from `ask` or from the cache folder. `base` says whose word it is: another endpoint
// has other prices.
Result<Dated> daily(const CloudWorld& world, const std::string& name, const std::string& base,
                    const std::function<Result<Json>()>& ask);

// A list that is followed from page to page, each known by its address or token.
class Pages {
public:
    // False: it does not end. There has been this page before, or there are far more of them than any account has.
    bool go_on(const std::string& page);

private:
    std::set<std::string> seen_;
};

class JsonApi {
public:
    struct Settings {
        std::string cloud;         // as users know it: "Hetzner"
        std::string base;          // "https://api.hetzner.cloud/v1"
        std::string token = {};    // empty, without fetch_token: anybody may ask
        std::string sign_in = {};  // hint for a token that is refused
        std::function<Refusal(const Json& body)> refusal;
        // Where tokens expire: asked for the first one, and for another when one is refused.
        std::function<Result<std::string>()> fetch_token = {};
    };
    JsonApi(Settings settings, const CloudWorld& world);

    // Any status is a Reply; a body that is no JSON is an Error of kind remote. POST is not repeatable unless said so.
    Result<Reply> call(const std::string& method, const std::string& path, const Json& body = {},
                       bool repeatable = false);
    // The same, with a refusal as its Error: auth for 401 and 403, not_found for 404, else remote.
    Result<Json> get(const std::string& path);
    Result<Json> post(const std::string& path, const Json& body = Json::object(), bool repeatable = false);
    Result<Json> put(const std::string& path, const Json& body);
    Result<> remove(const std::string& path);  // what is not there counts as removed

    // All items of a list. `next` tells from a page the path of the one after it, empty at the end.
    Result<std::vector<Json>> all(const std::string& path, const std::string& list,
                                  const std::function<std::string(const Json& page)>& next);
    using Dated = http::Dated;
    Result<Dated> daily(const std::string& name, const std::function<Result<Json>()>& ask);

    Error refused(const Reply& reply) const;
    Refusal refusal(const Reply& reply) const { return settings_.refusal(reply.body); }

private:
    Result<Json> accepted(Result<Reply> reply) const;
    Result<Response> send(Request request);
    Result<> renew_token();

    Settings settings_;
    Client client_;
    CloudWorld world_;
};

// A price in a reply, a number or one in a text; throws, as JSON's own readers do, where it is no amount of money.
double amount_in(const Json& price);
// The same of what has been spent or is owed, which may be below zero.
double balance_in(const Json& amount);

// A time in a reply as we write times, UTC in ISO 8601 to the second: from "2026-01-02T03:04:05.678+01:00", or from seconds
// since 1970. Empty where it is none.
std::string utc_in(const Json& time);

// Asks once a second until `done` says so; false: it never did, in `seconds_max`.
Result<bool> poll(const CloudWorld& world, int seconds_max, const std::function<Result<bool>()>& done);

// Runs what reads a reply; a reply of another shape than the cloud's description says is an Error, not a crash.
template <class Read>
auto understood(const std::string& cloud, Read&& read) -> decltype(read()) try {
    return read();
} catch (const std::exception& failure) {  // JSON's, and those of numbers in strings
    return Error{Error::Kind::remote, cloud + "'s reply makes no sense: " + failure.what()};
}

}  // namespace tnr::http
