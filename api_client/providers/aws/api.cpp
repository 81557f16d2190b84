// The query protocol, https://docs.aws.amazon.com/AWSEC2/latest/APIReference/Query-Requests.html, and what its errors mean.
#include "api_client/providers/aws/api.hpp"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>

#include "api_client/http/json_api.hpp"
#include "api_client/http/parse.hpp"
#include "api_client/tool_files.hpp"

namespace tnr::aws {
namespace {

using http::Json;

constexpr const char* fallback_region = "us-east-1";
// AWS refuses what is signed five minutes off; nobody's network takes that long.
constexpr long skew_seconds_max = 240;
constexpr size_t words_max = 300;  // refusals for want of a permission come with a kilobyte of cipher

constexpr std::array ec2_and_sts_versions = {std::pair{"ec2", "2016-11-15"}, std::pair{"sts", "2011-06-15"}};

template <size_t N>
bool is_one_of(const std::array<const char*, N>& codes, const std::string& code) {
    return std::find(codes.begin(), codes.end(), code) != codes.end();
}

constexpr std::array throttled_codes = {
    "RequestLimitExceeded",      "Throttling", "ThrottlingException",     "ThrottledException", "RequestThrottled",
    "RequestThrottledException", "SlowDown",   "TooManyRequestsException"};
constexpr std::array passing_codes = {"InternalError",           "InternalFailure",    "InternalServerError",
                                      "InternalServerException", "ServiceUnavailable", "Unavailable"};
constexpr std::array key_codes = {"AuthFailure",
                                  "SignatureDoesNotMatch",
                                  "InvalidClientTokenId",
                                  "InvalidAccessKeyId",
                                  "UnrecognizedClientException",
                                  "InvalidSignatureException",
                                  "IncompleteSignature",
                                  "MissingAuthenticationToken",
                                  "MissingAuthenticationTokenException",
                                  "InvalidIdentityToken",
                                  "IDPRejectedClaim"};
constexpr std::array expired_codes = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"};
constexpr std::array time_codes = {"RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture"};
constexpr std::array permission_codes = {"UnauthorizedOperation", "AccessDenied",        "AccessDeniedException",
                                         "OptInRequired",         "PendingVerification", "Blocked"};

bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Three forms: EC2's, STS's, and that of the JSON services.
Refusal refusal_in(const http::Response& response) {
    Refusal refusal{.status = response.status, .request_id = response.request_id()};
    if (auto date = response.headers.find("date"); date != response.headers.end()) refusal.date = date->second;
    if (response.ok()) return refusal;
    if (auto xml = Xml::parse(response.body)) {
        auto error = xml->root().find_node([](pugi::xml_node node) { return std::string(node.name()) == "Error"; });
        refusal.code = text(error, "Code");
        refusal.words = text(error, "Message");
        for (const char* name : {"RequestID", "RequestId"})
            if (std::string id = text(xml->root(), name); !id.empty()) refusal.request_id = id;
    } else if (const Json json = http::parse_json(response.body); json.is_object()) {
        for (const char* name : {"__type", "code"})
            if (json.contains(name) && json[name].is_string()) refusal.code = json[name];
        for (const char* name : {"message", "Message"})
            if (json.contains(name) && json[name].is_string()) refusal.words = json[name];
        refusal.code.erase(0, refusal.code.rfind('#') + 1);
    }
    if (refusal.code.empty()) refusal.code = "status " + std::to_string(response.status);
    return refusal;
}

// Sold out is a fault of the server's at AWS, status 500; asking again at once does not help.
bool wants_patience(const http::Response& response, bool repeatable) {
    if (response.ok()) return false;
    const std::string code = refusal_in(response).code;
    if (response.status == 429 || is_one_of(throttled_codes, code)) return true;  // refused before anything was done
    const bool nameless = code.compare(0, 7, "status ") == 0 && response.status >= 500;
    return repeatable && (is_one_of(passing_codes, code) || nameless);
}

// As forms are written everywhere: a blank is a plus.
std::string form_value(const std::string& text) {
    std::string out;
    for (char c : text) out += c == ' ' ? "+" : http::escaped(std::string(1, c));
    return out;
}

std::string form(const Parameters& parameters) {
    std::string body;
    for (const auto& [name, value] : parameters)
        body += (body.empty() ? "" : "&") + form_value(name) + "=" + form_value(value);
    return body;
}

// The user data has a machine's host key in it.
std::string told(Parameters parameters) {
    for (auto& [name, value] : parameters)
        if (name == "UserData" || name == "WebIdentityToken") value = "hidden";
    return form(parameters);
}

std::string in_words(long seconds) {
    if (seconds < 120) return std::to_string(seconds) + " s";
    if (seconds < 7200) return std::to_string(seconds / 60) + " minutes";
    return std::to_string(seconds / 3600) + " hours";
}

// How far this computer's clock is ahead of AWS's; curl signs with it, so it is the one that counts. 0: not known.
long ahead_of(const std::string& date) {
    const time_t theirs = date.empty() ? -1 : curl_getdate(date.c_str(), nullptr);
    return theirs < 0 ? 0 : static_cast<long>(std::time(nullptr) - theirs);
}

}  // namespace

bool is_not_found(const std::string& code) {
    return ends_with(code, ".NotFound") || ends_with(code, ".Malformed") || code == "InvalidAMIID.Unavailable";
}

Api::Api(Credentials credentials, const CloudWorld& world)
    : credentials_(std::move(credentials)),
      world_(world),
      configured_region_(configured_region(credentials_, world)),
      endpoints_(configured_endpoints(world)),
      client_(world.http, world.limits) {}

Result<std::string> Api::home() {
    if (!configured_region_.empty()) return configured_region_;
    auto found = keys();
    if (!found) return found.error();
    return found->region.empty() ? fallback_region : found->region;
}

std::string Api::endpoint(const std::string& service, const std::string& region) const {
    return endpoint_of(endpoints_, service, (service == "pricing" ? "api." : "") + service, region);
}

Result<Api> Api::sibling(const CloudWorld& world) {
    auto found = keys();
    if (!found) return found.error();
    return Api(*this, *found, world);
}

Api::Api(const Api& other, const Keys& keys, const CloudWorld& world)
    : credentials_(other.credentials_),
      world_(world),
      configured_region_(other.configured_region_),
      endpoints_(other.endpoints_),
      keys_(keys),
      client_(world.http, world.limits) {
    for (const auto& secret : {keys.secret, keys.token}) client_.hide(secret);
}

Result<Keys> Api::keys() {
    if (keys_) return *keys_;
    const std::vector<Role> roles = roles_in(credentials_);
    // A role that asks for a code is had from `aws`, and with it all before it.
    size_t taken = roles.size();
    while (taken > 0 && roles[taken - 1].mfa.empty()) --taken;
    Result<Keys> found = Keys{};
    if (taken > 0)
        found = keys_kept_by_aws(roles[taken - 1], credentials_, world_);
    else if (auto file = credentials_.values.find("web_identity_token_file"); file != credentials_.values.end())
        found = take_role_by_token(file->second, roles.at(taken++));
    else
        found = obtain_keys(credentials_, world_, endpoints_);
    for (;; ++taken) {
        if (!found) return found;
        for (const auto& secret : {found->secret, found->token}) client_.hide(secret);
        if (taken == roles.size()) break;
        found = take_role(*found, roles[taken], {.action = "AssumeRole"});
    }
    keys_ = *found;
    return *keys_;
}

Result<Keys> Api::take_role(const Keys& own, const Role& role, Call call) {
    call.service = "sts";
    call.region = configured_region_.empty() ? fallback_region : configured_region_;
    call.parameters.emplace_back("RoleArn", role.arn);
    call.parameters.emplace_back("RoleSessionName", role.session_name.empty() ? "tnr" : role.session_name);
    if (!role.external_id.empty()) call.parameters.emplace_back("ExternalId", role.external_id);
    if (!role.duration_s.empty()) call.parameters.emplace_back("DurationSeconds", role.duration_s);
    auto reply = ask_with(own, call);
    if (!reply) return reply.error();
    if (!reply->ok()) return refused(reply->refusal);
    return http::understood("AWS", [&]() -> Result<Keys> {
        auto keys = reply->body.root().first_element_by_path((call.action + "Result/Credentials").c_str());
        return Keys{required(keys, "AccessKeyId"), required(keys, "SecretAccessKey"), required(keys, "SessionToken"),
                    own.region};
    });
}

Result<Keys> Api::take_role_by_token(const std::string& file, const Role& role) {
    const std::string token = stripped(small_file(file));
    if (token.empty())
        return Error{Error::Kind::auth, "there is no token in " + file + ", which AWS is to be told who we are by",
                     "AWS_WEB_IDENTITY_TOKEN_FILE, or web_identity_token_file of the profile, names that file"};
    client_.hide(token);
    return take_role({}, role, {.action = "AssumeRoleWithWebIdentity", .parameters = {{"WebIdentityToken", token}}});
}

Result<Api::Reply> Api::ask(const Call& call) {
    auto found = keys();
    if (!found) return found.error();
    return ask_with(*found, call);
}

Result<Api::Reply> Api::ask_with(const Keys& keys, const Call& call) {
    Parameters all = {{"Action", call.action}};
    for (const auto& [service, version] : ec2_and_sts_versions)
        if (call.service == service) all.emplace_back("Version", version);
    all.insert(all.end(), call.parameters.begin(), call.parameters.end());
    http::Request request{.method = "POST",
                          .url = endpoint(call.service, call.region) + "/",
                          .headers = {"Content-Type: application/x-www-form-urlencoded; charset=utf-8"},
                          .body = form(all),
                          .repeatable = call.repeatable,
                          .told = told(all)};
    if (!keys.id.empty()) request.signature = http::AwsSignature{keys.id, keys.secret, call.region, call.service};
    if (!keys.token.empty()) request.headers.push_back("X-Amz-Security-Token: " + keys.token);
    request.asks_for_patience = [repeatable = call.repeatable](const http::Response& response) {
        return wants_patience(response, repeatable);
    };
    auto response = client_.send(request);
    if (!response) return response.error();
    Reply reply{.refusal = refusal_in(*response)};
    if (!reply.ok()) return reply;
    auto xml = Xml::parse(response->body);
    if (!xml || std::string(xml->root().name()) != call.action + "Response")
        return Error{Error::Kind::remote,
                     "AWS's reply to " + call.action + (xml ? " makes no sense" : " is no XML") +
                         (reply.refusal.request_id.empty() ? "" : " (request " + reply.refusal.request_id + ")")};
    reply.body = *xml;
    return reply;
}

Result<Xml> Api::get(const Call& call) {
    auto reply = ask(call);
    if (!reply) return reply.error();
    if (!reply->ok()) return refused(reply->refusal);
    return reply->body;
}

Result<Api::Listed> Api::list(const Call& call, const char* path) {
    Listed listed;
    Call next = call;
    std::string token;
    for (http::Pages pages; pages.go_on(token);) {
        auto body = get(next);
        if (!body) return body.error();
        listed.pages.push_back(*body);
        for (auto item : items(body->root(), path)) listed.items.push_back(item);
        token = text(body->root(), "nextToken");
        if (token.empty()) return listed;
        next = call;
        next.parameters.emplace_back("NextToken", token);
    }
    return Error{Error::Kind::remote, "AWS's reply to " + call.action + " does not end"};
}

Result<Json> Api::json(const std::string& service, const std::string& target, const Json& body) {
    auto found = keys();
    if (!found) return found.error();
    http::Request request{.method = "POST",
                          .url = endpoint(service, fallback_region) + "/",
                          .headers = {"Content-Type: application/x-amz-json-1.1", "X-Amz-Target: " + target},
                          .body = body.dump(),
                          .repeatable = true,
                          .signature = http::AwsSignature{found->id, found->secret, fallback_region, service}};
    if (!found->token.empty()) request.headers.push_back("X-Amz-Security-Token: " + found->token);
    request.asks_for_patience = [](const http::Response& response) { return wants_patience(response, true); };
    auto response = client_.send(request);
    if (!response) return response.error();
    if (!response->ok()) return refused(refusal_in(*response));
    Json reply = http::parse_json(response->body);
    if (reply.is_object()) return reply;
    return Error{Error::Kind::remote, "AWS's reply to " + target + " is no JSON"};
}

Error Api::refused(const Refusal& refusal) const {
    const std::string& code = refusal.code;
    std::string words = "AWS: " + refusal.words.substr(0, words_max) + (refusal.words.size() > words_max ? "…" : "");
    words += (refusal.words.empty() ? "" : " ") + std::string("(") + code;
    words = client_.shown(words + (refusal.request_id.empty() ? ")" : ", request " + refusal.request_id + ")"));
    const bool about_keys = is_one_of(key_codes, code), about_time = is_one_of(time_codes, code);
    const long ahead = ahead_of(refusal.date);
    if (about_time || (about_keys && std::abs(ahead) > skew_seconds_max))
        return Error{Error::Kind::remote,
                     "this computer's clock is wrong, so AWS refuses its requests: it is " + in_words(std::abs(ahead)) +
                         (ahead < 0 ? " behind" : " ahead of") + " AWS's",
                     "set it, for example by `sudo timedatectl set-ntp true`; " + words};
    const std::string came_from = "the keys came from " + credentials_.source;
    if (about_keys) return Error{Error::Kind::auth, words, came_from + "; `tnr login aws` takes new ones"};
    if (is_one_of(expired_codes, code))
        return Error{Error::Kind::auth, words, came_from + ", and have expired; get new ones, or `tnr login aws`"};
    if (is_one_of(permission_codes, code))
        return Error{Error::Kind::auth, words,
                     came_from + ", which may not do this; their owner's policy must allow it"};
    if (is_not_found(code)) return Error{Error::Kind::not_found, words};
    if (is_one_of(throttled_codes, code))
        return Error{Error::Kind::remote, words, "too many requests for now; try again in a minute"};
    if (ends_with(code, "LimitExceeded"))
        return Error{Error::Kind::remote, words,
                     "your limits, and how to have them raised: "
                     "https://console.aws.amazon.com/servicequotas/home/services/ec2/quotas"};
    if (refusal.status >= 300 && refusal.status < 400)
        return Error{Error::Kind::remote, words,
                     "the address of a cloud's API does not move: is the endpoint that you set right?"};
    return Error{Error::Kind::remote, words,
                 refusal.status >= 500 ? "the trouble is on the cloud's side; try again in a while" : ""};
}

}  // namespace tnr::aws
