// What goes wrong: workers that do not start, GPUs that cannot be wiped, servers that are stopped and killed.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>

#include <thread>

#include "tests/support/catch.hpp"

#include "gpu_server/pool/ledger.hpp"
#include "server.hpp"

using namespace tnr;
using namespace tnr::test;

TEST_CASE("a GPU whose workers keep dying is out of order, without a busy loop", "[server]") {
    auto how = GENERATE(as<std::string>(), "crash", "exit", "nonsense", "fail");
    CAPTURE(how);
    Server server({"--plain", "--emulate", "h100"}, {"TNR_WORKER_FAKE_START=" + how});
    REQUIRE(server.wait_for_log("is out of order"));
    auto client = client_of(server);
    auto answer = ask(*client, session_request("trainer"));
    CHECK(answer["error"]["what"] == "all GPUs of this pool are out of order");
    auto notes = server.notes();
    size_t starts = 0;
    for (size_t at = notes.find("worker"); at != std::string::npos; at = notes.find("worker", at + 1)) ++starts;
    CHECK(starts == 5);
    if (how == "fail") CHECK(server.log().find("no such GPU (exited with code 1)") != std::string::npos);
}

TEST_CASE("a GPU that cannot be wiped is given to nobody", "[server]") {
    Server server({"--plain", "--emulate", "h100"}, {"TNR_WORKER_FAKE_WIPE=fail"});
    REQUIRE(server.wait_for_log("is out of order: its memory could not be wiped: bits are stuck"));
    CHECK(server.notes().find("worker") == std::string::npos);
}

TEST_CASE("a worker that crashes as soon as it serves ends only its session", "[server]") {
    Server server({"--plain", "--emulate", "h100", "--linger-ms", "0"}, {"TNR_WORKER_FAKE_SERVE=crash"});
    auto client = client_of(server);
    for (int i = 1; i <= 3; ++i) {
        ask(*client, session_request("trainer"));
        REQUIRE(server.wait_for_log("its worker was killed by signal 6", i));
    }
    CHECK(ask(*client, {{"op", "hello"}})["role"] == "open");
}

TEST_CASE("a worker that says its last word and stays is ended", "[server]") {
    Server server({"--plain", "--emulate", "h100"});
    auto client = client_of(server);
    auto connection = connect_to(ask(*client, session_request("trainer"))["endpoint"]);
    REQUIRE(::write(connection.get(), "E", 1) == 1);
    REQUIRE(server.wait_for_log("has said that it ends, and has not: it is ended"));
    char byte = 0;
    CHECK(::read(connection.get(), &byte, 1) <= 0);
    REQUIRE(server.wait_for_log("wiped 1 MiB, free", 2));
    CHECK(ask(*client, session_request("notebook")).contains("session"));
}

TEST_CASE("a server that is asked to end does so at once, and the ledger is closed", "[server]") {
    auto signal = GENERATE(SIGTERM, SIGINT);
    Server server({"--plain", "--emulate", "h100:2"}, {"TNR_WORKER_FAKE_GPUS=2"});
    auto client = client_of(server);
    auto answer = ask(*client, session_request("trainer"));
    REQUIRE(answer.contains("session"));
    auto before = std::chrono::steady_clock::now();
    server.signal(signal);
    CHECK(server.wait_for_exit() == 0);
    CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(10));  // 2 s promised, on an idle machine
    auto opened = tnr::server::open_sqlite_ledger(server.folder->path + "/state/pool.db");
    REQUIRE(opened);
    auto ledger = *(*opened)->claims_of("", {}, 10);
    REQUIRE(ledger.size() == 1);
    CHECK(ledger[0].machine == "trainer");
    CHECK(ledger[0].ended);
    CHECK(ledger[0].reason == "the pool's server was stopped");
}

TEST_CASE("after kill -9 no worker survives, and the next server closes the ledger's open claims", "[server]") {
    auto folder = std::make_shared<Folder>();
    tnr::UniqueFd connection;
    {
        Server server({"--plain", "--emulate", "h100"}, {}, folder);
        auto client = client_of(server);
        auto answer = ask(*client, session_request("trainer"));
        connection = connect_to(answer["endpoint"]);
        server.signal(SIGKILL);
        CHECK(server.wait_for_exit() == 128 + SIGKILL);
    }
    char byte;
    CHECK(::read(connection.get(), &byte, 1) <= 0);  // waits until the worker is gone

    Server again({"--plain", "--emulate", "h100"}, {}, folder);
    CHECK(again.log().find("claim 1 of trainer on h100 was open when the server ended") != std::string::npos);
    auto opened = tnr::server::open_sqlite_ledger(folder->path + "/state/pool.db");
    auto ledger = *(*opened)->claims_of("", {}, 10);
    REQUIRE(ledger.size() == 1);
    CHECK(ledger[0].ended);
    CHECK(ledger[0].reason == "server restarted");
    auto client = client_of(again);
    CHECK(ask(*client, session_request("trainer")).contains("session"));
}

TEST_CASE("two servers never share a state folder", "[server]") {
    Server server({"--plain", "--emulate", "h100"});
    Server second({"--plain", "--emulate", "h100"}, {}, server.folder);
    CHECK(second.address.empty());
    CHECK(second.wait_for_exit() == 2);
    CHECK(second.log().find("another tnr-gpu-server already serves with") != std::string::npos);
}

// A process that the first was just starting has its lock until it has become a worker.
TEST_CASE("a server that was killed is followed at once, also where a child of it still has the lock", "[server]") {
    auto folder = std::make_shared<Folder>();
    { Server first({"--plain", "--emulate", "h100"}, {}, folder); }
    UniqueFd childs(open((folder->path + "/state/lock").c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(flock(childs.get(), LOCK_EX) == 0);  // a real child may have it for a moment
    std::thread exec([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        childs.reset();
    });
    Server second({"--plain", "--emulate", "h100"}, {}, folder);
    exec.join();
    CHECK(ask(*client_of(second), session_request("trainer")).contains("session"));
}
