// The watch address's HTTP: what it understands, and what strangers can make it hold.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "gpu_server/watch/http_server.hpp"
#include "gpu_server/watch/limits.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::watch;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

// A server that answers "/big" with 8 MiB, and everything else with its path.
class Serving {
public:
    Serving() {
        UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        address_.sin_family = AF_INET;
        address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address_;
        REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address_), size) == 0);
        REQUIRE(listen(listener.get(), 64) == 0);
        getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address_), &size);
        std::vector<UniqueFd> listeners;
        listeners.push_back(std::move(listener));
        auto big = std::make_shared<const std::string>(8 << 20, 'x');
        auto started = HttpServer::start(std::move(listeners), [big](const HttpRequest& request) {
            if (request.path == "/big") return HttpAnswer{200, "text/plain", big};
            return HttpAnswer{200, "text/plain", std::make_shared<const std::string>("you asked for " + request.path)};
        });
        REQUIRE(started);
        server_ = std::move(*started);
    }
    // From one of loopback's many addresses.
    UniqueFd connected(uint32_t from = INADDR_LOOPBACK) const {
        UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in here{};
        here.sin_family = AF_INET;
        here.sin_addr.s_addr = htonl(from);
        REQUIRE(bind(client.get(), reinterpret_cast<sockaddr*>(&here), sizeof here) == 0);
        REQUIRE(connect(client.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_) == 0);
        return client;
    }
    std::string ask(const std::string& request) const {
        auto client = connected();
        say(client, request);
        return rest_of(client);
    }
    static void say(const UniqueFd& client, const std::string& text) {
        (void)!send(client.get(), text.data(), text.size(), MSG_NOSIGNAL);
    }
    static std::string rest_of(const UniqueFd& client) {
        std::string all;
        char piece[65536];
        for (ssize_t size; (size = recv(client.get(), piece, sizeof piece, 0)) > 0;)
            all.append(piece, static_cast<size_t>(size));
        return all;
    }

private:
    sockaddr_in address_{};
    std::unique_ptr<HttpServer> server_;
};

HttpParsed parsed(const std::string& text) {
    HttpRequest request;
    return parse_http_request(text, request);
}

long open_descriptors() {
    namespace fs = std::filesystem;
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

}  // namespace

TEST_CASE("a request is understood whole, and nothing else is", "[watch]") {
    HttpRequest request;
    const std::string text = "GET /metrics?all=1 HTTP/1.1\r\nAccept: */*\r\nHOST:  Example.org:80 \r\n\r\nmore";
    for (size_t size = 0; size < text.size() - 4; ++size) CHECK(parsed(text.substr(0, size)) == HttpParsed::incomplete);
    REQUIRE(parse_http_request(text, request) == HttpParsed::complete);
    CHECK(request.method == "GET");
    CHECK(request.path == "/metrics");
    CHECK(request.host == "example.org:80");
    for (const char* bad :
         {"GET\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/2\r\n\r\n", "GET x HTTP/1.1\r\n\r\n", "GET / / HTTP/1.1\r\n\r\n",
          "\r\n\r\n", "GET /\x01 HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
          "GET / HTTP/1.1\r\n: x\r\n\r\n", "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
          "GET / HTTP/1.1\r\nX: a\r\n b: c\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
          "GET / HTTP/1.1\r\nHost:\r\nHost: b\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nX-Host: a\r\n\r\n",
          "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
          "GET / HTTP/1.1\r\nHost: me@a\r\n\r\n"})
        CHECK(parsed(bad) == HttpParsed::malformed);
}

TEST_CASE("a request that says the whole address is answered under the host that it says there", "[watch]") {
    HttpRequest request;
    auto ask = [&](const std::string& target, const std::string& host = "Host: 127.0.0.1\r\n") {
        return parse_http_request("GET " + target + " HTTP/1.1\r\n" + host + "\r\n", request);
    };
    REQUIRE(ask("http://Gpu-1:14980/api/day?all=1") == HttpParsed::complete);
    CHECK(request.host == "gpu-1:14980");
    CHECK(request.path == "/api/day");
    REQUIRE(ask("HTTP://evil.example") == HttpParsed::complete);  // whatever the header says
    CHECK(request.host == "evil.example");
    CHECK(request.path == "/");
    REQUIRE(ask("http://[::1]:80?x=/y") == HttpParsed::complete);
    CHECK(request.host == "[::1]:80");
    CHECK(request.path == "/");
    CHECK(ask("http://127.0.0.1/", "") == HttpParsed::malformed);  // the header is demanded all the same
    for (const char* bad : {"http:///metrics", "http://:80/", "http://me:secret@127.0.0.1/", "https://127.0.0.1/",
                            "ftp://127.0.0.1/", "http:/metrics", "http:", "*", "127.0.0.1:80"})
        CHECK(ask(bad) == HttpParsed::malformed);
}

