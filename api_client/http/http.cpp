// One easy handle, which keeps its connection; a loop around it that decides what to repeat.
#include "api_client/http/http.hpp"

#include <curl/curl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "api_client/base/handles.hpp"
#include "api_client/http/certificates.hpp"
#include "api_client/http/redact.hpp"

namespace tnr::http {
namespace {

constexpr const char* no_way_hint = "check your network; proxies are taken from HTTPS_PROXY and NO_PROXY";

using CurlEasy = Handle<CURL, curl_easy_cleanup>;
using CurlMulti = Handle<CURLM, curl_multi_cleanup>;
using CurlHeaders = Handle<curl_slist, curl_slist_free_all>;

constexpr long connections_max = 5;
constexpr int first_pause_ms = 500, pause_ms_max = 20'000;
// The kernel takes a peer for gone that answers none of nine: within a minute.
constexpr int keepalive_after_s = 15, keepalive_every_s = 5;
// One in our own network is gone after so long without a word; macOS has only the minute.
constexpr int own_keepalive_after_s = 4, own_keepalive_every_s = 3, own_silent_ms_max = 10'000;
// All headers of a reply, and of the interim ones before it, which may come without end; not every curl has a limit.
constexpr size_t header_bytes_max = 256 << 10;
// A secret shorter than this is no secret, and hiding it would garble every message.
constexpr size_t secret_length_min = 6;

CURL* new_handle() {
    static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
    return ready == CURLE_OK ? curl_easy_init() : nullptr;
}

int set_silent_max(void*, curl_socket_t socket, curlsocktype) {
#ifdef TCP_USER_TIMEOUT
    (void)setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &own_silent_ms_max, sizeof own_silent_ms_max);
#else
    (void)socket;
#endif
    return CURL_SOCKOPT_OK;
}

// As curl_easy_perform, but CURLE_ABORTED_BY_CALLBACK as soon as somebody rings.
CURLcode perform(CURLM* multi, CURL* easy, int bell) {
    constexpr int progress_every_ms = 1000;
    curl_waitfd ringing{bell, CURL_WAIT_POLLIN, 0};
    const unsigned bells = bell >= 0 ? 1 : 0;
    auto good = curl_multi_add_handle(multi, easy);
    for (int running = 1; good == CURLM_OK && running > 0 && ringing.revents == 0;) {
        good = curl_multi_perform(multi, &running);
        if (good == CURLM_OK && running > 0) good = curl_multi_poll(multi, &ringing, bells, progress_every_ms, nullptr);
    }
    CURLcode code = ringing.revents != 0 ? CURLE_ABORTED_BY_CALLBACK : CURLE_FAILED_INIT;
    int more = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi, &more))
        if (message->msg == CURLMSG_DONE) code = message->data.result;
    curl_multi_remove_handle(multi, easy);
    return code;
}

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

std::string trimmed(const std::string& text) {
    const size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string::npos) return "";
    return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// Where the reply goes while it comes.
struct Sink {
    Response response = {};
    size_t bytes_max = 0, header_bytes = 0;
    bool too_large = false;
    const Surroundings* world = nullptr;
    const std::function<bool(std::string_view)>* on_bytes = nullptr;
};

size_t on_body(char* bytes, size_t size, size_t count, void* sink_pointer) {
    auto& sink = *static_cast<Sink*>(sink_pointer);
    if (*sink.on_bytes) return (*sink.on_bytes)({bytes, size * count}) ? size * count : 0;
    sink.too_large = sink.response.body.size() + size * count > sink.bytes_max;
    if (sink.too_large) return 0;
    sink.response.body.append(bytes, size * count);
    return size * count;
}

