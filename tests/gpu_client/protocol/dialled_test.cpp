// How a client's connections end: the worker tells by it whether the program lives (callers.hpp).
#include "gpu_client/protocol/dialled.hpp"

#include <unistd.h>

#include <zmq.h>

#include "tests/gpu_client/protocol/ends.hpp"

using namespace tnr;
using namespace tnr::wire;
using namespace tnr::test;

namespace {

struct Pair {
    UniqueFd client, server;
    Pair() {
        uint16_t port = 0;
        UniqueFd listener(listening(port));
        client.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(port);
        REQUIRE(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
        server.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }
    // 0: closed; ECONNRESET: reset.
    int ends() const {
        char byte;
        auto got = ::read(server.get(), &byte, 1);
        return got == 0 ? 0 : got < 0 ? errno : -1;
    }
};

}  // namespace

TEST_CASE("a client that lives resets its connections, and one that ends closes them", "[dialled]") {
    Pair pair;
    Dialled dialled;
    CHECK(dialled.port() == 0);
    dialled.note({ZMQ_EVENT_CONNECTED, pair.client.get()});
    CHECK(dialled.port() != 0);
    SECTION("it dials again") {
        dialled.cut(true);
        CHECK(pair.ends() == ECONNRESET);
    }
    SECTION("ZeroMQ has closed its descriptor, since nothing came any more") {
        const int number = pair.client.get();
        pair.client.reset();
        dialled.note({ZMQ_EVENT_DISCONNECTED, number});
        CHECK(pair.ends() == ECONNRESET);
    }
    SECTION("it ends, and so does what it sent last") {
        REQUIRE(::write(pair.client.get(), "x", 1) == 1);
        dialled.cut(false);
        CHECK(pair.ends() == -1);
        CHECK(pair.ends() == 0);
    }
}
