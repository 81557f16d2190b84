// What happens to operators: files of the state folder that are gone or empty, and options whose value is missing or leads
// nowhere.
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "gpu_server/pool/patience.hpp"
#include "server.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using tnr::server::milliseconds_from;
using namespace tnr::test;

namespace {

bool tells(const std::string& text, const std::string& what) {
    return text.find(what) != std::string::npos;
}

// Where a server has served, and alice may come in.
struct ServedFolder {
    ServedFolder() {
        Server server({"--emulate", "h100"}, {}, folder);
        enroll(server, "alice");
        server.signal(SIGTERM);
        REQUIRE(server.wait_for_exit() == 0);
    }
    Output command(std::vector<std::string> words) const {
        words.insert(words.end(), {"--state", state});
        return run_server_command(words);
    }
    Output serve(std::vector<std::string> more = {}) const {
        std::vector<std::string> words = {"serve", "--emulate", "h100", "--listen", "tcp://127.0.0.1:0"};
        words.insert(words.end(), more.begin(), more.end());
        return command(words);
    }
    std::shared_ptr<Folder> folder = std::make_shared<Folder>();
    const std::string state = folder->path + "/state";
};

}  // namespace

TEST_CASE("nobody begins anew where a server's database is gone or empty", "[mishaps]") {
    ServedFolder served;
    const auto database = served.state + "/pool.db", backup = served.folder->path + "/backup";
    REQUIRE(served.command({"backup", backup}).code == 0);
    std::string what = database + " is gone: the ledger was in it, and who may use the pool";
    REQUIRE(std::filesystem::remove(database));
    SECTION("gone") {}
    SECTION("empty") {
        std::ofstream emptied(database);
        what = database + " is empty: the ledger was in it, and who may use the pool";
    }
    for (auto& output : {served.serve(), served.command({"user", "list"}), served.command({"nodes"}),
                         served.command({"backup", backup + "-2"})}) {
        CHECK(output.code == 1);
        CHECK(tells(output.err, what));
        CHECK(tells(output.err, "hint: tnr-gpu-server restore FILE --replace"));
    }
    auto checked = served.command({"check", "--emulate", "h100", "--listen", "tcp://127.0.0.1:0"});
    CHECK(checked.code == 1);
    CHECK(tells(checked.out, what));
    REQUIRE(served.command({"restore", backup, "--replace"}).code == 0);
    CHECK(tells(served.command({"user", "list"}).out, "alice"));
}

TEST_CASE("a server that has lost its key makes no other", "[mishaps]") {
    ServedFolder served;
    REQUIRE(std::filesystem::remove(served.state + "/server.key"));
    for (auto& refused : {served.serve(), served.command({"user", "add", "bob"})}) {
        CHECK(refused.code == 1);
        CHECK(tells(refused.err, "a new key would lock out every enrolled client"));
    }
    auto checked = served.command({"check", "--emulate", "h100", "--listen", "tcp://127.0.0.1:0"});
    CHECK(tells(checked.out, "fail  key"));
    CHECK_FALSE(std::filesystem::exists(served.state + "/server.key"));
}

TEST_CASE("nothing begins on a server whose database is removed while it serves, until it is back", "[mishaps]") {
    Server server({"--emulate", "h100"});
    auto client = client_of(server, enroll(server, "alice"));
    const auto database = server.folder->path + "/state/pool.db";
    std::filesystem::rename(database, database + "-elsewhere");
    auto refused = ask(*client, session_request());
    REQUIRE(refused.contains("error"));
    CHECK(tells(refused["error"]["what"], "the server's database was removed or replaced while it runs"));
    CHECK(tells(refused["error"]["hint"], "the pool's operator has to put pool.db back"));
    CHECK(server.wait_for_log("the server's database was removed or replaced while it runs"));  // asked or not
    std::filesystem::rename(database + "-elsewhere", database);
    CHECK(ask(*client, session_request()).contains("endpoint"));
}

