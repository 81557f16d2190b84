// The HTTP layer against a real server that misbehaves.
#include "api_client/http/http.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>

#include "api_client/base/descriptors.hpp"
#include "api_client/http/certificates.hpp"
#include "api_client/http/json_api.hpp"
#include "api_client/http/parse.hpp"
#include "api_client/http/redact.hpp"
#include "api_client/providers/local/child.hpp"
#include "mock_world.hpp"
#include "tests/api_client/world.hpp"

using namespace tnr;
using namespace tnr::test;
using nlohmann::json;

namespace {

struct Wire {
    PythonServer server{"http_faults.py"};
    std::vector<int> pauses;
    std::string explained;
    http::Limits limits;
    std::unique_ptr<http::Client> client_;

    http::Client& client() {
        if (!client_)
            client_ = std::make_unique<http::Client>(
                http::Surroundings{.pause =
                                       [this](int milliseconds) {
                                           if (milliseconds > 0) pauses.push_back(milliseconds);
                                           return true;
                                       },
                                   .dice = [] { return 0.0; },
                                   .explain = [this](const std::string& line) { explained += line + "\n"; }},
                limits);
        return *client_;
    }
    Result<http::Response> get(const std::string& path) {
        return client().send({.url = server.url() + path, .repeatable = true});
    }
    Result<http::Response> post(const std::string& path) {
        return client().send({.method = "POST", .url = server.url() + path, .body = "{}"});
    }
    int count(const std::string& path) { return json::parse(get("/count")->body)["paths"].value(path, 0); }
};

}  // namespace

TEST_CASE("a request arrives as it was meant, over a connection that is kept", "[http]") {
    Wire wire;
    auto reply = wire.client().send(
        {.method = "PUT", .url = wire.server.url() + "/echo", .headers = {"X-Mine: 1"}, .body = "{\"a\": 1}"});
    REQUIRE(reply);
    auto heard = json::parse(reply->body);
    CHECK(heard["method"] == "PUT");
    CHECK(heard["body"] == "{\"a\": 1}");
    CHECK(heard["headers"]["X-Mine"] == "1");
    CHECK(heard["headers"]["Content-Type"] == "application/json");
    CHECK(reply->request_id() == "req-7");
    // A request that must not be repeated has a connection of its own: on a kept one that breaks, curl would repeat it.
    for (int i = 0; i < 5; ++i) REQUIRE(wire.get("/echo"));
    CHECK(json::parse(wire.get("/count")->body)["connections"] == 1);
    REQUIRE(wire.post("/echo"));
    CHECK(json::parse(wire.get("/count")->body)["connections"] == 2);
}

