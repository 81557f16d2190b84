// `tnr connect`: getting in, and saying soon why not.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <thread>

#include "cli/commands/reach.hpp"
#include "cli/ssh/escapes.hpp"
#include "cli/ssh/exec.hpp"
#include "cli/target.hpp"
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

namespace {

// Sooner than for users; a machine that is only idle has answered a keepalive by then.
constexpr ssh::SilenceLimits soon{ssh::keepalive_interval + 1s, 7s};

std::unique_ptr<ssh::Client> connected_to(const test::Sshd& sshd) {
    auto client = ssh::Client::connect(sshd.target(), ssh::Clock::now() + 30s);
    REQUIRE(client);
    return std::move(*client);
}

struct Ends {
    UniqueFd out, in;
    Ends() {
        int ends[2];
        REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
        out = UniqueFd{ends[0]};
        in = UniqueFd{ends[1]};
    }
    // Any thread may call these. A byte that does not come leaves the test without what it waits for.
    void type(const std::string& text) const { (void)!::write(in.get(), text.data(), text.size()); }
    void wait_for_byte() const {
        char byte;
        (void)!::read(out.get(), &byte, 1);
    }
};

}  // namespace

TEST_CASE("a machine that hangs is told of soon, and after a while given up", "[ssh][connect]") {
    CHECK(ssh::SilenceLimits{}.told + ssh::keepalive_interval < 15s);
    test::Sshd sshd;
    auto client = connected_to(sshd);
    client->silence = soon;
    std::vector<std::string> told;
    client->on_silence = [&](auto silent) { told.push_back(silent.count() ? "silent" : "back"); };
    Ends output;
    std::thread user([&] { output.wait_for_byte(), sshd.freeze(); });
    auto code = ssh::run(*client, {"echo; exec sleep 100", {}}, {-1, output.in.get(), -1});
    user.join();
    REQUIRE_FALSE(code);
    CHECK(code.error().kind == Error::Kind::network);
    CHECK(code.error().what.find("has not answered for 7 s") != std::string::npos);
    CHECK(told == std::vector<std::string>{"silent"});
    auto begun = ssh::Clock::now();
    client.reset();  // its goodbye is not waited for
    CHECK(ssh::Clock::now() - begun < 8s);
}

TEST_CASE("a machine that comes back goes on", "[ssh][connect]") {
    test::Sshd sshd;
    auto client = connected_to(sshd);
    client->silence = {soon.told, 60s};
    std::vector<std::string> told;
    client->on_silence = [&](auto silent) {
        told.push_back(silent.count() ? "silent" : "back");
        if (silent.count()) sshd.thaw();
    };
    Ends output;
    std::thread user([&] { output.wait_for_byte(), sshd.freeze(); });
    auto code = ssh::run(*client, {"echo; sleep 5; exit 3", {}}, {-1, output.in.get(), -1});
    user.join();
    REQUIRE(code);
    CHECK(*code == 3);
    CHECK(told == std::vector<std::string>{"silent", "back"});
}

TEST_CASE("~. and three Ctrl-C end a terminal's connection to a machine that hangs", "[ssh][connect]") {
    for (std::string keys : {"\r~.", "\x03\x03\x03"}) {
        test::Sshd sshd;
        auto client = connected_to(sshd);
        Ends input, output;
        bool begun = false;
        std::thread user([&] {
            char byte = 0;
            while (byte != '!' && ::read(output.out.get(), &byte, 1) == 1) {
            }
            begun = byte == '!';
            sshd.freeze();
            input.type(keys);
        });
        ssh::Pty pty{"xterm", [] { return ssh::WindowSize{}; }};
        auto code = ssh::run(*client, {"stty raw -echo; printf '!'; exec sleep 100", pty},
                             {input.out.get(), output.in.get(), -1});
        user.join();
        CHECK(begun);
        REQUIRE_FALSE(code);
        // By the keys: one that is given up after a while is told in other words.
        CHECK(code.error().what.find("the connection was ended here") != std::string::npos);
    }
}

