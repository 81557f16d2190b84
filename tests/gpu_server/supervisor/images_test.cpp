// Code images between workers and the supervisor: what one tenant brings is found by its own programs, on every machine
// and after a restart, and by nobody else's; what a worker says wrong harms nobody.
#include <signal.h>
#include <sys/socket.h>

#include <filesystem>
#include "tests/support/catch.hpp"

#include "server.hpp"

using namespace tnr;
using namespace tnr::test;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> debug_log{"TNR_WORKER_FAKE_GPUS=4", "TNR_LOG=debug"};

// A session whose worker does what it is told (fake_worker.cpp).
class Program {
public:
    explicit Program(control::Client& client, const std::string& machine = "") {
        auto answer = ask(client, session_request(machine));
        INFO(answer);
        REQUIRE(answer.contains("endpoint"));
        connection_ = connect_to(answer["endpoint"]);
    }
    void say(char letter, char number) const {
        const char bytes[] = {'#', letter, number};
        REQUIRE(::send(connection_.get(), bytes, sizeof bytes, MSG_NOSIGNAL) == sizeof bytes);
    }
    uint64_t find(char number) const {
        say('f', number);
        uint64_t found = 99;
        REQUIRE(::recv(connection_.get(), &found, sizeof found, MSG_WAITALL) == sizeof found);
        return found;
    }
    // For a program that may be ended at any moment.
    bool still_finds(char number) const {
        const char bytes[] = {'#', 'f', number};
        uint64_t found = 0;
        return ::send(connection_.get(), bytes, sizeof bytes, MSG_NOSIGNAL) == sizeof bytes &&
               ::recv(connection_.get(), &found, sizeof found, MSG_WAITALL) == sizeof found && found != 0;
    }
    bool ended() const {
        char byte;
        return ::read(connection_.get(), &byte, 1) <= 0;
    }

private:
    UniqueFd connection_;
};

std::string file_of(const Server& server, const std::string& tenant, char number) {
    return server.folder->path + "/state/images/" + tenant + "/" + std::string(64, number);
}
std::string kept(const std::string& tenant, char number) {
    return "kept code image " + std::string(64, number) + " of " + tenant;
}
std::unique_ptr<control::Client> machine_of(const Server& server, control::Client& account,
                                            const wire::ClientKeys& keys, const std::string& name) {
    wire::ClientKeys machine{keys.server_public, wire::make_key_pair()};
    auto answer = ask(account, {{"op", "enroll_machine"}, {"name", name}, {"public_key", machine.own.public_key}});
    REQUIRE_FALSE(answer.contains("error"));
    return client_of(server, machine);
}

}  // namespace

