// The ledger: what is in it, what a crash and a power cut leave of it, who may read what, prices.
#include "gpu_server/pool/ledger.hpp"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "gpu_server/pool/sqlite.hpp"
#include "power_cut.hpp"
#include "tests/support/catch.hpp"

using namespace tnr::server;

namespace {

struct TempLedger {
    TempLedger() {
        std::string name = (std::filesystem::temp_directory_path() / "tnr-ledger-XXXXXX").string();
        folder = mkdtemp(name.data());
        path = folder + "/pool.db";
    }
    ~TempLedger() { std::filesystem::remove_all(folder); }
    std::unique_ptr<Ledger> open() const { return open(path); }
    static std::unique_ptr<Ledger> open(const std::string& where) {
        auto opened = open_sqlite_ledger(where);
        REQUIRE(opened);
        return std::move(*opened);
    }
    std::string folder, path;
};

int64_t begin(Ledger& ledger, const std::string& account, int64_t at, const std::string& gpu = "h100") {
    auto id = ledger.begin({0, account, "trainer", gpu, "u1", "node-a", at});
    REQUIRE(id);
    return *id;
}

std::vector<ClaimRecord> all_of(Ledger& ledger, const std::string& account) {
    return *ledger.claims_of(account, {-1, 0}, 1000);
}

}  // namespace

// The supervisor writes on the thread that everybody waits for.
TEST_CASE("a file that another process keeps locked keeps nobody waiting for long", "[ledger]") {
    using Clock = std::chrono::steady_clock;
    TempLedger temp;
    auto ledger = temp.open();
    begin(*ledger, "alice", 1000);
    sqlite3* other = nullptr;
    REQUIRE(sqlite3_open(temp.path.c_str(), &other) == SQLITE_OK);
    const Database owned(other);
    REQUIRE(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK);
    auto shortest = Clock::duration::max();
    for (int i = 0; i < 5; ++i) {  // a busy machine may make one of them last
        const auto began = Clock::now();
        CHECK_FALSE(ledger->note({{1, {}, "released"}}));
        shortest = std::min(shortest, Clock::now() - began);
    }
    CHECK(shortest < std::chrono::milliseconds(busy_timeout_ms));
    std::thread lets_go([other] {
        std::this_thread::sleep_for(std::chrono::milliseconds(busy_timeout_ms / 4));
        sqlite3_exec(other, "COMMIT", nullptr, nullptr, nullptr);
    });
    const auto begun = ledger->begin({0, "alice", "", "h100", "GPU-1", "node", 2000});  // which nobody tries again
    lets_go.join();
    CHECK(begun);
    CHECK(ledger->note({{1, {}, "released"}}));
}