TEST_CASE("nothing begins on a server whose database has lost what was written last, until it was stopped",
          "[mishaps]") {
    auto folder = std::make_shared<Folder>();
    const auto log_of_changes = folder->path + "/state/pool.db-wal";
    {
        Server server({"--plain", "--emulate", "h100"}, {}, folder);
        auto client = client_of(server);
        REQUIRE(ask(*client, session_request("m1")).contains("endpoint"));
        ask(*client, {{"op", "release"}, {"machine", "m1"}});
        REQUIRE(wait_for_free_gpus(server, 1));
        REQUIRE(std::filesystem::remove(log_of_changes));
        // Whoever comes next makes a new one, of which the server never hears.
        std::ofstream(log_of_changes).flush();
        auto refused = ask(*client, session_request("m2"));
        REQUIRE(refused.contains("error"));
        CHECK(tells(refused["error"]["what"], "pool.db-wal, was removed or replaced while it runs"));
        CHECK(server.wait_for_log("pool.db-wal, was removed or replaced while it runs"));
        server.signal(SIGTERM);
        REQUIRE(server.wait_for_exit() == 0);
    }
    Server again({"--plain", "--emulate", "h100"}, {}, folder);
    auto client = client_of(again);
    CHECK(ask(*client, session_request("m2")).contains("endpoint"));
    auto claims = ask(*client, {{"op", "ledger"}, {"everyone", true}})["claims"];
    REQUIRE(claims.size() == 2);
    CHECK(claims[0]["machine"] == "m1");
}

TEST_CASE("an option without a value is not taken for its default", "[mishaps]") {
    Folder folder;
    const auto file = folder.path + "/server.conf";
    std::ofstream(file) << "listen = \"tcp://127.0.0.1:0\"\nstore = \"\"\n";
    for (auto& [words, told] : std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{"serve", "--store", ""}, "--store: its value is empty"},
             {{"serve", "--emulate="}, "--emulate needs a value"},
             {{"check", "--worker-bind", ""}, "--worker-bind: its value is empty"},
             {{"serve", "--emulate", "h100", "--emulated-memory", "0"}, "--emulated-memory takes 1 to"},
             {{"user", "list", "--state", ""}, "--state: its value is empty"},
             {{"user", "add", "alice", "--address", ""}, "--address: its value is empty"},
             {{"serve", "--emulate", "h100", "--config", file}, file + ", line 2: "}}) {
        auto refused = run_server_command(words);
        CHECK(refused.code == 2);
        CHECK(tells(refused.err, told));
    }
}

TEST_CASE("an address that leads nowhere is given to nobody", "[mishaps]") {
    ServedFolder served;
    for (auto address : {"gpu-1:15000", "0.0.0.0", "[fd00::1]", "a:b:c"}) {
        auto refused = served.serve({"--worker-address", address});
        CHECK(refused.code == 2);
        CHECK(tells(refused.err, "is no host that clients could reach"));
    }
    for (auto address : {"tcp://gpu-1:0", "tcp://gpu 1:14900", "tcp://gpu:1:14900"}) {
        auto refused = served.command({"user", "add", "bob", "--address", address});
        CHECK(refused.code == 2);
        CHECK(tells(refused.err, "no client can reach"));
    }
    CHECK(served.command({"user", "add", "bob", "--address", "tcp://[fd00::1]:14900"}).code == 0);
}

TEST_CASE("what the environment says wrongly is told, and means the default", "[mishaps]") {
    Server server({"--plain", "--emulate", "h100"},
                  {"TNR_LOG=verbose", "TNR_WORKER_GRACE_MS=30s", "TNR_WORKER_KNOCK_MS=-1"});
    for (auto told : {"TNR_LOG=verbose is not heeded: it is none of error, warning, info, debug, trace",
                      "TNR_WORKER_GRACE_MS=30s is not heeded: it is none of the numbers of milliseconds",
                      "TNR_WORKER_KNOCK_MS=-1 is not heeded"})
        CHECK(tells(server.log(), told));
    CHECK(milliseconds_from("30000") == std::chrono::milliseconds(30'000));
    CHECK_FALSE(milliseconds_from("30s"));
    CHECK_FALSE(milliseconds_from(""));
}

TEST_CASE("check says of a folder that others may enter what serve says", "[mishaps]") {
    ServedFolder served;
    REQUIRE(chmod(served.state.c_str(), 0755) == 0);
    auto checked = served.command({"check", "--emulate", "h100", "--listen", "tcp://127.0.0.1:0"});
    CHECK(tells(checked.out, "chmod 700 " + served.state));
}
