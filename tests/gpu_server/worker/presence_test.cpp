// How long a worker waits for a client that has left. Time is told, not measured.
#include "gpu_server/worker/presence.hpp"

#include "tests/support/catch.hpp"

using namespace tnr::worker;
using namespace std::chrono_literals;

namespace {
constexpr auto knock = 600ms, grace = 30'000ms;

struct Client {
    Presence::Time start{1h};
    Presence presence{{grace, knock}, start};

    bool waited_for(std::chrono::milliseconds after, bool somebody = false) const {
        return presence.hopeless(somebody, start + after) == nullptr;
    }
};
}  // namespace

TEST_CASE("a client that never connects is not waited for long", "[presence]") {
    Client client;
    CHECK(client.waited_for(14s));
    CHECK_FALSE(client.waited_for(16s));
}

TEST_CASE("one that is connected may be as quiet as it likes", "[presence]") {
    Client client;
    client.presence.connected();
    CHECK(client.waited_for(24h));
}

TEST_CASE("one that was lively until its connection ended gets a moment to knock again", "[presence]") {
    Client client;
    client.presence.connected();
    client.presence.look(400ms, client.start + 10s);
    client.presence.left(100ms, client.start + 20s);
    CHECK(client.waited_for(20s + knock - 1ms));
    CHECK_FALSE(client.waited_for(20s + knock));
    SECTION("and while somebody is at the door, as long as a handshake may take: it may be a stranger") {
        CHECK(client.waited_for(20s + knock + Presence::handshakes_within - 1ms, true));
        CHECK_FALSE(client.waited_for(20s + knock + Presence::handshakes_within, true));
    }
    SECTION("and once it is back, it is back") {
        client.presence.connected();
        CHECK(client.waited_for(24h));
    }
}

TEST_CASE("one that fell silent before gets the grace period", "[presence]") {
    Client client;
    client.presence.connected();
    SECTION("when the silence ended its connection") {
        client.presence.left(10s, client.start + 20s);
    }
    SECTION("when the network was in trouble not long before") {
        client.presence.look(2500ms, client.start + 10s);
        client.presence.left(0ms, client.start + 20s);
    }
    CHECK(client.waited_for(20s + grace - 1ms));
    CHECK_FALSE(client.waited_for(20s + grace));
}

TEST_CASE("one whose process has ended is not waited for, whoever is at the door and whatever the network did",
          "[presence]") {
    Client client;
    client.presence.connected();
    client.presence.look(2500ms, client.start + 19s);
    client.presence.left(0ms, client.start + 20s, true);
    CHECK_FALSE(client.waited_for(20s));
    CHECK_FALSE(client.waited_for(20s, true));
}

TEST_CASE("trouble of long ago is forgotten", "[presence]") {
    Client client;
    client.presence.connected();
    client.presence.look(5s, client.start + 10s);
    client.presence.left(0ms, client.start + 60s);
    CHECK_FALSE(client.waited_for(60s + knock));
}