TEST_CASE("a machine that answers gets Ctrl-C as often as its user likes", "[ssh][connect]") {
    ssh::Escapes escapes;
    auto now = ssh::Clock::now();
    CHECK(escapes.take("\x03\x03\x03\x03", now) == "\x03\x03\x03\x03");
    CHECK_FALSE(escapes.gives_up(now - 1s, now + 1s));  // it may still answer
    CHECK_FALSE(escapes.gives_up(now + 2s, now + 3s));  // it has
    CHECK_FALSE(escapes.gives_up(now + 2s, now + 99s));
    (void)escapes.take("\x03\x03\x03", now + 100s);
    CHECK(escapes.gives_up(now + 2s, now + 106s));
}

TEST_CASE("only a ~ at the beginning of a line is looked at", "[ssh][connect]") {
    auto passed = [](const std::string& typed) {
        ssh::Escapes escapes;
        std::string text = escapes.take(typed, ssh::Clock::now());
        return text + (escapes.ended() ? "|ended" : "");
    };
    CHECK(passed("ls ~.\r") == "ls ~.\r");
    CHECK(passed("~.") == "|ended");
    CHECK(passed("ls\r~.x") == "ls\r|ended");
    CHECK(passed("~~.\r") == "~.\r");
    CHECK(passed("~/bin/x\r") == "~/bin/x\r");
    CHECK(passed("\x03~.") == "\x03|ended");
}

