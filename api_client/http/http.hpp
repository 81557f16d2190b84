// HTTP for the drivers, over libcurl: one request, and the reply to it or an Error that says why there is none.
//
// What may be repeated is repeated, with growing pauses: replies that ask for patience (429, 5xx) and connections that
// broke. Redirects are not followed: no cloud's API has them, and a token must not travel to another host. Proxies come
// from the usual variables (HTTPS_PROXY, NO_PROXY, …), certificates from SSL_CERT_FILE, CURL_CA_BUNDLE and SSL_CERT_DIR.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api_client/base/result.hpp"

namespace tnr::http {

// What AWS wants requests signed with (SigV4). libcurl signs, with this computer's clock.
struct AwsSignature {
    std::string key = {}, secret = {}, region = {}, service = {};
};

struct Response;

struct Request {
    std::string method = "GET";
    std::string url = {};
    std::vector<std::string> headers = {};  // "Name: value"
    std::string body = {};                  // JSON unless a header says otherwise
    // Doing it twice is the same as doing it once. Else it is repeated only when it certainly was not done.
    bool repeatable = false;
    std::optional<AwsSignature> signature = {};
    // What `--explain` shows in place of a body that is no JSON.
    std::string told = {};
    // The reply to it is a secret, whatever its fields are called: `--explain` shows none of it.
    bool brings_secrets = false;
    // True: the reply asks for patience, and the request is worth another try. Empty: its status decides.
    std::function<bool(const Response&)> asks_for_patience = {};
    // Not to be repeated, but conditional: where a kept connection breaks, curl may send it twice without harm.
    bool on_kept_connection = false;
    // To a service of the operator's own network: plain http will do, and no proxy stands between.
    bool own_network = false;
    // This one's, in place of its client's Limits::total_ms; 0: that.
    int total_ms = 0;
    // Hears a reply's body while it comes, which is not kept; false ends it, with an Error. Empty: it is kept.
    std::function<bool(std::string_view bytes)> on_bytes = {};
};

struct Response {
    int status = 0;
    std::map<std::string, std::string> headers = {};  // names in small letters
    std::string body = {};

    bool ok() const { return status >= 200 && status < 300; }
    // The cloud's name for this request, for its support; empty where it gives none.
    std::string request_id() const;
};

// From outside, so that tests neither wait nor throw dice. A driver may ask several regions at once: `pause` and `dice` are
// called on several threads then.
struct Surroundings {
    std::function<bool(int milliseconds)> pause = {};  // false: the user pressed Ctrl-C; pause(0) only asks
    std::function<double()> dice = {};                 // 0 to 1: spreads repetitions out
    // Told about each request and reply, secrets hidden; may be empty.
    std::function<void(const std::string& line)> explain = {};
    // Hears the server's own time with each reply, as HTTP writes it; may be empty.
    std::function<void(const std::string& date)> on_date = {};
    // A descriptor that is readable from when `pause` says false on: what waits ends at once then, else within a second.
    int bell = -1;
};

struct Limits {
    int connect_ms = 10'000;
    int total_ms = 60'000;               // one try, from connecting to the reply's last byte
    size_t reply_bytes_max = 32u << 20;  // DigitalOcean's list of sizes has 1 MB; a reply that never ends ends here
    int tries_max = 5;                   // with pauses of at most 0.5, 1, 2, 4 s
    int timeouts_max = 2;                // of these, such as took total_ms
    int retry_after_max_ms = 60'000;     // asked for more patience than that, the user is told instead
};

// Keeps its connection open between requests. Not thread-safe: one for each thread.
class Client {
public:
    explicit Client(Surroundings world, Limits limits = {});
    Client(Client&&) noexcept;
    ~Client();

    // Any status is a Response. An Error of kind network: no reply came; of kind internal: the user interrupted it.
    Result<Response> send(const Request& request);

    // From now on this text is hidden wherever we show a request, a reply or an error.
    void hide(const std::string& secret);
    // `text` with all secrets hidden.
    std::string shown(const std::string& text) const;

private:
    struct Outcome;
    Outcome transfer(const Request& request);
    int total_ms(const Request& request) const;
    Error failure(const Request& request, const Outcome& outcome) const;
    void explain_request(const Request& request) const;
    void explain_outcome(const Request& request, const Outcome& outcome) const;

    struct Curl;
    std::unique_ptr<Curl> curl_;
    Surroundings world_;
    Limits limits_;
    std::vector<std::string> secrets_;
};

// An address that may be given a token: https, or plain http to this computer itself or to its cloud's metadata service,
// which no network carries further.
Result<> check_endpoint(const std::string& url);

// A value as part of a path or a query.
std::string escaped(const std::string& text);

}  // namespace tnr::http
