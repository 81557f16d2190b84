// Authentication, over real sockets.
#include "gpu_server/pool/zap.hpp"

#include <zmq.h>

#include <atomic>

#include <zmq.hpp>
#include "tests/support/catch.hpp"

#include "gpu_client/protocol/keys.hpp"

using namespace tnr;
using server::Knock;
using server::Zap;

struct Endpoints {
    explicit Endpoints(server::Admit admit) : zap(std::move(*Zap::start(context, std::move(admit)))) {
        listener.set(zmq::sockopt::linger, 0);
        listener.set(zmq::sockopt::zap_domain, "tnr");
    }
    std::string bind() {
        listener.bind("tcp://127.0.0.1:*");
        return listener.get(zmq::sockopt::last_endpoint);
    }
    void bind_curve() {
        listener.set(zmq::sockopt::curve_server, true);
        listener.set(zmq::sockopt::curve_secretkey, keys.secret_key);
        address = bind();
    }
    void say(const std::string& text, const wire::KeyPair* own) {
        dealer.set(zmq::sockopt::linger, 0);
        if (own) {
            dealer.set(zmq::sockopt::curve_serverkey, keys.public_key);
            dealer.set(zmq::sockopt::curve_publickey, own->public_key);
            dealer.set(zmq::sockopt::curve_secretkey, own->secret_key);
        }
        dealer.connect(address);
        dealer.send(zmq::buffer(text), zmq::send_flags::none);
    }
    zmq::context_t context{1};
    std::unique_ptr<Zap> zap;
    zmq::socket_t listener{context, ZMQ_ROUTER};
    zmq::socket_t dealer{context, ZMQ_DEALER};
    wire::KeyPair keys = wire::make_key_pair();
    std::string address;
};

TEST_CASE("a known key comes in, and the socket learns whose it is", "[pool]") {
    auto client = wire::make_key_pair();
    Endpoints ends([&](const Knock& knock) -> std::optional<std::string> {
        if (knock.public_key != client.public_key || !knock.from_loopback()) return std::nullopt;
        return "alice";
    });
    ends.bind_curve();
    ends.say("hello", &client);
    zmq::message_t route, body;
    ends.listener.set(zmq::sockopt::rcvtimeo, 20'000);
    REQUIRE(ends.listener.recv(route));
    REQUIRE(ends.listener.recv(body));
    CHECK(body.to_string() == "hello");
    CHECK(std::string(body.gets("User-Id")) == "alice");
    CHECK(std::string(body.gets("Peer-Address")) == "127.0.0.1");
}

TEST_CASE("an unknown key and plain text stay outside", "[pool]") {
    std::atomic<int> asked{0};
    Endpoints ends([&](const Knock&) -> std::optional<std::string> {
        ++asked;
        return std::nullopt;
    });
    auto stranger = wire::make_key_pair();
    bool curve = GENERATE(true, false);
    if (curve)
        ends.bind_curve();
    else
        ends.address = ends.bind();
    zmq::socket_t monitor(ends.context, ZMQ_PAIR);
    REQUIRE(zmq_socket_monitor(ends.listener.handle(), "inproc://watch", ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) == 0);
    monitor.connect("inproc://watch");
    monitor.set(zmq::sockopt::rcvtimeo, 20'000);
    ends.say("hello", curve ? &stranger : nullptr);
    zmq::message_t event, nothing;
    REQUIRE(monitor.recv(event));  // the handshake has failed: nothing can come any more
    CHECK_FALSE(ends.listener.recv(nothing, zmq::recv_flags::dontwait));
    CHECK(asked >= 1);
}

TEST_CASE("loopback is told by address, in all its spellings", "[pool]") {
    CHECK(Knock{true, "", "127.0.0.1"}.from_loopback());
    CHECK(Knock{true, "", "127.8.0.1"}.from_loopback());
    CHECK(Knock{true, "", "::1"}.from_loopback());
    CHECK(Knock{true, "", "::ffff:127.0.0.1"}.from_loopback());
    CHECK_FALSE(Knock{true, "", "10.0.0.1"}.from_loopback());
    CHECK_FALSE(Knock{true, "", ""}.from_loopback());
}
