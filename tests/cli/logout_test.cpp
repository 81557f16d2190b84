// `tnr logout pool`.
#include "cli/commands/login.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

TEST_CASE("logout forgets one pool, and the one signed in to before it is the default again", "[cli][logout]") {
    test::FakeSession fake;
    auto server = wire::make_key_pair(), own = wire::make_key_pair();
    REQUIRE(cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, own.secret_key}));
    CHECK(fake.tnr({"logout", "pool", "tcp://gpu.example:1"}) == 0);
    CHECK(fake.session.logins().find("")->address == "tcp://127.0.0.1:14900");
    CHECK(fake.tnr({"logout", "pool", "tcp://gpu.example:1"}) == 0);  // also when it is forgotten already
    CHECK(fake.session.logins().all()->size() == 1);
}
