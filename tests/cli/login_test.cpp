// `tnr login pool`.
#include "cli/commands/login.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

TEST_CASE("a line with a token that is pasted twice at once signs in, and neither says that it was of no use",
          "[cli]") {
    test::FakeSession fake;
    const auto server = wire::make_key_pair(), token = wire::make_key_pair(), first = wire::make_key_pair();
    fake.world.pool_role = "token";
    fake.world.redeemed = first.public_key;  // by the other one,
    const std::vector<std::string> line{"login", "pool", "tcp://gpu.example:1", server.public_key, token.secret_key};
    SECTION("which signs in while this one asks") {
        auto open = fake.session.pool;
        fake.session.pool = [&](const cli::PoolLogin& login) {
            REQUIRE(fake.session.logins().save({login.address, {server.public_key, first}}));
            return open(login);
        };
        CHECK(fake.tnr(line) == 0);
        CHECK(fake.session.logins().find("tcp://gpu.example:1")->keys.own.public_key == first.public_key);
    }
    SECTION("which had done so before: then the token is a used one") {
        REQUIRE(fake.session.logins().save({"tcp://gpu.example:1", {server.public_key, first}}));
        CHECK(fake.tnr(line) == 4);
    }
}

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
    SECTION("or in a file, or a pipe that ends or does not") {
        auto other = wire::make_key_pair();
        const std::string pipe = fake.folder / "pipe";
        REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
        const UniqueFd stays(::open(pipe.c_str(), O_RDWR | O_CLOEXEC));
        const std::string text = other.secret_key + "\nand more";
        REQUIRE(::write(stays.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
        REQUIRE(cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, "", pipe}));
        CHECK(fake.session.logins().find("")->keys.own.public_key == other.public_key);
        fake.in.str(own.secret_key + "\n");
        REQUIRE(cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, "", "-"}));
        CHECK(fake.session.logins().find("")->keys.own.public_key == own.public_key);
        CHECK_FALSE(cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, "", "/no/such/file"}));
    }
    CHECK(login->keys.own.public_key == own.public_key);
    CHECK(fake.session.logins().all()->size() == 2);
}

TEST_CASE("a token is traded for a key that is made here", "[cli]") {
    test::FakeSession fake;
    auto server = wire::make_key_pair(), token = wire::make_key_pair();
    fake.world.pool_role = "token";
    fake.in.str(wire::token_prefix + token.secret_key + "\n");
    REQUIRE(cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, ""}));
    auto login = fake.session.logins().find("");
    REQUIRE(login);
    CHECK(login->keys.own.public_key == fake.world.redeemed);
    CHECK(wire::public_of(login->keys.own.secret_key) == fake.world.redeemed);
    CHECK(login->keys.own.public_key != token.public_key);
    SECTION("once: then it says so, and what was stored stays") {
        fake.in.str(wire::token_prefix + token.secret_key + "\n");
        auto again = cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, ""});
        REQUIRE_FALSE(again);
        CHECK(again.error().what == "this token has been used already");
        CHECK(fake.session.logins().find("")->keys.own.public_key == fake.world.redeemed);
    }
}

TEST_CASE("a token that a newer one has replaced is told from the computer's own key", "[cli]") {
    test::FakeSession fake;
    auto server = wire::make_key_pair(), token = wire::make_key_pair();
    fake.world.pool_says = Error{Error::Kind::auth, "the key that this computer has is not let in"};
    fake.in.str(wire::token_prefix + token.secret_key + "\n");
    auto refused = cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, ""});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == Error::Kind::auth);
    CHECK(refused.error().what.find("does not let in that token or key") != std::string::npos);
    CHECK(refused.error().hint.find("user add NAME --token") != std::string::npos);
    CHECK_FALSE(fake.session.logins().find("tcp://gpu.example:1"));
}

TEST_CASE("a token whose sign-in was cut off after the pool had taken it signs in the next time", "[cli]") {
    test::FakeSession fake;
    auto server = wire::make_key_pair(), token = wire::make_key_pair();
    auto login = [&] {
        fake.in.clear();
        fake.in.str(wire::token_prefix + token.secret_key + "\n");
        return cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, ""});
    };
    const std::string keys = fake.session.config_folder + "/pool_tokens.json";
    fake.world.pool_role = "token";
    SECTION("by a broken connection") {
        fake.world.fails_at = "redeemed";
        CHECK(login().error().kind == Error::Kind::network);
    }
    SECTION("by Ctrl-C") {
        fake.world.interrupted_at = "redeemed";
        CHECK_FALSE(login());
        interrupt::clear_for_test();
    }
    SECTION("by a pool.json that cannot be written any more") {
        fake.world.on_redeemed = [&] {
            const std::string pools = fake.session.config_folder + "/pool.json";
            REQUIRE(remove_file(pools));
            REQUIRE(make_folders(pools));
        };
        CHECK_FALSE(login());
        fake.world.on_redeemed = {};
        REQUIRE(std::filesystem::remove(fake.session.config_folder + "/pool.json"));
    }
    REQUIRE(file_exists(keys));
    struct stat found {};
    REQUIRE(::stat(keys.c_str(), &found) == 0);
    CHECK((found.st_mode & 0777) == 0600);
    CHECK_FALSE(fake.session.logins().find("tcp://gpu.example:1"));
    REQUIRE(login());
    CHECK(fake.session.logins().find("tcp://gpu.example:1")->keys.own.public_key == fake.world.redeemed);
    CHECK_FALSE(file_exists(keys));
}