TEST_CASE("a claim's line tells who used what how long, and what became of it", "[ledger]") {
    TempLedger temp;
    auto ledger = temp.open();
    auto id = *ledger->begin({0, "alice", "trainer", "h100", "u1,u2", "node-a", 10'000});
    REQUIRE(ledger->note({{id, {1500, 100, 7}, {}}}));
    auto running = all_of(*ledger, "alice").at(0);
    CHECK_FALSE(running.ended);
    CHECK(running.until_ms() == 11'500);
    REQUIRE(ledger->note({{id, {2500, 200, 9, 1200}, "its last process has ended"}}));
    REQUIRE(ledger->note_wiped(id, {1000, 300, 20}));
    REQUIRE(ledger->note_wiped(id, {500, 200, 30}));           // its other GPU
    REQUIRE(ledger->note({{id, {9999, 999, 999}, "again"}}));  // what has ended stays as it is
    ledger.reset();
    auto line = all_of(*temp.open(), "alice").at(0);
    CHECK(line.id == id);
    CHECK(line.machine == "trainer");
    CHECK(line.gpu == "h100");
    CHECK(line.devices == "u1,u2");
    CHECK(line.node == "node-a");
    CHECK(line.began_ms == 10'000);
    CHECK(line.use.lasted_ms == 2500);
    CHECK(line.use.bytes_up == 200);
    CHECK(line.use.bytes_down == 9);
    CHECK(line.ended);
    CHECK(line.reason == "its last process has ended");
    CHECK(line.use.busy_ms == 1200);
    REQUIRE(line.wipe);
    CHECK(line.wipe->bytes == 1500);
    CHECK(line.wipe->checked_bytes == 500);
    CHECK(line.wipe->took_ms == 50);
}

TEST_CASE("what nobody ended is ended where it was noted last, once", "[ledger]") {
    TempLedger temp;
    auto ledger = temp.open();
    auto first = begin(*ledger, "alice", 1000), second = begin(*ledger, "alice", 2000);
    begin(*ledger, "bob", 9000);
    REQUIRE(ledger->note({{first, {500, 0, 0}, "idle"}, {second, {3000, 0, 0}, {}}}));
    ledger.reset();  // the crash

    ledger = temp.open();
    CHECK(ledger->close_open("server restarted")->size() == 2);
    CHECK(ledger->close_open("again")->empty());
    auto lines = all_of(*ledger, "alice");
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].until_ms() == 1500);
    CHECK(lines[0].reason == "idle");
    CHECK(lines[1].until_ms() == 5000);
    CHECK(lines[1].reason == "server restarted");
    CHECK(all_of(*ledger, "bob").at(0).use.lasted_ms == 0);  // it had just begun
}

TEST_CASE("a power cut takes what was not synced, and never half of it", "[ledger]") {
    TempLedger temp;
    tnr::test::UnsteadyDisk disk;
    auto ledger = temp.open();
    std::vector<int64_t> ids;
    for (int i = 0; i < 3; ++i) ids.push_back(begin(*ledger, "alice", 1000));
    REQUIRE(ledger->sync());
    auto after_cut = [&](const std::string& name) {
        auto left = temp.folder + "/" + name;
        disk.cut_power(temp.path, left);
        auto mended = TempLedger::open(left);
        REQUIRE(mended->close_open("power cut"));
        std::vector<int64_t> lasted;
        for (auto& line : all_of(*mended, "alice")) lasted.push_back(line.use.lasted_ms);
        return lasted;
    };
    for (int round = 1; round <= 20; ++round) {
        int64_t now = round * 1000;
        REQUIRE(ledger->note({{ids[0], {now, 0, 0}, {}}, {ids[1], {now, 0, 0}, {}}, {ids[2], {now, 0, 0}, {}}}));
        auto before = after_cut("before" + std::to_string(round));
        CHECK(before == std::vector<int64_t>(3, now - 1000));
        REQUIRE(ledger->sync());
        CHECK(after_cut("after" + std::to_string(round)) == std::vector<int64_t>(3, now));
    }
    int syncs = disk.syncs;
    REQUIRE(ledger->sync());  // nothing new: the disk is left alone
    CHECK(disk.syncs == syncs);
}

TEST_CASE("an account turns the pages of its own claims and misses none", "[ledger]") {
    TempLedger temp;
    auto ledger = temp.open();
    for (int i = 0; i < 50; ++i) {
        auto id = begin(*ledger, i % 2 ? "alice" : "bob", 1000 + i);
        if (i != 7) REQUIRE(ledger->note({{id, {100 - i, 0, 0}, "done"}}));
    }
    std::vector<int64_t> seen;
    LedgerPlace place{-1, 0};
    while (true) {
        auto page = *ledger->claims_of("alice", place, 4);
        if (page.empty()) break;
        CHECK(page.size() <= 4);
        for (auto& line : page) {
            CHECK(line.account == "alice");
            seen.push_back(line.id);
        }
        place = {page.back().until_ms(), page.back().id};
    }
    std::sort(seen.begin(), seen.end());
    CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
    CHECK(seen.size() == 25);
    CHECK(all_of(*ledger, "").empty());
    CHECK(ledger->claims_of("alice", {1099, 0}, 100)->size() == 24);  // what had ended before is passed over
}

TEST_CASE("the ledger of an older server is taken over", "[ledger]") {
    TempLedger temp;
    {
        auto old = open_database(temp.path, R"(
            CREATE TABLE claims (id INTEGER PRIMARY KEY AUTOINCREMENT, account TEXT NOT NULL, machine TEXT NOT NULL,
                gpu TEXT NOT NULL, devices TEXT NOT NULL, began_ms INTEGER NOT NULL, ended_ms INTEGER,
                reason TEXT NOT NULL DEFAULT '');
            CREATE TABLE alive (one INTEGER PRIMARY KEY CHECK (one = 1), at_ms INTEGER NOT NULL);
            INSERT INTO alive VALUES (1, 5000);
            INSERT INTO claims VALUES (1, 'alice', 'm', 'h100', 'u', 1000, 1500, 'idle');
            INSERT INTO claims VALUES (2, 'alice', 'm', 'h100', 'u', 2000, NULL, '');
            INSERT INTO claims VALUES (3, 'alice', 'm', 'h100', 'u', 8000, NULL, '');)");
        REQUIRE(old);
    }
    temp.open();  // another command, before the server itself
    {
        auto still_running = open_database(temp.path, R"(
            INSERT OR REPLACE INTO alive (one, at_ms) VALUES (1, 6000);
            INSERT INTO claims (account, machine, gpu, devices, began_ms) VALUES ('alice', 'm', 'h100', 'u', 9000);
            UPDATE claims SET ended_ms = 9500 WHERE id = 4;)");
        REQUIRE(still_running);
    }
    auto ledger = temp.open();
    REQUIRE(ledger->close_open("server restarted"));
    std::map<int64_t, int64_t> lasted;
    for (auto& line : all_of(*ledger, "alice")) lasted[line.id] = line.use.lasted_ms;
    CHECK(lasted == std::map<int64_t, int64_t>{{1, 500}, {2, 3000}, {3, 0}, {4, 500}});
    CHECK(begin(*ledger, "bob", 10'000) == 5);
}

TEST_CASE("what is no ledger, or a newer one, is an error", "[ledger]") {
    TempLedger temp;
    CHECK_FALSE(open_sqlite_ledger(temp.folder));
    { REQUIRE(open_database(temp.path, "PRAGMA user_version = 99")); }
    auto newer = open_sqlite_ledger(temp.path);
    REQUIRE_FALSE(newer);
    CHECK(newer.error().what.find("newer") != std::string::npos);
}
