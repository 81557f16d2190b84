// See etcd.hpp.
#include "gpu_server/pool/etcd.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>

#include "api_client/http/oauth.hpp"
#include "gpu_server/pool/directory.hpp"
#include "gpu_server/pool/log.hpp"

namespace tnr::server::etcd {

using http::base64;
using nlohmann::json;

namespace {

// A line of a watch's answer that is longer than this is none: etcd's own limit for a request is 1.5 MiB.
constexpr size_t line_bytes_max = size_t{16} << 20;
constexpr const char* password_hint =
    "nodes have no password at etcd: etcdctl auth disable, and a network of its own for it";
constexpr const char* certificate_hint =
    "SSL_CERT_FILE names the authorities that it is checked against; for the service, in /etc/default/tnr-gpu-server";
// gRPC's codes.
constexpr int not_found = 5, exhausted = 8, out_of_range = 11;

std::string from_base64(const std::string& text) {
    static const auto values = [] {
        std::array<int8_t, 256> made;
        made.fill(-1);
        std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for (size_t i = 0; i < letters.size(); ++i)
            made[static_cast<unsigned char>(letters[i])] = static_cast<int8_t>(i);
        return made;
    }();
    std::string bytes;
    uint32_t bits = 0;
    int have = 0;
    for (unsigned char letter : text) {
        if (values[letter] < 0) break;  // '=', the end
        bits = bits << 6 | static_cast<uint32_t>(values[letter]);
        have += 6;
        if (have < 8) continue;
        have -= 8;
        bytes += static_cast<char>(bits >> have & 0xff);
    }
    return bytes;
}

// The gateway writes 64-bit numbers as texts, and leaves out what is zero.
int64_t number(const json& object, const char* key) {
    auto found = object.find(key);
    if (found == object.end()) return 0;
    return found->is_string() ? std::stoll(found->get<std::string>()) : found->get<int64_t>();
}

KeyValue key_value(const json& pair) {
    return {from_base64(pair.value("key", "")), from_base64(pair.value("value", "")), number(pair, "create_revision"),
            number(pair, "mod_revision"), number(pair, "lease")};
}

// The first key behind all that begin so.
std::string end_of(std::string prefix) {
    ++prefix.back();
    return prefix;
}

json to_json(const Span& span) {
    json range = {{"key", base64(span.first)}, {"range_end", base64(span.end)}};
    if (span.most > 0) range["limit"] = std::to_string(span.most);
    if (span.keys_only) range["keys_only"] = true;
    if (span.changed_after > 0) range["min_mod_revision"] = std::to_string(span.changed_after + 1);
    return range;
}

// Whoever asked takes what is behind its own prefix. What else is on that port, or a proxy's mistake, may send any key.
bool is_in(const Span& span, const std::string& key) {
    return key >= span.first && key < span.end;
}

Listing listing_in(const json& answer, const Span& span) {
    Listing listing;
    listing.revision = number(answer.at("header"), "revision");
    listing.count = number(answer, "count");
    if (auto pairs = answer.find("kvs"); pairs != answer.end())
        for (auto& pair : *pairs) {
            auto value = key_value(pair);
            if (!is_in(span, value.key)) throw std::out_of_range("a key that was not asked for");
            listing.values.push_back(std::move(value));
        }
    return listing;
}

Error nonsense(const Address& address, const std::string& why) {
    return {Error::Kind::remote, "the pool's store, " + address.text + ", answered nonsense: " + printable(why),
            "is that an etcd of version 3.4 or newer?"};
}

Error refusal(const Address& address, int code, const std::string& why) {
    const std::string store = "the pool's store, " + address.text + ",";
    if (code == exhausted && why.find("space exceeded") != std::string::npos)
        return {Error::Kind::remote, store + " is full (" + why + ")", full_hint};
    // gRPC says "invalid argument", and etcd one of several sentences.
    if (why.find("user name is empty") != std::string::npos || why.find("permission denied") != std::string::npos)
        return {Error::Kind::remote, store + " wants to know who asks (" + why + ")", password_hint};
    if (code == exhausted)
        return {Error::Kind::remote, store + " has too much to do (" + why + ")", "try again in some seconds"};
    return {code == not_found || code == out_of_range ? Error::Kind::not_found : Error::Kind::remote,
            store + " refused: " + why};
}

}  // namespace

Span all_under(const std::string& prefix) {
    return {prefix, end_of(prefix)};
}

Span just(const std::string& key) {
    return {key, key + '\0'};
}

std::vector<Span> all_around(const std::string& prefix, const std::string& after, int most) {
    const auto next = after + '\0';
    return {{next, end_of(prefix), most}, {prefix, next, most}};
}

bool is_address(const std::string& text) {
    return text.starts_with("etcd://") || text.starts_with("etcds://");
}

// "host", "host:port" or "[fd00::1]:port", as a URL has it; empty where it is none of these.
static std::string with_port(const std::string& host) {
    const auto bracket = host.starts_with('[') ? host.find(']') : 0;
    const auto colon = bracket == std::string::npos ? bracket : host.find(':', bracket);
    if (host.empty() || colon == 0 || bracket == std::string::npos) return "";
    if (colon == std::string::npos) return host + ":2379";
    const char *begin = host.data() + colon + 1, *end = host.data() + host.size();
    uint16_t port = 0;
    const auto read = std::from_chars(begin, end, port);
    return read.ec == std::errc() && read.ptr == end && port != 0 ? host : "";
}

Result<Address> parse_address(const std::string& text) {
    Error wrong{Error::Kind::usage, "'" + text + "' is no store", "it looks like etcd://10.0.0.1:2379,10.0.0.2:2379"};
    if (!is_address(text)) return wrong;
    const auto begin = text.find("://") + 3, slash = text.find('/', begin);
    Address address;
    address.text = text;
    std::string pool = slash == std::string::npos ? "" : text.substr(slash + 1);
    if (pool.find('/') != std::string::npos) return wrong;
    address.prefix = pool.empty() ? "/tnr/" : "/tnr-" + pool + "/";
    std::string hosts = text.substr(begin, slash == std::string::npos ? slash : slash - begin);
    for (size_t at = 0; at <= hosts.size();) {
        auto comma = std::min(hosts.find(',', at), hosts.size());
        auto host = with_port(hosts.substr(at, comma - at));
        if (host.empty()) return wrong;
        address.urls.push_back((text.starts_with("etcds") ? "https://" : "http://") + host);
        at = comma + 1;
    }
    return address;
}

Txn& Txn::if_absent(const std::string& key) {
    return if_created_at(key, 0);
}
Txn& Txn::if_created_at(const std::string& key, int64_t revision) {
    conditions.push_back({key, "CREATE", std::to_string(revision)});
    return *this;
}
Txn& Txn::if_changed_at(const std::string& key, int64_t revision) {
    conditions.push_back({key, "MOD", std::to_string(revision)});
    return *this;
}
Txn& Txn::if_is(const std::string& key, const std::string& value) {
    conditions.push_back({key, "VALUE", value});
    return *this;
}
Txn& Txn::if_none_newer(const std::string& prefix, int64_t revision) {
    conditions.push_back({prefix, "CREATE", std::to_string(revision + 1), end_of(prefix)});
    return *this;
}
Txn& Txn::put(const std::string& key, const std::string& value, int64_t lease) {
    operations.push_back({key, value, lease});
    return *this;
}
Txn& Txn::remove(const std::string& key) {
    operations.push_back({key, std::nullopt, 0});
    return *this;
}
Txn& Txn::also(Txn part) {
    parts.push_back(std::move(part));
    return *this;
}
Txn& Txn::read(const Span& span) {
    reads.push_back(span);
    return *this;
}

Client::Client(Address address, http::Limits limits, StopAsked stopped, int most_patience_ms)
    : address_(std::move(address)),
      least_patience_ms_(limits.total_ms),
      most_patience_ms_(std::max(limits.total_ms, most_patience_ms)),
      patience_ms_(limits.total_ms),
      http_({.pause = [stopped](int) { return !stopped(); }, .bell = stopped.bell},
            [&] {
                limits.tries_max = 1;  // whoever calls knows better whether it is worth another try
                return limits;
            }()),
      current_(std::random_device{}() % address_.urls.size()) {}

Result<http::Response> Client::send(http::Request request, const std::string& path) {
    request.method = "POST";
    request.own_network = request.on_kept_connection = true;  // transactions have conditions
    if (request.total_ms == 0) request.total_ms = patience_ms_;
    std::optional<Error> trouble;
    for (size_t tries = 0; tries < address_.urls.size(); ++tries) {
        request.url = address_.urls[current_] + path;
        const auto begun_ms = boot_ms();
        auto response = http_.send(request);
        // 503: it has no leader.
        if (response && response->status != 503) {
            const auto took_ms = static_cast<int>(boot_ms() - begun_ms);
            patience_ms_ = std::clamp(2 * took_ms, least_patience_ms_, most_patience_ms_);
            return response;
        }
        trouble = response ? Error{Error::Kind::network, address_.urls[current_] + " says that it cannot serve now"}
                           : response.error();
        current_ = (current_ + 1) % address_.urls.size();
        if (!request.repeatable) break;
    }
    patience_ms_ = std::min(2 * patience_ms_, most_patience_ms_);
    const bool mistrusted = trouble->what.find("is not trusted") != std::string::npos;
    return Error{Error::Kind::network, "the pool's store, " + address_.text + ", does not answer: " + trouble->what,
                 mistrusted ? certificate_hint : "look at the etcd there: etcdctl endpoint health"};
}

Result<json> Client::call(const std::string& path, const json& body, bool repeatable) try {
    http::Request request;
    request.body = body.dump();
    request.repeatable = repeatable;
    auto response = send(std::move(request), path);
    if (!response) return response.error();
    auto answer = json::parse(response->body, nullptr, /*allow_exceptions=*/false);
    if (!answer.is_object()) return nonsense(address_, response->body.substr(0, 200));
    if (response->ok()) return answer;
    return refusal(address_, answer.value("code", 0),
                   printable(answer.value("error", "status " + std::to_string(response->status))));
} catch (const json::exception& error) {
    return nonsense(address_, error.what());
}

Result<Listing> Client::list(const std::string& prefix) try {
    const auto span = all_under(prefix);
    auto answer = call("/v3/kv/range", to_json(span), true);
    if (!answer) return answer.error();
    return listing_in(*answer, span);
} catch (const std::exception& error) {
    return nonsense(address_, error.what());
}

Result<std::vector<Listing>> Client::list(const std::vector<Span>& spans) {
    std::vector<Listing> all;
    while (all.size() < spans.size())
        if (auto listed = list_at_once(spans, all.size(), all); !listed) return listed.error();
    return all;
}

// A transaction that only reads is one question for etcd, and writes nothing.
Result<> Client::list_at_once(const std::vector<Span>& spans, size_t from, std::vector<Listing>& all) try {
    const auto count = std::min(spans.size() - from, spans_max);
    json ranges = json::array();
    for (size_t i = from; i < from + count; ++i) ranges.push_back({{"request_range", to_json(spans[i])}});
    auto answer = call("/v3/kv/txn", {{"success", std::move(ranges)}}, true);
    if (!answer) return answer.error();
    auto& responses = answer->at("responses");
    if (responses.size() != count) return nonsense(address_, answer->dump().substr(0, 200));
    std::vector<Listing> found;  // all of them, or none
    for (size_t i = 0; i < count; ++i) found.push_back(listing_in(responses[i].at("response_range"), spans[from + i]));
    std::move(found.begin(), found.end(), std::back_inserter(all));
    return Ok{};
} catch (const std::exception& error) {
    return nonsense(address_, error.what());
}

static json to_json(const Txn& txn) {
    json compare = json::array(), success = json::array(), reads = json::array();
    for (auto& condition : txn.conditions) {
        const bool several = !condition.end.empty();
        json one = {
            {"key", base64(condition.key)}, {"target", condition.target}, {"result", several ? "LESS" : "EQUAL"}};
        if (several) one["range_end"] = base64(condition.end);
        if (condition.target == "VALUE")
            one["value"] = base64(condition.wanted);
        else
            one[condition.target == "CREATE" ? "create_revision" : "mod_revision"] = condition.wanted;
        compare.push_back(std::move(one));
    }
    for (auto& operation : txn.operations) {
        json one = {{"key", base64(operation.key)}};
        if (operation.value) {
            one["value"] = base64(*operation.value);
            if (operation.lease != 0) one["lease"] = std::to_string(operation.lease);
        }
        success.push_back({{operation.value ? "request_put" : "request_delete_range", std::move(one)}});
    }
    for (auto& part : txn.parts) success.push_back({{"request_txn", to_json(part)}});
    for (auto& span : txn.reads) reads.push_back({{"request_range", to_json(span)}});
    success.insert(success.end(), reads.begin(), reads.end());
    return {{"compare", std::move(compare)}, {"success", std::move(success)}, {"failure", std::move(reads)}};
}

Result<Committed> Client::commit(const Txn& txn) try {
    // Not repeatable by itself: the first may have been done, and its conditions hold no more.
    auto answer = call("/v3/kv/txn", to_json(txn), false);
    if (!answer) return answer.error();
    Committed committed{answer->value("succeeded", false), number(answer->at("header"), "revision"), {}, {}};
    if (txn.reads.empty() && txn.parts.empty()) return committed;
    const size_t parts = committed.done ? txn.parts.size() : 0;
    const size_t before = committed.done ? txn.operations.size() : 0;
    auto responses = answer->value("responses", json::array());
    if (responses.size() != before + parts + txn.reads.size()) return nonsense(address_, answer->dump().substr(0, 200));
    auto response = responses.begin() + static_cast<std::ptrdiff_t>(before);
    for (size_t i = 0; i < parts; ++i, ++response)
        committed.parts.push_back(response->at("response_txn").value("succeeded", false));
    for (auto& span : txn.reads) committed.found.push_back(listing_in((response++)->at("response_range"), span));
    return committed;
} catch (const std::exception& error) {
    return nonsense(address_, error.what());
}

Result<int64_t> Client::grant_lease(int64_t ttl_s) try {
    auto answer = call("/v3/lease/grant", {{"TTL", std::to_string(ttl_s)}}, true);
    if (!answer) return answer.error();
    auto lease = number(*answer, "ID");
    if (lease == 0) return nonsense(address_, answer->dump());
    return lease;
} catch (const std::exception& error) {
    return nonsense(address_, error.what());
}

Result<Client::Kept> Client::keep_alive(int64_t lease) try {
    auto answer = call("/v3/lease/keepalive", {{"ID", std::to_string(lease)}}, true);
    if (!answer) return answer.error();
    auto& result = answer->at("result");
    auto& header = result.at("header");
    if (auto term = number(header, "raft_term"); std::exchange(leaders_term_, term) != term) go_to_leader();
    return Kept{number(result, "TTL") > 0, number(header, "revision")};
} catch (const std::exception& error) {
    return nonsense(address_, error.what());
}

// If there is none now, or it does not answer, another will do.
void Client::go_to_leader() {
    for (size_t tries = 0; tries < address_.urls.size(); ++tries) {
        auto status = call("/v3/maintenance/status", json::object(), false);
        if (!status) continue;  // send() has gone on to the next
        // As texts: they have 64 bits without a sign.
        auto header = status->value("header", json::object());
        if (header.value("member_id", "") == status->value("leader", "none")) return;
        current_ = (current_ + 1) % address_.urls.size();
    }
}

Result<bool> Client::is_over(int64_t lease) try {
    auto answer = call("/v3/lease/timetolive", {{"ID", std::to_string(lease)}}, true);
    if (!answer) return answer.error();
    return number(*answer, "TTL") < 0;  // in seconds, without their fractions
} catch (const std::exception& error) {
    return nonsense(address_, error.what());
}

Result<> Client::revoke(int64_t lease) {
    auto answer = call("/v3/lease/revoke", {{"ID", std::to_string(lease)}}, true);
    if (!answer && answer.error().kind != Error::Kind::not_found) return answer.error();
    return Ok{};
}

Result<> Client::forget_before(int64_t revision) {
    auto answer = call("/v3/kv/compaction", {{"revision", std::to_string(revision)}}, true);
    if (!answer && answer.error().kind != Error::Kind::not_found) return answer.error();  // forgotten already
    return Ok{};
}

Result<std::string> Client::troubles() try {
    auto answer = call("/v3/maintenance/status", json::object(), true);
    if (!answer) return answer.error();
    std::string all;
    for (auto& one : answer->value("errors", json::array())) all += (all.empty() ? "" : ", ") + one.get<std::string>();
    return printable(all);
} catch (const std::exception& error) {
    return nonsense(address_, error.what());
}

Result<News> parse_news(std::string_view line, const Span& span) try {
    auto answer = json::parse(line);
    auto& result = answer.at("result");
    (void)number(result.at("header"), "revision");  // each of its answers has one
    News news;
    if (result.value("canceled", false))
        return Error{Error::Kind::not_found,
                     "etcd does not tell any more: " + result.value("cancel_reason", "compacted")};
    if (auto events = result.find("events"); events != result.end())
        for (auto& event : *events) {
            news.push_back({event.value("type", "PUT") == "DELETE", key_value(event.at("kv"))});
            if (!is_in(span, news.back().pair.key)) throw std::out_of_range("a key that is not followed");
        }
    return news;
} catch (const std::exception& error) {
    return Error{Error::Kind::remote, std::string("etcd told nonsense: ") + error.what()};
}

Result<> Client::watch(const std::string& prefix, int64_t from, int total_ms,
                       const std::function<bool(const News&)>& told) {
    http::Request request;
    // So a member that has lost the others says so: without, it goes on, silent. Not repeatable: its caller knows from where on.
    request.headers.push_back("Grpc-Metadata-hasleader: true");
    request.total_ms = total_ms;
    const auto span = all_under(prefix);
    json create = to_json(span);
    create["start_revision"] = std::to_string(from);
    request.body = json{{"create_request", create}}.dump();
    std::string rest;
    std::optional<Result<>> ended;
    request.on_bytes = [&](std::string_view bytes) {
        rest += bytes;
        for (size_t end; !ended && (end = rest.find('\n')) != std::string::npos; rest.erase(0, end + 1)) {
            if (end == 0) continue;
            auto news = parse_news(std::string_view(rest).substr(0, end), span);
            if (!news)
                ended = Result<>(news.error());
            else if (!told(*news))
                ended = Result<>(Ok{});
        }
        return !ended && rest.size() < line_bytes_max;
    };
    auto response = send(std::move(request), "/v3/watch");
    if (ended) return *ended;
    if (!response) return response.error();
    current_ = (current_ + 1) % address_.urls.size();  // this one may have nothing to say for a while
    return Error{Error::Kind::network, "etcd ended its report"};
}

}  // namespace tnr::server::etcd
