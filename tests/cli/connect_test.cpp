// `tnr connect`: getting in, and saying soon why not.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "cli/commands/reach.hpp"
#include "cli/ssh/escapes.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace std::chrono_literals;

TEST_CASE("a machine that runs but whose SSH refuses is given up with a next step", "[cli]") {
    test::FakeSession fake;
    fake.start_demo();
    const UniqueFd taken{::socket(AF_INET, SOCK_STREAM, 0)};  // and nobody listens there
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    REQUIRE(::bind(taken.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
    fake.world.address = "127.0.0.1";
    fake.world.ssh_port = ntohs(address.sin_port);
    REQUIRE((*fake.session.provider("local"))->machine("i-1"));  // the cloud learns its new address
    auto client = cli::reach(fake.session, "demo", std::chrono::milliseconds(600));
    REQUIRE_FALSE(client);
    CHECK(client.error().kind == Error::Kind::network);
    CHECK(client.error().what.find("port " + std::to_string(fake.world.ssh_port)) != std::string::npos);
    CHECK(client.error().hint.find("tnr stop demo") != std::string::npos);
    CHECK(fake.err.str().find("waiting for SSH on 'demo'") != std::string::npos);
}