TEST_CASE("an image is there for the tenant's next program at once, and after a restart", "[images]") {
    auto folder = std::make_shared<Folder>();
    {
        Server server({"--plain", "--emulate", "h100"}, debug_log, folder);
        auto client = client_of(server);
        Program first(*client, "trainer");
        CHECK(first.find('a') == 0);
        first.say('k', 'a');
        CHECK(first.find('a') == 1);  // heard behind it; two programs' words are heard in any order
        Program second(*client, "trainer");
        CHECK(second.find('a') == 1);
        REQUIRE(server.wait_for_log(kept("machine-trainer", 'a')));
        CHECK(second.find('a') != 0);
        CHECK(fs::file_size(file_of(server, "machine-trainer", 'a')) == 300'000);
        CHECK((fs::status(file_of(server, "machine-trainer", 'a')).permissions() & fs::perms::mask) ==
              (fs::perms::owner_read | fs::perms::owner_write));
    }
    Server again({"--plain", "--emulate", "h100"}, debug_log, folder);
    auto client = client_of(again);
    CHECK(Program(*client, "trainer").find('a') == 1);
    SECTION("what is damaged goes") {
        Program program(*client, "trainer");
        program.say('d', 'a');
        CHECK(program.find('a') == 0);
        CHECK_FALSE(fs::exists(file_of(again, "machine-trainer", 'a')));
    }
    SECTION("a forgotten machine's go") {
        CHECK_FALSE(ask(*client, {{"op", "forget_machine"}, {"name", "trainer"}}).contains("error"));
        CHECK_FALSE(fs::exists(file_of(again, "machine-trainer", 'a')));
    }
}

TEST_CASE("nobody finds another tenant's images", "[images]") {
    Server server({"--emulate", "h100:4"}, debug_log);
    auto alice_keys = enroll(server, "alice"), bob_keys = enroll(server, "bob");
    auto alice = client_of(server, alice_keys), bob = client_of(server, bob_keys);
    auto trainer = machine_of(server, *alice, alice_keys, "trainer");
    auto notebook = machine_of(server, *alice, alice_keys, "notebook");
    Program brings(*trainer);
    brings.say('k', 'a');
    CHECK(brings.find('a') == 1);
    CHECK(Program(*notebook).find('a') == 1);  // the account's other machine
    Program stranger(*bob);
    CHECK(stranger.find('a') == 0);
    REQUIRE(server.wait_for_log(kept("account-alice", 'a')));
    CHECK(stranger.find('a') == 0);
    // Nor while they are still in memory: two at a time are written.
    for (char number : std::string("bcdef0123456789")) brings.say('k', number);
    CHECK(brings.find('9') == 1);
    CHECK(stranger.find('9') == 0);
    REQUIRE(server.wait_for_log("kept code image", 16));
    stranger.say('d', 'a');
    CHECK(stranger.find('a') == 0);
    CHECK(brings.find('a') == 1);
    SECTION("an account's images outlive one of its machines") {
        ask(*alice, {{"op", "forget_machine"}, {"name", "trainer"}});
        CHECK(Program(*notebook).find('a') == 1);
    }
    SECTION("and go with the account, which is locked out and keeps nothing any more") {
        auto state = server.folder->path + "/state";
        CHECK(run_server_command({"user", "remove", "alice", "--state", state}).code == 0);
        CHECK_FALSE(fs::exists(file_of(server, "account-alice", 'a')));
        CHECK(ask(*trainer, session_request())["error"]["kind"] == "auth");
        CHECK(ask(*alice, {{"op", "claims"}})["error"]["kind"] == "auth");
        for (char number : std::string("abcdef0123456789")) CHECK_FALSE(brings.still_finds(number));
        CHECK(brings.ended());
        CHECK(stranger.find('a') == 0);
        CHECK(run_server_command({"user", "remove", "alice", "--state", state}).err.find("there is no user 'alice'") !=
              std::string::npos);
    }
}

TEST_CASE("a worker that lies about an image harms nobody", "[images]") {
    Server server({"--plain", "--emulate", "h100:2"}, debug_log);
    auto client = client_of(server);
    Program bystander(*client, "bystander");
    Program liar(*client, "liar");
    SECTION("what could still be changed is not kept") {
        liar.say('u', 'a');
        CHECK(liar.find('a') == 0);
    }
    SECTION("nor what is shorter than it is said to be") {
        liar.say('l', 'a');
        CHECK(liar.find('a') == 0);
    }
    SECTION("sizes that no image has end the worker") {
        liar.say(GENERATE('s', 'm'), 'a');
        CHECK(liar.ended());
    }
    SECTION("so does a hash that is none") {
        liar.say('n', 'a');
        CHECK(liar.ended());
        CHECK(server.wait_for_log("talks nonsense"));
    }
    CHECK(bystander.find('a') == 0);
    bystander.say('k', 'b');
    CHECK(bystander.find('b') == 1);
    CHECK_FALSE(fs::exists(server.folder->path + "/state/images/machine-liar"));
}

TEST_CASE("a server without a cache keeps nothing, and one with little room the latest", "[images]") {
    SECTION("none") {
        Server server({"--plain", "--emulate", "h100", "--image-cache-mib", "0"}, debug_log);
        auto client = client_of(server);
        Program program(*client, "trainer");
        program.say('k', 'a');
        program.say('k', 'b');
        CHECK(program.find('a') == 0);
        CHECK_FALSE(fs::exists(server.folder->path + "/state/images"));
    }
    SECTION("1 MiB: three of these") {
        Server server({"--plain", "--emulate", "h100", "--image-cache-mib", "1"}, debug_log);
        auto client = client_of(server);
        Program program(*client, "trainer");
        for (char number : {'a', 'b', 'c', 'd'}) {
            program.say('k', number);
            REQUIRE(server.wait_for_log(kept("machine-trainer", number)));
        }
        CHECK(program.find('a') == 0);
        CHECK(program.find('d') == 1);
        CHECK_FALSE(fs::exists(file_of(server, "machine-trainer", 'a')));
    }
}
