// Counting connections: by source until a key is proven, then by key and account.
#include "gpu_server/pool/connections.hpp"

#include "gpu_server/pool/audit.hpp"
#include "tests/support/catch.hpp"

using namespace tnr::server;
using Room = Connections::Room;
using Place = Connections::Place;
using std::chrono::milliseconds;

static constexpr Connections::Clock::time_point at_first{std::chrono::hours(1)};

static void cut_none(int) {
    FAIL("nobody has to make room");
}

TEST_CASE("a key and an account have only so many connections, and those that end are free again", "[pool]") {
    Connections connections({100, 100, 100, 2, 3, 1}, cut_none);
    CHECK(connections.proven(7, "k1", "alice") == Room::enough);
    CHECK(connections.proven(8, "k1", "alice") == Room::enough);
    CHECK(connections.proven(9, "k1", "alice") == Room::crowded);  // let in, to be told
    CHECK(connections.proven(10, "k1", "alice") == Room::none);
    CHECK(connections.proven(10, "k2", "alice") == Room::crowded);  // the account has three
    CHECK(connections.proven(11, "k3", "alice") == Room::none);
    CHECK(connections.proven(11, "b", "bob") == Room::enough);
    connections.closed(5);  // never told of
    connections.closed(9);
    connections.closed(10);
    connections.closed(7);
    CHECK(connections.proven(10, "k1", "alice") == Room::enough);
    CHECK(connections.of_key("k1") == 2);
    REQUIRE(connections.accepted(8, "somewhere", at_first) ==
            Place::free);  // its end was never told: the number says so
    CHECK(connections.of_key("k1") == 1);
}

TEST_CASE("a source has only so many connections that have proven no key, others as many of their own", "[pool]") {
    Connections connections({4, 1000, 1000, 100, 100, 0, milliseconds(250)}, cut_none);
    for (int i = 0; i < 4; ++i) CHECK(connections.accepted(i, "10.0.0.1", at_first) == Place::free);
    CHECK(connections.accepted(4, "10.0.0.1", at_first) == Place::none);
    CHECK(connections.accepted(4, "10.0.0.2", at_first) == Place::free);
    CHECK(connections.proven(0, "k", "alice") == Room::enough);
    CHECK(connections.accepted(5, "10.0.0.1", at_first) == Place::free);
    connections.closed(1);
    CHECK(connections.accepted(1, "10.0.0.1", at_first) == Place::free);
    for (int i = 0; i < 6; ++i) connections.closed(i);
    CHECK(connections.unproven_of("10.0.0.1") == 0);
    CHECK(connections.unproven_of("10.0.0.2") == 0);
}

TEST_CASE("who proves no key keeps others of his address waiting for no longer than a handshake takes", "[pool]") {
    std::vector<int> cut;
    Connections connections({3, 1000, 1000, 100, 100, 0, milliseconds(250)}, [&](int one) { cut.push_back(one); });
    for (int i = 0; i < 3; ++i)
        REQUIRE(connections.accepted(i, "10.0.0.1", at_first + i * milliseconds(1)) == Place::free);
    CHECK(connections.accepted(3, "10.0.0.1", at_first + milliseconds(249)) == Place::none);
    CHECK(cut.empty());
    CHECK(connections.accepted(3, "10.0.0.1", at_first + milliseconds(250)) == Place::of_another);
    CHECK(cut == std::vector{0});
    CHECK(connections.accepted(4, "10.0.0.1", at_first + milliseconds(250)) == Place::none);
    CHECK(connections.unproven_of("10.0.0.1") == 3);
    // Its end is told later, and counts no more; who has proven a key makes room for nobody.
    connections.closed(0);
    CHECK(connections.unproven_of("10.0.0.1") == 3);
    CHECK(connections.proven(1, "k", "alice") == Room::enough);
    CHECK(connections.accepted(4, "10.0.0.1", at_first + milliseconds(251)) == Place::free);
    CHECK(connections.accepted(5, "10.0.0.1", at_first + milliseconds(252)) == Place::of_another);
    CHECK(cut == std::vector{0, 2});
    CHECK(connections.of_key("k") == 1);
}

TEST_CASE("one wrong key after the other is slowed down, and keys that are known are not", "[pool]") {
    Connections connections({100, 10, 50, 1'000'000, 1'000'000, 0}, cut_none);
    for (int i = 0; i < 500; ++i) {  // known ones, all in the same moment
        REQUIRE(connections.accepted(1, "10.0.0.1", at_first) == Place::free);
        REQUIRE(connections.proven(1, "k", "alice", at_first) == Room::enough);
        connections.closed(1);
    }
    auto tries = [&](Connections::Clock::time_point now) {
        int times = 0;
        while (times < 1000 && connections.accepted(1, "10.0.0.1", now) == Place::free) {
            ++times;
            connections.closed(1);
        }
        return times;
    };
    CHECK(tries(at_first) == 50);
    CHECK(tries(at_first + std::chrono::seconds(2)) == 20);
    CHECK(connections.accepted(2, "10.0.0.2", at_first) == Place::free);
    // Thousands of sources are forgotten once they have nothing left to be remembered for.
    for (int i = 0; i < 5000; ++i) {
        auto source = "10.1." + std::to_string(i);
        REQUIRE(connections.accepted(3, source, at_first + std::chrono::seconds(i)) == Place::free);
        connections.closed(3);
    }
}

TEST_CASE("where somebody has proven a key, more may come that prove none, for a while", "[pool]") {
    using std::chrono::seconds;
    Connections connections({100, 10, 50, 100, 100, 0, milliseconds(250), 40, seconds(600)}, cut_none);
    auto tries = [&](Connections::Clock::time_point now) {
        int times = 0;
        while (times < 1000 && connections.accepted(1, "10.0.0.1", now) == Place::free) {
            ++times;
            connections.closed(1);
        }
        return times;
    };
    REQUIRE(connections.accepted(1, "10.0.0.1", at_first) == Place::free);
    REQUIRE(connections.proven(1, "k", "alice", at_first) == Room::enough);
    connections.closed(1);
    CHECK(tries(at_first) == 50);
    CHECK(tries(at_first + seconds(1)) == 40);
    CHECK(tries(at_first + seconds(599)) == 50);
    CHECK(tries(at_first + seconds(600)) == 10);
}

TEST_CASE("what one stranger can vary at will is no part of a source", "[pool]") {
    CHECK(source_of("10.0.0.1") == "10.0.0.1");
    CHECK(source_of("::ffff:10.0.0.1") == "10.0.0.1");
    CHECK(source_of("2001:db8:1:2:3:4:5:6") == source_of("2001:db8:1:2:aaaa::1"));
    CHECK(source_of("2001:db8:1:2::1") != source_of("2001:db8:1:3::1"));
    CHECK(source_of("") == "");
    CHECK(source_of("nonsense") == "nonsense");
}