size_t on_header(char* bytes, size_t size, size_t count, void* sink_pointer) {
    auto& sink = *static_cast<Sink*>(sink_pointer);
    sink.header_bytes += size * count;
    sink.too_large = sink.header_bytes > header_bytes_max;
    if (sink.too_large) return 0;
    const std::string line(bytes, size * count);
    if (line.compare(0, 5, "HTTP/") == 0) sink.response.headers.clear();  // a proxy's reply came before
    if (size_t colon = line.find(':'); colon != std::string::npos)
        sink.response.headers[lower(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
    return size * count;
}

// Called by curl at least once a second; 1 ends the transfer with CURLE_ABORTED_BY_CALLBACK.
int on_progress(void* sink_pointer, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    const Surroundings& world = *static_cast<Sink*>(sink_pointer)->world;
    return world.pause && !world.pause(0) ? 1 : 0;
}

const char* variable(std::initializer_list<const char*> names) {
    for (const char* name : names)
        if (const char* value = std::getenv(name); value && *value) return value;
    return nullptr;
}

std::string host_of(const std::string& url) {
    const size_t begin = url.find("://");
    if (begin == std::string::npos) return url;
    return url.substr(begin + 3, url.find_first_of("/?", begin + 3) - begin - 3);
}

// A cloud's metadata service: the host under the machine answers it, and neither a network nor a proxy comes between.
bool is_metadata_service(const std::string& url) {
    const std::string host = host_of(url);
    return host == "metadata.google.internal" || host == "169.254.169.254";
}

// A line break in a token would end its header and begin another.
Result<> check_headers(const Request& request) {
    for (const auto& header : request.headers)
        for (unsigned char letter : header)
            if (letter < ' ' || letter == 0x7f)
                return Error{Error::Kind::usage,
                             "what is to be sent to " + host_of(request.url) + " as " +
                                 header.substr(0, header.find(':')) +
                                 " has a line break or another control character in it",
                             "is there one in the token, or in the file that it came from?"};
    return Ok{};
}

std::string seconds(int milliseconds) {
    return std::to_string((milliseconds + 999) / 1000) + " s";
}

}  // namespace

struct Client::Curl {
    CurlEasy easy{new_handle()};
    CurlMulti multi{easy ? curl_multi_init() : nullptr};  // has the connections
};

struct Client::Outcome {
    Response response = {};
    CURLcode code = CURLE_OK;
    std::string words = {};  // curl's, about a code that is not CURLE_OK
    bool sent = false;       // the cloud may have acted on it
    bool too_large = false, interrupted = false;
    long retry_after_s = 0;
    int took_ms = 0;
};

std::string Response::request_id() const {
    for (const char* name : {"x-request-id", "x-amzn-requestid", "x-correlation-id", "x-ms-request-id"})
        if (auto found = headers.find(name); found != headers.end()) return found->second;
    return "";
}

Client::Client(Surroundings world, Limits limits)
    : curl_(std::make_unique<Curl>()), world_(std::move(world)), limits_(limits) {}
Client::Client(Client&&) noexcept = default;
Client::~Client() = default;

void Client::hide(const std::string& secret) {
    if (secret.size() >= secret_length_min) secrets_.push_back(secret);
}

std::string Client::shown(const std::string& text) const {
    return without(text, secrets_);
}

void Client::explain_request(const Request& request) const {
    std::string line = "> " + request.method + " " + request.url;
    if (!request.told.empty())
        line += " " + request.told;
    else if (!request.body.empty())
        line += " " + redacted(request.body, secrets_);
    world_.explain(shown(line));
}

void Client::explain_outcome(const Request& request, const Outcome& outcome) const {
    const bool replied = outcome.code == CURLE_OK;
    std::string line = "< " + (replied ? std::to_string(outcome.response.status) : outcome.words) + " in " +
                       std::to_string(outcome.took_ms) + " ms";
    if (replied && !outcome.response.body.empty())
        line += " " + (request.brings_secrets && outcome.response.ok() ? "(hidden)"
                                                                       : redacted(outcome.response.body, secrets_));
    world_.explain(shown(line));
}

int Client::total_ms(const Request& request) const {
    return request.total_ms > 0 ? request.total_ms : limits_.total_ms;
}

Client::Outcome Client::transfer(const Request& request) {
    CURL* curl = curl_->easy.get();
    curl_easy_reset(curl);  // options only: connections stay
    Sink sink;
    sink.bytes_max = limits_.reply_bytes_max;
    sink.world = &world_;
    sink.on_bytes = &request.on_bytes;
    char words[CURL_ERROR_SIZE] = "";

    curl_slist* list = nullptr;
    bool typed = request.body.empty();
    for (const auto& header : request.headers) {
        typed |= lower(header).compare(0, 13, "content-type:") == 0;
        list = curl_slist_append(list, header.c_str());
    }
    if (!typed) list = curl_slist_append(list, "Content-Type: application/json");
    if (request.signature)  // what is signed is also sent; older versions of curl sign the host without its port
        list = curl_slist_append(list, ("Host: " + host_of(request.url)).c_str());
    else
        list = curl_slist_append(list, "Expect:");  // no round trip before the body
    const CurlHeaders headers(list);

    curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
    if (!request.body.empty() || request.method == "POST" || request.method == "PUT") {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, static_cast<long>(request.body.size()));
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.c_str());
    }
    if (const auto& signature = request.signature) {
        const std::string how = "aws:amz:" + signature->region + ":" + signature->service;
        curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, how.c_str());
        curl_easy_setopt(curl, CURLOPT_USERNAME, signature->key.c_str());
        curl_easy_setopt(curl, CURLOPT_PASSWORD, signature->secret.c_str());
    }
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "tnr");
    curl_easy_setopt(curl, CURLOPT_ACCEPT_ENCODING, "");
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_2TLS});
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    // When a kept connection breaks before the reply, curl sends everything once more by itself, an order too.
    const bool may_be_sent_twice = request.repeatable || request.on_kept_connection;
    curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, may_be_sent_twice ? 0L : 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(limits_.connect_ms));
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, long{total_ms(request)});
#if LIBCURL_VERSION_NUM >= 0x075700
    // The thread that asks for a name is left to end by itself. Else curl waits for it, and a name server that says nothing
    // has longer than the times above, and than the bell.
    curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);