TEST_CASE("what may be repeated is repeated with growing pauses; what may not is not", "[http]") {
    Wire wire;
    SECTION("a server's fault") {
        CHECK(wire.get("/twice/503")->body == "done");
        CHECK(wire.pauses == std::vector<int>{250, 500});
    }
    SECTION("a server's fault on something that must not be done twice") {
        CHECK(wire.post("/twice/503")->status == 503);
        CHECK(wire.pauses.empty());
    }
    SECTION("too many requests: it was not done, whatever it was") {
        CHECK(wire.post("/twice/429")->body == "done");
        CHECK(wire.pauses.size() == 2);
    }
    SECTION("for as long as the server asks") {
        CHECK(wire.get("/patience")->body == "done");
        CHECK(wire.pauses == std::vector<int>{7000});
    }
    SECTION("but not for an hour") {
        CHECK(wire.get("/too-much-patience")->status == 429);
        CHECK(wire.pauses.empty());
    }
    SECTION("and not for ever") {
        CHECK(wire.get("/always/500")->status == 500);
        CHECK(wire.count("/always/500") == wire.limits.tries_max);
    }
    SECTION("a connection reset in mid-body") {
        CHECK(wire.get("/reset")->body == "done");
    }
    SECTION("a connection reset after something that must not be done twice was sent") {
        auto lost = wire.post("/reset");
        REQUIRE_FALSE(lost);
        CHECK(lost.error().kind == Error::Kind::network);
        CHECK(wire.count("/reset") == 1);
    }
    SECTION("nobody listens: nothing was sent, so it may be tried again") {
        const UniqueFd taken = listen_on(0);
        sockaddr_in address{};
        socklen_t size = sizeof address;
        ::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &size);
        ::shutdown(taken.get(), SHUT_RDWR);
        auto none = wire.client().send(
            {.method = "POST", .url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/x"});
        REQUIRE_FALSE(none);
        CHECK(wire.pauses.size() == static_cast<size_t>(wire.limits.tries_max - 1));
        CHECK(none.error().what.find("127.0.0.1:") != std::string::npos);
    }
}

TEST_CASE("a reply that never ends is ended by us", "[http]") {
    Wire wire;
    SECTION("by its size") {
        wire.limits.reply_bytes_max = 1 << 20;
        auto reply = wire.get("/endless");
        REQUIRE_FALSE(reply);
        CHECK(reply.error().what.find("larger than 1 MiB") != std::string::npos);
        CHECK(wire.count("/endless") == 1);
    }
    SECTION("by time, twice") {
        wire.limits.total_ms = 300;
        auto reply = wire.get("/dripping");
        REQUIRE_FALSE(reply);
        CHECK(reply.error().kind == Error::Kind::network);
        CHECK(reply.error().what.find("did not end its reply within 1 s") != std::string::npos);
        CHECK(wire.count("/dripping") == wire.limits.timeouts_max);
    }
    SECTION("by the user") {
        http::Client client({.pause = [](int) { return false; }});
        auto reply = client.send({.url = wire.server.url() + "/dripping", .repeatable = true});
        REQUIRE_FALSE(reply);
        CHECK(reply.error().what == "interrupted");
    }
    SECTION("by a bell, which nobody has to ask for") {
        const UniqueFd bell(::eventfd(1, EFD_CLOEXEC));
        http::Client client({.bell = bell.get()});
        auto reply = client.send({.url = wire.server.url() + "/dripping", .repeatable = true});
        REQUIRE_FALSE(reply);
        CHECK(reply.error().what == "interrupted");
    }
}

TEST_CASE("what is no reply ends in an Error, and in little memory", "[http]") {
    Wire wire;
    auto refused = [&](const std::string& path) {
        auto reply = wire.get(path);
        INFO(path);
        REQUIRE_FALSE(reply);
        CHECK(reply.error().what.find("127.0.0.1:") != std::string::npos);
        return reply.error();
    };
    SECTION("half a reply is none, and is asked for again") {
        CHECK(refused("/raw/cut-chunk").kind == Error::Kind::network);
        CHECK(wire.count("/raw/cut-chunk") > 1);
        CHECK(wire.post("/raw/cut-chunk").error().kind == Error::Kind::network);
    }
    SECTION("what makes no sense") {
        for (const char* path : {"/raw/no-chunk", "/raw/negative", "/raw/banner", "/raw/no-gzip"}) refused(path);
    }
    SECTION("two lengths: the one that counts is that of the chunks") {
        CHECK(wire.get("/raw/twice")->body == "{}");
    }
    SECTION("a length that no reply has: what came is all") {
        auto reply = wire.get("/raw/huge");
        CHECK((!reply || reply->body == "{}"));
    }
    SECTION("much in little") {
        CHECK(refused("/raw/bomb").what.find("larger than 32 MiB") != std::string::npos);
        CHECK(wire.count("/raw/bomb") == 1);
    }
    SECTION("headers, or interim replies, without end") {
        for (const char* path : {"/raw/headers", "/raw/interim"}) {
            CHECK(refused(path).what.find("more headers than any cloud's") != std::string::npos);
            CHECK(wire.count(path) == 1);
        }
    }
}

TEST_CASE("a list whose pages come again does not end", "[http]") {
    http::Pages pages;
    CHECK(pages.go_on("/things"));
    CHECK(pages.go_on("/things?page=2"));
    CHECK_FALSE(pages.go_on("/things"));
    http::Pages many;
    int count = 0;
    while (many.go_on("/things?page=" + std::to_string(count))) ++count;
    CHECK(count == 1000);
}

TEST_CASE("a redirect is not followed, so that no token travels to another host", "[http]") {
    Wire wire;
    auto reply = wire.get("/moved");
    REQUIRE(reply);
    CHECK(reply->status == 302);
    CloudWorld world;
    http::JsonApi api(
        {"Mock", wire.server.url(), "token-token", "sign in", [](const json&) { return http::Refusal{}; }}, world);
    auto refused = api.get("/moved");
    REQUIRE_FALSE(refused);
    CHECK(refused.error().what.find("redirect") != std::string::npos);
}

TEST_CASE("a token goes to https, or to this computer", "[http]") {
    CHECK(http::check_endpoint("https://api.hetzner.cloud/v1"));
    CHECK(http::check_endpoint("http://127.0.0.1:8080/v1"));
    CHECK(http::check_endpoint("http://localhost/v1"));
    for (const char* bad : {"http://api.hetzner.cloud/v1", "http://127.0.0.1@evil.example/", "http://127.evil.example/",
                            "http://localhost:80@evil.example/", "http://127.0.0.1:80@evil.example/",
                            "ftp://127.0.0.1/", "file:///etc/passwd", "https://", "https://a@b/", ""})
        CHECK_FALSE(http::check_endpoint(bad));
    for (const char* told : {"https://user:hidden@cloud.example/v1", "http://127.0.0.1@elsewhere:hidden/v1"}) {
        const auto good = http::check_endpoint(told);
        REQUIRE_FALSE(good);
        CHECK(good.error().what.find("has a user's name or a password in it") != std::string::npos);
        CHECK(good.error().what.find("hidden") == std::string::npos);
    }
}

TEST_CASE("certificate authorities are found where each system keeps them", "[http]") {
    const TemporaryFolder folder;
    const std::string root = folder / "";
    CHECK(http::system_authorities(root).empty());
    const std::string red_hat = root + "etc/pki/tls/certs/ca-bundle.crt",
                      debian = root + "etc/ssl/certs/ca-certificates.crt";
    std::filesystem::create_directories(root + "etc/pki/tls/certs");
    std::filesystem::create_directories(root + "etc/ssl/certs");
    std::ofstream(red_hat) << "one";
    CHECK(http::system_authorities(root) == red_hat);
    std::ofstream(debian) << "another";
    CHECK(http::system_authorities(root) == debian);
}

namespace {

void make_certificate(const std::string& certificate, const std::string& key) {
    auto made = local::run(
        {.argv = {"openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
                  "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"}});
    REQUIRE((made && made->exit_code == 0));
}

}  // namespace

TEST_CASE("a server that speaks HTTP/2 and nothing else is understood", "[http]") {
    const TemporaryFolder folder;
    const std::string key = folder / "key", certificate = folder / "certificate", files = folder / "files";
    make_certificate(certificate, key);
    std::filesystem::create_directories(files);
    std::ofstream(files + "/prices") << "{\"cx22\": 0.0066}";
    const PythonServer server("http2_server.py", {certificate, key, files});
    const Environment trusted("SSL_CERT_FILE", certificate.c_str()), none("CURL_CA_BUNDLE", nullptr);
    const std::string url = "https://localhost:" + std::to_string(server.port());
    http::Client client({.pause = [](int) { return true; }});
    for (int i = 0; i < 3; ++i) {  // over one connection
        auto reply = client.send({.url = url + "/prices", .repeatable = true});
        INFO((reply ? "" : reply.error().what));
        REQUIRE(reply);
        CHECK(reply->body == "{\"cx22\": 0.0066}");
    }
    CHECK(client.send({.url = url + "/nothing", .repeatable = true})->status == 404);
    const std::string order(300'000, 'x');  // several times what may be sent before the server asks for more
    auto sent_back = client.send({.method = "POST", .url = url + "/order", .body = order});
    REQUIRE(sent_back);
    CHECK((sent_back->body == order));
}

TEST_CASE("a server that sends HTTP/2 clients away is asked again, an order once alone", "[http]") {
    const TemporaryFolder folder;
    const std::string key = folder / "key", certificate = folder / "certificate", log = folder / "log";
    make_certificate(certificate, key);
    const Environment trusted("SSL_CERT_FILE", certificate.c_str()), none("CURL_CA_BUNDLE", nullptr);
    auto send = [&](const char* mode, const http::Request& request) {
        test::write_text(log, "");
        const PythonServer server("http2_goaway.py", {certificate, key, log, mode});
        http::Client client({.pause = [](int) { return true; }});
        http::Request there = request;
        there.url = "https://localhost:" + std::to_string(server.port()) + "/machines";
        return client.send(there);
    };
    auto requests = [&] { return test::read_text(log).size() / std::string("request\n").size(); };
    const http::Request order{.method = "POST", .body = "{}"};
    CHECK(send("refused", {.repeatable = true})->body == "done");
    CHECK(send("taken", {.repeatable = true}).error().kind == Error::Kind::network);
    CHECK(requests() > 1);
    for (const char* mode : {"taken", "refused"}) {
        CHECK(send(mode, order).error().kind == Error::Kind::network);
        CHECK(requests() == 1);  // no second machine
    }
}

TEST_CASE("a certificate must be one that we trust", "[http]") {
    const TemporaryFolder folder;
    const std::string key = folder / "key", certificate = folder / "certificate";
    make_certificate(certificate, key);
    const PythonServer server("http_faults.py", {"--tls", certificate, key});
    const std::string url = "https://localhost:" + std::to_string(server.port()) + "/echo";
    {
        http::Client client({.pause = [](int) { return true; }});
        auto refused = client.send({.url = url, .repeatable = true});
        REQUIRE_FALSE(refused);
        CHECK(refused.error().what.find("is not trusted") != std::string::npos);
        CHECK(refused.error().hint.find("SSL_CERT_FILE") != std::string::npos);
    }
    const Environment trusted("SSL_CERT_FILE", certificate.c_str()), none("CURL_CA_BUNDLE", nullptr);
    http::Client client({});
    auto accepted = client.send({.url = url});
    INFO((accepted ? "" : accepted.error().what));
    REQUIRE(accepted);
    CHECK(accepted->status == 200);
    // The same one, of a server that has another name than it.
    auto misnamed = client.send({.url = "https://127.0.0.1:" + std::to_string(server.port()) + "/echo"});
    REQUIRE_FALSE(misnamed);
    CHECK(misnamed.error().what.find("the certificate of 127.0.0.1") == 0);
}

TEST_CASE("requests go through the proxy that the environment names", "[http]") {
    const PythonServer proxy("http_faults.py");
    const Environment set("https_proxy", proxy.url().c_str()), none("no_proxy", nullptr), None("NO_PROXY", nullptr);
    http::Client client({});
    // The proxy is asked for a tunnel, and makes none.
    auto reply = client.send({.url = "https://127.0.0.1:1/anything"});
    REQUIRE_FALSE(reply);
    INFO(reply.error().what);
    CHECK(reply.error().what.find("CONNECT") != std::string::npos);
}

TEST_CASE("where a proxy says nothing, the hint tells where proxies are named", "[http]") {
    const UniqueFd silent = make_socket(AF_INET, SOCK_STREAM, Waits::yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(silent.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(silent.get(), 8) == 0);
    REQUIRE(::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    const std::string proxy = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    const Environment set("https_proxy", proxy.c_str()), none("no_proxy", nullptr), None("NO_PROXY", nullptr);
    auto reply = http::Client({}, {.connect_ms = 300, .tries_max = 1}).send({.url = "https://cloud.example/"});
    REQUIRE_FALSE(reply);
    CHECK(reply.error().what.find("cannot be reached") != std::string::npos);
    CHECK(reply.error().hint.find("HTTPS_PROXY") != std::string::npos);
}

TEST_CASE("what is meant for this computer goes through no proxy, which would be told the token", "[http]") {
    const PythonServer server("http_faults.py"), proxy("http_faults.py");
    const Environment set("http_proxy", proxy.url().c_str()), none("no_proxy", nullptr), None("NO_PROXY", nullptr);
    http::Client client({});
    REQUIRE(client.send({.method = "POST", .url = server.url() + "/echo", .body = "{}"}));
    CHECK(client.send({.method = "POST", .url = server.url() + "/echo", .body = "{}"})->status == 200);
    // There is no server at that address, and the proxy would have said so by its own status.
    auto nobody = http::Client({}, {.tries_max = 1}).send({.url = "http://127.0.0.1:1/anything"});
    REQUIRE_FALSE(nobody);
    CHECK(nobody.error().kind == Error::Kind::network);
}

TEST_CASE("JSON that is nested without end is refused, not followed until the stack is used up", "[http]") {
    const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
    CHECK(http::parse_json(deep).is_discarded());
    CHECK(http::parse_json("[[[{\"a\": [1]}]]]").is_array());
    CHECK(http::redacted(deep, {}).size() < 3000);
}

TEST_CASE("what is shown has no secrets", "[http]") {
    Wire wire;
    wire.client().hide("very-secret-token");
    auto reply = wire.client().send(
        {.method = "POST",
         .url = wire.server.url() + "/echo",
         .headers = {"Authorization: Bearer very-secret-token"},
         .body = R"({"name": "demo", "user_data": "PRIVATE KEY", "nested": [{"password": "p4ss"}]})"});
    REQUIRE(reply);
    CHECK(reply->body.find("very-secret-token") != std::string::npos);  // it did arrive
    const std::string sent = wire.explained.substr(0, wire.explained.find('\n'));
    for (const char* secret : {"PRIVATE", "p4ss"}) CHECK(sent.find(secret) == std::string::npos);
    CHECK(wire.explained.find("very-secret-token") == std::string::npos);
    CHECK(wire.explained.find("> POST " + wire.server.url() + "/echo") != std::string::npos);
    CHECK(wire.explained.find("< 200 in") != std::string::npos);
    const std::string with_key = "{\"key\": \"-----BEGIN\", \"id\": 1}";
    CHECK(http::redacted("{\"root_password\": \"p4ss", {}) == "(23 bytes that are no JSON)");
    CHECK(http::without("say hidden and hidden", {"hidden"}) == "say (hidden) and (hidden)");
    CHECK(http::redacted(with_key, {}) == "{\"id\":1,\"key\":\"(hidden)\"}");
}

TEST_CASE("times of all clouds are told in one form", "[http]") {
    for (const auto& [told, utc] : {std::pair<http::Json, std::string>{"2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"},
                                    {"2026-01-02T03:04:05+00:00", "2026-01-02T03:04:05Z"},
                                    {"2026-01-02T03:04:05.000-07:00", "2026-01-02T10:04:05Z"},
                                    {"2026-01-01T00:30:00.1234567+01:00", "2025-12-31T23:30:00Z"},
                                    {1767323045, "2026-01-02T03:04:05Z"},
                                    {"", ""},
                                    {"yesterday", ""},
                                    {"2026-01-02T03:04:05", ""},
                                    {"2026-01-02T03:04:05+1", ""},
                                    {INT64_MAX, ""},
                                    {nullptr, ""},
                                    {-1.5, ""}})
        CHECK(http::utc_in(told) == utc);
}

TEST_CASE("a price is an amount of money, or none", "[http]") {
    CHECK(http::amount_in("0.0056000000") == 0.0056);
    CHECK(http::amount_in(7) == 7);
    for (const http::Json& none :
         {http::Json("nan"), http::Json("inf"), http::Json("-1"), http::Json(-0.5), http::Json(""), http::Json("free"),
          http::Json(nullptr), http::Json("1e999"), http::Json::array(), http::Json("1e308"), http::Json(1e308),
          http::Json("5 EUR"), http::Json("1,5"), http::Json("0x10"), http::Json("1-2"), http::Json(true)})
        CHECK_THROWS_AS(http::amount_in(none), std::exception);
    CHECK(http::balance_in("-12.50") == -12.5);  // credit
    CHECK(http::balance_in(-3) == -3);
    for (const char* none : {"nan", "-inf", "-1e308", "12.50 USD", ""}) CHECK_THROWS(http::balance_in(none));
}

TEST_CASE("a token with a line break in it is refused, and begins no header of its own", "[http]") {
    http::Client client({});
    for (const std::string& token :
         std::vector<std::string>{"abc\r\nX-Evil: 1", "abc\n", "abc\r", std::string("a\0c", 3), "\x7f"}) {
        auto refused = client.send({.url = "http://127.0.0.1:9/", .headers = {"Authorization: Bearer " + token}});
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind == Error::Kind::usage);
        CHECK(refused.error().what.find("as Authorization has a line break") != std::string::npos);
        CHECK(refused.error().what.find("abc") == std::string::npos);
    }
}