TEST_CASE("a name that somebody else could have made is told from an address", "[watch]") {
    for (const char* host :
         {"", "localhost", "localhost:14980", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:80", "::1"})
        CHECK(names_no_stranger(host));
    for (const char* host :
         {"evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "[x]"})
        CHECK_FALSE(names_no_stranger(host));
}

TEST_CASE("one request is answered, and the connection ended", "[watch]") {
    Serving serving;
    auto answer = serving.ask("GET /here HTTP/1.1\r\nHost:\r\n\r\n");
    CHECK(answer.starts_with("HTTP/1.1 200 OK\r\n"));
    CHECK(answer.ends_with("\r\n\r\nyou asked for /here"));
    CHECK(answer.find("default-src 'none'") != std::string::npos);
    auto head = serving.ask("HEAD /here HTTP/1.1\r\nHost:\r\n\r\n");
    CHECK(head.ends_with("\r\n\r\n"));
    CHECK(head.find("Content-Length: 19") != std::string::npos);
    CHECK(serving.ask("POST / HTTP/1.1\r\nHost:\r\n\r\n").starts_with("HTTP/1.1 405 "));
    auto all = serving.ask("OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n");
    CHECK(all.starts_with("HTTP/1.1 405 "));
    CHECK(all.find("\r\nAllow: GET, HEAD\r\n") != std::string::npos);
    CHECK(serving.ask("GET * HTTP/1.1\r\nHost:\r\n\r\n").starts_with("HTTP/1.1 400 "));
    CHECK(serving.ask("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    CHECK(serving.ask("GET /big HTTP/1.1\r\nHost:\r\n\r\n").size() > 8 << 20);
    std::string endless = "GET / HTTP/1.1\r\n";
    while (endless.size() <= request_bytes_max) endless += "X-More: 1234567890\r\n";
    CHECK(serving.ask(endless).starts_with("HTTP/1.1 431 "));
}

TEST_CASE("connections that say nothing keep nobody out, and hold a bounded number of places", "[watch]") {
    Serving serving;
    const auto before = open_descriptors();
    std::vector<UniqueFd> silent;
    for (int i = 0; i < 10'000; ++i) {
        auto one = serving.connected();
        Serving::say(one, "GET / HTTP/1.1\r\nX: ");
        if (i % 20 == 0) silent.push_back(std::move(one));  // the others leave in the middle
    }
    auto began = Clock::now();
    CHECK(serving.ask("GET /me HTTP/1.1\r\nHost:\r\n\r\n").ends_with("you asked for /me"));
    CHECK(Clock::now() - began < request_within);
    // Ours, the server's, and some that are on their way.
    CHECK(open_descriptors() - before <= std::ssize(silent) + static_cast<long>(connections_max) + 1);
}

TEST_CASE("who opens more connections than there are places ends none of another address", "[watch]") {
    Serving serving;
    constexpr uint32_t another = INADDR_LOOPBACK + 1;
    auto reader = serving.connected(), writer = serving.connected();
    Serving::say(reader, "GET /big HTTP/1.1\r\nHost:\r\n\r\n");  // more than fits on the way: it is read later
    Serving::say(writer, "GET /late HTTP/1.1\r\nHost:\r\n");
    std::vector<UniqueFd> flood;
    for (size_t i = 0; i < 5 * connections_max; ++i) {
        flood.push_back(serving.connected(another));
        Serving::say(flood.back(), "GET / HTTP/1.1\r\nX: ");
    }
    // The last one is served once all before it have been accepted.
    auto last = serving.connected(another);
    Serving::say(last, "GET /last HTTP/1.1\r\nHost:\r\n\r\n");
    CHECK(Serving::rest_of(last).ends_with("you asked for /last"));
    Serving::say(writer, "\r\n");
    CHECK(Serving::rest_of(writer).ends_with("you asked for /late"));
    CHECK(Serving::rest_of(reader).size() > 8 << 20);
}

TEST_CASE("a request that comes a byte at a time is over in time", "[watch]") {
    Serving serving;
    auto slow = serving.connected();
    auto began = Clock::now();
    bool over = false;
    while (!over && Clock::now() - began < request_within + 3s) {
        Serving::say(slow, "G");
        std::this_thread::sleep_for(50ms);
        char byte;
        over = recv(slow.get(), &byte, 1, MSG_DONTWAIT) == 0 || (errno != EAGAIN && errno != EINTR);
    }
    CHECK(over);
    CHECK(Clock::now() - began < request_within + 2s);
}

TEST_CASE("who does not read his answer costs no more than his place", "[watch]") {
    Serving serving;
    std::vector<UniqueFd> lazy;
    for (int i = 0; i < 30; ++i) {
        lazy.push_back(serving.connected());
        Serving::say(lazy.back(), "GET /big HTTP/1.1\r\nHost:\r\n\r\n");
    }
    auto began = Clock::now();
    CHECK(serving.ask("GET /me HTTP/1.1\r\nHost:\r\n\r\n").ends_with("you asked for /me"));
    CHECK(Clock::now() - began < request_within);
}
