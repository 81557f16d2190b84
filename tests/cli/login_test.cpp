// `tnr login pool`.
#include "cli/commands/login.hpp"

#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

TEST_CASE("login checks the keys and asks the pool before it stores anything; the last pool is the default", "[cli]") {
    test::FakeSession fake;
    auto server = wire::make_key_pair(), own = wire::make_key_pair();
    CHECK_FALSE(cli::login_pool(fake.session, {"gpu.example:1", server.public_key, own.secret_key}));
    CHECK_FALSE(cli::login_pool(fake.session, {"tcp://gpu.example:99999", server.public_key, own.secret_key}));
    CHECK_FALSE(cli::login_pool(fake.session, {"tcp://gpu.example:1", "short", own.secret_key}));
    fake.world.pool_reachable = false;
    CHECK_FALSE(cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, own.secret_key}));
    CHECK(fake.session.logins().find("")->address == "tcp://127.0.0.1:14900");
    fake.world.pool_reachable = true;
    REQUIRE(cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, own.secret_key}));
    auto login = fake.session.logins().find("");
    REQUIRE(login);
    CHECK(login->address == "tcp://gpu.example:1");
    SECTION("the key may come on standard input, where no other process sees it") {
        auto other = wire::make_key_pair();
        fake.in.str(other.secret_key + "\n");
        REQUIRE(cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, ""}));
        CHECK(fake.session.logins().find("")->keys.own.public_key == other.public_key);
        fake.in.str("");
        CHECK_FALSE(cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, ""}));
    }
    SECTION("or in a file") {
        CHECK_FALSE(cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, "", "/no/such/file"}));
    }
    CHECK(login->keys.own.public_key == own.public_key);
    CHECK(fake.session.logins().all()->size() == 2);
}