TEST_CASE("a new connection says soon that nobody answers", "[cli][connect]") {
    test::FakeSession fake;
    fake.start_demo();
    test::Sshd sshd;
    fake.put_demo_at(sshd);
    const UniqueFd deaf{::socket(AF_INET, SOCK_STREAM, 0)};  // accepts, as a hanging machine's kernel does
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    REQUIRE(::bind(deaf.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(::listen(deaf.get(), 4) == 0);
    REQUIRE(::getsockname(deaf.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
    fake.world.machines.at("i-1").ssh_port = fake.world.ssh_port = ntohs(address.sin_port);
    auto client = cli::reach(fake.session, "demo", 4s);
    REQUIRE_FALSE(client);
    CHECK(fake.err.str().find("… waiting for SSH on 'demo': nothing answers at 127.0.0.1") != std::string::npos);
}

TEST_CASE("a lost key, another one, and one that others can read are told at once, as that", "[cli][connect]") {
    test::FakeSession fake;
    fake.start_demo();
    std::string key = fake.session.config_folder + "/keys/demo";
    auto begun = ssh::Clock::now();
    SECTION("lost") {
        REQUIRE(remove_file(key));
        for (const std::vector<std::string>& words :
             {std::vector<std::string>{"connect", "demo", "--", "true"}, {"start", "demo"}}) {
            CHECK(fake.tnr(words) == 4);
            CHECK(fake.err.str().find("is lost, so 'demo' would refuse authentication") != std::string::npos);
            CHECK(fake.err.str().find("`tnr delete demo`") != std::string::npos);
            CHECK_FALSE(file_exists(key));
        }
    }
    SECTION("another") {
        REQUIRE(write_file(key, ssh::private_file(*ssh::generate_key(), "")));
        for (const std::vector<std::string>& words :
             {std::vector<std::string>{"connect", "demo", "--", "true"}, {"start", "demo"}}) {
            CHECK(fake.tnr(words) == 4);
            CHECK(fake.err.str().find("is not the one that 'demo' was made with (SHA256:") != std::string::npos);
        }
    }
    SECTION("readable by others") {
        REQUIRE(::chmod(key.c_str(), 0640) == 0);
        CHECK(fake.tnr({"connect", "demo", "--", "true"}) == 2);
        CHECK(fake.err.str().find("can be read by others") != std::string::npos);
        CHECK(fake.err.str().find("`chmod 600 " + key + "`") != std::string::npos);
    }
    CHECK(ssh::Clock::now() - begun < 30s);  // 60 s is what a machine has that does not answer
}

TEST_CASE("each machine has a key of its own, which goes with it", "[cli][connect]") {
    test::FakeSession fake;
    const std::string folder = fake.session.config_folder;
    auto key_of = [&](const std::string& name) { return (*fake.session.records().find(name))->login_key; };
    fake.start_demo();
    const std::string first = fake.world.last_order.authorised_key;
    fake.start_demo("other");
    CHECK(first.find(key_of("demo")) == 0);
    CHECK(fake.world.last_order.authorised_key.find(key_of("other")) == 0);
    CHECK(key_of("demo") != key_of("other"));
    for (const char* name : {"demo", "other"}) {
        struct stat file = {};
        REQUIRE(::stat((folder + "/keys/" + name).c_str(), &file) == 0);
        CHECK((file.st_mode & 0777) == 0600);
    }
    REQUIRE(remove_file(folder + "/keys/demo"));  // the other machine knows nothing of it
    CHECK(cli::login_key(**fake.session.records().find("other"), folder));
    REQUIRE(fake.tnr({"delete", "demo", "other", "--yes"}) == 0);
    CHECK(std::filesystem::is_empty(folder + "/keys"));
}

TEST_CASE("a machine that an older tnr has made is opened with the key that all of them had", "[cli][connect]") {
    test::Sshd sshd;
    test::FakeSession fake;
    fake.start_demo();
    fake.put_demo_at(sshd);
    auto record = **fake.session.records().find("demo");
    record.own_key = false;
    REQUIRE(fake.session.records().save(record));
    REQUIRE(fake.tnr({"connect", "demo", "--", "true"}) == 4);
    const std::string shared = fake.session.config_folder + "/ssh_key";
    REQUIRE(write_file(shared, ssh::private_file(sshd.target().key, "")));
    CHECK(fake.tnr({"connect", "demo", "--", "true"}) == 0);
    CHECK(fake.document({"ssh-config", "demo"})["hosts"][0]["identity_file"] == shared);
    REQUIRE(fake.tnr({"delete", "demo", "--yes"}) == 0);
    CHECK(file_exists(shared));  // others may need it
    fake.start_demo();
    CHECK((*fake.session.records().find("demo"))->own_key);
}

TEST_CASE("a server that goes on refusing our key is called that, and not waited for as long as one that boots",
          "[cli][connect]") {
    test::Sshd sshd;
    auto target = sshd.target();
    target.key = *ssh::generate_key();
    std::optional<ssh::Deadline> first;
    auto client = ssh::connect_when_ready(
        target, ssh::Clock::now() + 60s,
        [&](const Error&) -> Result<> {
            if (!first) first = ssh::Clock::now();
            if (ssh::Clock::now() - *first < 30s) return Ok{};
            return Error{Error::Kind::internal, "it goes on waiting"};
        },
        1s);
    REQUIRE_FALSE(client);
    CHECK(client.error().kind == Error::Kind::auth);
    CHECK(client.error().what.find("authentication failed") == 0);
    CHECK(first);
    CHECK(ssh::auth_patience_known <= 30s);
}

TEST_CASE("connect without a name takes the only machine there is", "[cli][connect]") {
    test::FakeSession fake;
    CHECK(fake.tnr({"connect"}) == 1);
    CHECK(fake.err.str().find("there is no machine yet") != std::string::npos);
    fake.start_demo();
    test::Sshd sshd;
    fake.put_demo_at(sshd);
    CHECK(fake.tnr({"connect", "--", "exit 7"}) == 7);
    CHECK(fake.tnr({"connect", "-T", "demo", "test", "-n", "x"}) == 0);  // -n is test's
    CHECK(fake.tnr({"connect", "demo", "sh", "-c", "exit 6"}) == 6);
    fake.start_demo("other");
    CHECK(fake.tnr({"connect", "--", "true"}) == 2);
    CHECK(fake.err.str().find("there are demo, other") != std::string::npos);
}