#endif
    const char* chosen = variable({"CURL_CA_BUNDLE", "SSL_CERT_FILE"});
    const std::string authorities = chosen ? chosen : system_authorities();
    if (!authorities.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, authorities.c_str());
    if (const char* folder = variable({"SSL_CERT_DIR"})) curl_easy_setopt(curl, CURLOPT_CAPATH, folder);
    // Plain http is for this computer (check_endpoint), and a proxy would be told the token.
    const bool plain = request.url.compare(0, 7, "http://") == 0;
    if (plain || request.own_network) curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    // A thousand servers that have come from another member of the same service leave it no idle connections.
    curl_multi_setopt(curl_->multi.get(), CURLMOPT_MAXCONNECTS, request.own_network ? 1L : connections_max);
    // For a reply that comes while things happen (on_bytes), and may be silent for minutes, on whichever kept connection.
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    const bool own = request.own_network;
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPIDLE, long{own ? own_keepalive_after_s : keepalive_after_s});
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPINTVL, long{own ? own_keepalive_every_s : keepalive_every_s});
    if (own) curl_easy_setopt(curl, CURLOPT_SOCKOPTFUNCTION, set_silent_max);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, words);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &sink);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, &sink);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &sink);

    Outcome outcome;
    outcome.code = perform(curl_->multi.get(), curl, world_.bell);
    outcome.words = *words ? words : curl_easy_strerror(outcome.code);
    long status = 0;
    curl_off_t wait_s = 0, before_sending_us = 0, total_us = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &wait_s);  // seconds, also where the cloud named a date
    curl_easy_getinfo(curl, CURLINFO_PRETRANSFER_TIME_T, &before_sending_us);
    curl_easy_getinfo(curl, CURLINFO_TOTAL_TIME_T, &total_us);
    outcome.response = std::move(sink.response);
    outcome.response.status = static_cast<int>(status);
    outcome.too_large = sink.too_large;
    outcome.interrupted = outcome.code == CURLE_ABORTED_BY_CALLBACK;
    outcome.sent = before_sending_us > 0;
    outcome.retry_after_s = static_cast<long>(wait_s);
    outcome.took_ms = static_cast<int>(total_us / 1000);
    return outcome;
}

namespace {

bool certificate_refused(CURLcode code) {
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
}

// The connection was the trouble, not what we sent or what came.
bool broke(CURLcode code) {
    constexpr CURLcode codes[] = {CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY, CURLE_COULDNT_CONNECT,
                                  CURLE_OPERATION_TIMEDOUT,   CURLE_GOT_NOTHING,           CURLE_SEND_ERROR,
                                  CURLE_RECV_ERROR,           CURLE_PARTIAL_FILE,          CURLE_HTTP2,
                                  CURLE_HTTP2_STREAM,         CURLE_SSL_CONNECT_ERROR};
    return std::find(std::begin(codes), std::end(codes), code) != std::end(codes);
}

bool asks_for_patience(const Request& request, const Response& response) {
    if (request.asks_for_patience) return request.asks_for_patience(response);
    const int status = response.status;
    if (status == 429) return true;  // refused before anything was done
    return request.repeatable && (status == 500 || status == 502 || status == 503 || status == 504);
}

}  // namespace