TEST_CASE("a key that cannot be stored costs no token, and one that is refused leaves nothing", "[cli]") {
    test::FakeSession fake;
    auto server = wire::make_key_pair(), token = wire::make_key_pair();
    const std::string keys = fake.session.config_folder + "/pool_tokens.json";
    fake.in.str(wire::token_prefix + token.secret_key + "\n");
    fake.world.pool_role = "token";
    SECTION("stored") {
        REQUIRE(make_folders(keys + "/in-the-way"));
        CHECK_FALSE(cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, ""}));
        CHECK(fake.world.redeemed.empty());
    }
    SECTION("refused") {
        fake.world.redeemed = "somebody else's";
        CHECK_FALSE(cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, ""}));
        CHECK_FALSE(file_exists(keys));
    }
}

TEST_CASE("a pool's new key is remembered without making it the default", "[cli]") {
    test::FakeSession fake;
    auto server = wire::make_key_pair(), own = wire::make_key_pair(), newer = wire::make_key_pair();
    REQUIRE(cli::login_pool(fake.session, {"tcp://one.example:1", server.public_key, own.secret_key}));
    REQUIRE(cli::login_pool(fake.session, {"tcp://two.example:1", server.public_key, own.secret_key}));
    REQUIRE(fake.session.logins().renew("tcp://one.example:1", newer.public_key));
    REQUIRE(fake.session.logins().renew("tcp://none.example:1", newer.public_key));
    CHECK(fake.session.logins().find("tcp://one.example:1")->keys.server_public == newer.public_key);
    CHECK(fake.session.logins().find("")->address == "tcp://two.example:1");
    CHECK(fake.session.logins().find("")->keys.server_public == server.public_key);
}

TEST_CASE("who is known to a pool signs in at another of its nodes with the key that is there", "[cli]") {
    test::FakeSession fake;
    auto mine = fake.session.logins().find("")->keys.own, other = wire::make_key_pair();
    const std::string node = "tcp://gpu-2.example:14900";
    std::string server = wire::make_key_pair().public_key;
    REQUIRE(fake.session.logins().save({"tcp://elsewhere.example:1", {wire::make_key_pair().public_key, other}}));
    std::vector<std::string> tried;
    std::optional<Error> says;
    // A node that knows `mine`.
    struct Node : test::FakePool {
        Node(test::FakeWorld& world, std::optional<Error> says) : FakePool(world), says_(std::move(says)) {}
        Result<cli::PoolHello> hello() override { return says_ ? Result<cli::PoolHello>(*says_) : FakePool::hello(); }
        std::optional<Error> says_;
    };
    fake.session.pool = [&](const cli::PoolLogin& login) -> Result<std::unique_ptr<cli::Pool>> {
        CHECK(login.keys.server_public == server);
        tried.push_back(login.keys.own.public_key);
        auto refusal = login.keys.own.public_key == mine.public_key
                           ? std::nullopt
                           : std::optional(Error{Error::Kind::auth, "refused"});
        return std::unique_ptr<cli::Pool>(std::make_unique<Node>(fake.world, says ? says : refusal));
    };
    const std::vector<std::string> words = {"login", "pool", node, server, "--same-key"};
    REQUIRE(fake.tnr(words) == 0);
    CHECK(tried == std::vector{other.public_key, mine.public_key, mine.public_key});
    auto login = fake.session.logins().find("");
    CHECK(login->address == node);
    CHECK(login->keys.server_public == server);
    CHECK(login->keys.own.secret_key == mine.secret_key);
    CHECK(fake.session.logins().all()->size() == 3);
    SECTION("a key that begins with a dash is no option, wherever options are") {
        std::string dashed;
        while (!dashed.starts_with('-')) dashed = wire::make_key_pair().public_key;
        server = dashed;
        CHECK(fake.tnr({"login", "pool", node, dashed, "--same-key"}) == 0);
        CHECK(fake.tnr({"login", "pool", node, "--same-key", dashed}) == 0);
        CHECK(fake.session.logins().find("")->keys.server_public == dashed);
    }
    SECTION("a node that is not there is told as that, without trying more keys") {
        says = Error{Error::Kind::network, "no answer"};
        tried.clear();
        CHECK(fake.tnr(words) == 1);
        CHECK(fake.err.str().find("no answer") != std::string::npos);
        CHECK(tried.size() == 1);
    }
    SECTION("where none is known, another way is told") {
        says = Error{Error::Kind::auth, "refused"};
        CHECK(fake.tnr(words) == 4);
        CHECK(fake.err.str().find("lets none of your keys in") != std::string::npos);
    }
    SECTION("a secret beside it is too much") {
        auto more = words;
        more.insert(more.end(), {"--secret-file", "-"});
        CHECK(fake.tnr(more) == 2);
    }
}