Error Client::failure(const Request& request, const Outcome& outcome) const {
    if (outcome.interrupted) return Error{Error::Kind::internal, "interrupted"};
    const std::string host = host_of(request.url);
    if (outcome.too_large && outcome.response.body.empty())
        return Error{Error::Kind::remote, host + "'s reply has more headers than any cloud's; it was dropped"};
    if (outcome.too_large)
        return Error{Error::Kind::remote, host + "'s reply is larger than " +
                                              std::to_string(limits_.reply_bytes_max >> 20) + " MiB; it was dropped"};
    if (certificate_refused(outcome.code))
        return Error{
            Error::Kind::network, "the certificate of " + host + " is not trusted: " + shown(outcome.words),
            system_authorities().empty()
                ? "this computer has no list of certificate authorities: install the package ca-certificates, or "
                  "point SSL_CERT_FILE at such a list"
                : "behind a proxy with a certificate authority of its own, point SSL_CERT_FILE at its certificate"};
    if (outcome.code == CURLE_OPERATION_TIMEDOUT)
        return Error{Error::Kind::network,
                     outcome.sent ? host + " did not end its reply within " + seconds(total_ms(request))
                                  : host + " cannot be reached: no connection within " + seconds(limits_.connect_ms),
                     outcome.sent ? "check your network and the cloud's status page" : no_way_hint};
    return Error{Error::Kind::network, "no reply from " + host + ": " + shown(outcome.words), no_way_hint};
}

Result<Response> Client::send(const Request& request) {
    if (!curl_->multi) return Error{Error::Kind::internal, "libcurl could not be started"};
    if (auto good = check_endpoint(request.url); !good && !request.own_network) return good.error();
    if (auto good = check_headers(request); !good) return good.error();
    int timeouts = 0;
    for (int tries = 1;; ++tries) {
        if (world_.explain) explain_request(request);
        Outcome outcome = transfer(request);
        const bool replied = outcome.code == CURLE_OK;
        if (world_.explain) explain_outcome(request, outcome);
        if (auto date = outcome.response.headers.find("date"); world_.on_date && date != outcome.response.headers.end())
            world_.on_date(date->second);
        bool again = replied ? asks_for_patience(request, outcome.response)
                             : broke(outcome.code) && (request.repeatable || !outcome.sent);
        timeouts += outcome.code == CURLE_OPERATION_TIMEDOUT;
        if (outcome.interrupted || outcome.too_large) again = false;
        if (tries >= limits_.tries_max || timeouts >= limits_.timeouts_max) again = false;
        int wait_ms = std::min(pause_ms_max, first_pause_ms << (tries - 1));
        wait_ms = static_cast<int>(wait_ms * (0.5 + 0.5 * (world_.dice ? world_.dice() : 1.0)));
        if (outcome.retry_after_s > limits_.retry_after_max_ms / 1000)
            again = false;
        else
            wait_ms = std::max(wait_ms, static_cast<int>(outcome.retry_after_s * 1000));
        if (!again) {
            if (replied) return std::move(outcome.response);
            return failure(request, outcome);
        }
        if (world_.explain) world_.explain("  again in " + std::to_string(wait_ms) + " ms");
        if (world_.pause && !world_.pause(wait_ms)) return Error{Error::Kind::internal, "interrupted"};
    }
}

Result<> check_endpoint(const std::string& url) {
    const std::string host = host_of(url), name = host.substr(0, host.rfind(':'));
    const bool plain_host = !host.empty() && host.find('@') == std::string::npos;  // not 127.0.0.1@elsewhere
    if (url.compare(0, 8, "https://") == 0 && plain_host) return Ok{};
    const bool numeric = name.find_first_not_of("0123456789.") == std::string::npos;
    const bool here = name == "localhost" || name == "[::1]" || (numeric && name.compare(0, 4, "127.") == 0);
    if (url.compare(0, 7, "http://") == 0 && plain_host && (here || is_metadata_service(url))) return Ok{};
    if (host.find('@') != std::string::npos)  // not repeated: a password may be there
        return Error{Error::Kind::usage, "an address for a cloud's API has a user's name or a password in it",
                     "take out what is before the @: tokens have variables of their own"};
    return Error{Error::Kind::usage, "'" + url + "' is no address for a cloud's API",
                 "it begins with https://; plain http would show your token to the network, and is for localhost only"};
}

std::string escaped(const std::string& text) {
    static constexpr char digits[] = "0123456789ABCDEF";
    std::string out;
    for (unsigned char c : text) {
        if (std::isalnum(c) || std::strchr("-_.~", c)) {
            out += static_cast<char>(c);
        } else {
            out += '%';
            out += digits[c >> 4];
            out += digits[c & 15];
        }
    }
    return out;
}

}  // namespace tnr::http
